/* A raw reply, each piece of it coloured by what it was read as.

   The text is drawn in blocks of some thousand characters that end at line ends. The browser lays out those that are in sight
   (`content-visibility`), and a block that has not changed is kept when more text comes: while a reply is written, only its last
   block is drawn again. Beyond a limit the rest is drawn on demand, so that a megabyte costs no more than what is looked at. */

import { fill, h } from "./dom.js";
import { t } from "./i18n.js";
import { unitsOf, visible } from "./visible.js";

const BLOCK = 4000; // UTF-16 units after which a block ends at the next line end
const LONGEST = 12000; // after which it ends anywhere
const AT_ONCE = 60; // blocks that are drawn without being asked for

/** Cut a reply into pieces: what stands where, and as what it was read.
 *  @param {object} reply a ReplyRecord
 *  @returns {Array<{start: number, end: number, span: object, repairs: Array}>} in UTF-16 units, in order */
export function piecesOf(reply) {
  const units = unitsOf(reply.raw);
  const marks = repairsOf(reply).filter((each) => each.start !== null);
  const places = marks.map((each) => ({ ...each, at: units(each.start) })).sort((one, other) => one.at - other.at);
  const pieces = [];
  let next = 0;
  for (const span of reply.spans) {
    const end = units(span.end);
    let start = units(span.start);
    let repairs = [];
    for (; next < places.length && places[next].at < end; next += 1) {
      if (places[next].at > start) {
        pieces.push({ start, end: places[next].at, span, repairs });
        start = places[next].at;
        repairs = [];
      }
      repairs = [...repairs, places[next]];
    }
    pieces.push({ start, end, span, repairs });
  }
  if (next < places.length) pieces.push({ start: reply.raw.length, end: reply.raw.length, span: { kind: "text", about: "" }, repairs: places.slice(next) });
  const covered = pieces.length ? pieces[pieces.length - 1].end : 0;
  if (covered < reply.raw.length) pieces.push({ start: covered, end: reply.raw.length, span: { kind: "unread", about: "" }, repairs: [] });
  return pieces;
}

function repairsOf(reply) {
  const seen = new Set();
  return [...reply.repairs, ...reply.calls.flatMap((call) => call.repairs)].filter((each) => {
    const key = `${each.code} ${each.start} ${each.path}`;
    return !seen.has(key) && seen.add(key);
  });
}

/** Put pieces together in blocks, cutting those that are too long. */
export function blocksOf(raw, pieces) {
  const blocks = [];
  let block = [];
  let size = 0;
  const close = () => {
    if (block.length) blocks.push(block);
    block = [];
    size = 0;
  };
  for (const piece of pieces) {
    let { start } = piece;
    let { repairs } = piece;
    while (start < piece.end || repairs.length) {
      const lineEnd = raw.indexOf("\n", Math.max(start, start + BLOCK - size - 1));
      let end = lineEnd < 0 || lineEnd >= piece.end ? piece.end : lineEnd + 1;
      if (size + end - start > LONGEST) end = Math.max(start + 1, start + LONGEST - size);
      if (end < piece.end && /[\ud800-\udbff]/.test(raw[end - 1])) end += 1;
      block.push({ ...piece, start, end, repairs });
      size += end - start;
      repairs = [];
      start = end;
      if (size >= LONGEST || (size >= BLOCK && raw[end - 1] === "\n")) close();
    }
  }
  close();
  return blocks;
}

const signature = (block) =>
  block.map((each) => `${each.start} ${each.end} ${each.span.kind} ${each.span.about} ${each.span.call} ${each.repairs.map((one) => one.code)}`).join("|");

/** Draw a reply.
 *  @param {Element} container filled by this alone
 *  @param {object} reply a ReplyRecord
 *  @returns {{update(reply), mark(start, end, scrolls), unmark()}} offsets in characters */
export function renderSpans(container, reply) {
  const text = h("pre", { className: "raw", tabIndex: 0, "aria-label": t("raw.label") });
  const more = h("button", { onclick: showAll, hidden: true });
  let drawn = []; // {key, element}
  let most = AT_ONCE;
  let shown = reply;
  fill(container, text, more);

  function draw() {
    const blocks = blocksOf(shown.raw, piecesOf(shown));
    const now = blocks.slice(0, most).map((block) => ({ key: signature(block), block, element: null }));
    let same = 0;
    while (same < now.length && same < drawn.length && now[same].key === drawn[same].key) now[same].element = drawn[same++].element;
    for (const old of drawn.slice(same)) old.element.remove();
    for (const each of now.slice(same)) text.append((each.element = blockElement(shown.raw, each.block)));
    drawn = now;
    more.hidden = blocks.length <= most;
    if (!more.hidden) more.textContent = t("raw.more", { count: blocks.slice(most).flat().reduce((sum, each) => sum + each.end - each.start, 0) });
  }

  function showAll() {
    most += AT_ONCE * 10;
    draw();
  }

  function unmark() {
    for (const each of text.querySelectorAll(".marked")) each.classList.remove("marked");
  }

  function mark(start, end, scrolls) {
    unmark();
    const units = unitsOf(shown.raw);
    const [from, to] = [units(start), units(end)];
    const found = [...text.querySelectorAll("[data-start]")].filter((each) => +each.dataset.start < to && +each.dataset.end > from);
    for (const each of found) each.classList.add("marked");
    if (scrolls && found.length) found[0].scrollIntoView({ block: "center", behavior: "smooth" });
  }

  draw();
  return { update(next) { shown = next; draw(); }, mark, unmark };
}

function blockElement(raw, block) {
  const element = h("span", { className: "block" });
  for (const piece of block) {
    for (const repair of piece.repairs) element.append(repairElement(repair));
    if (piece.end > piece.start) element.append(pieceElement(raw, piece));
  }
  return element;
}

function pieceElement(raw, piece) {
  const { span } = piece;
  const told = [t(`span.${span.kind}`), span.about].filter(Boolean).join(": ");
  const data = { kind: span.kind, start: piece.start, end: piece.end };
  return h("span", { className: `piece ${span.kind}`, title: span.kind === "text" ? null : told, data }, visible(raw.slice(piece.start, piece.end)));
}

function repairElement(repair) {
  const why = `${repair.code}: ${repair.why}`;
  return h("span", { className: "repair", title: why, tabIndex: 0, role: "img", "aria-label": `${t("repair")}: ${why}` }, "◆");
}

/** Draw what the colours mean; each has a name, so that nobody has to tell colours apart. */
export function legend() {
  const kinds = ["text", "reasoning", "markup", "name", "value"];
  return h("div", { className: "legend" },
    kinds.map((kind) => h("span", { className: `piece ${kind}` }, t(`span.${kind}`))), h("span", null, h("span", { className: "repair" }, "◆"), ` ${t("repair")}`));
}
