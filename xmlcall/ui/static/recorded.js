/* What was recorded: conversations, runs, files; lists of turns with filters, and one of them opened.

   Lists are asked for page by page; the server filters, so that a run of thousands costs the page a hundred rows. */

import { get } from "./api.js";
import { about } from "./app.js";
import { fill, h, settled } from "./dom.js";
import { count, t, timeText } from "./i18n.js";
import { rowOf } from "./live.js";
import { renderTurn } from "./turn.js";
import { visible } from "./visible.js";

const PAGE = 100;
const FILTERS = ["way", "failure", "repair", "tool"];
const part = encodeURIComponent;

export function mount(container, parts) {
  const [kind, name, ...rest] = parts;
  const draw = { conversation: drawConversation, run: drawRun, file: drawFile }[kind] ?? drawAll;
  Promise.resolve(draw(container, name, rest)).catch((error) => container.append(h("p", { className: "error", role: "alert" }, error.message)));
  return { unmount() {} };
}

function heading(text, back = "#/recorded") {
  return h("div", { className: "row" }, back ? h("a", { href: back }, `← ${t("view.recorded")}`) : null, h("h1", { className: "break" }, visible(text)));
}

async function drawAll(container) {
  const found = await get("recorded");
  const section = (key, rows, draw) => h("section", { className: "column" }, h("h2", null, t(`recorded.${key}`)),
    rows.length ? h("ul", { className: "list card" }, rows.map((row) => h("li", null, draw(row)))) : h("p", { className: "soft" }, t(`recorded.no_${key}`)));
  fill(container, h("div", { className: "column" }, heading(t("view.recorded"), ""),
    found.runs.length ? section("runs", found.runs, (row) => h("a", { href: `#/recorded/run/${part(row.name)}` }, visible(row.name))) : null,
    found.files.length ? section("files", found.files, (row) => h("a", { href: `#/recorded/file/${part(row.name)}` }, visible(row.name))) : null,
    section("conversations", found.conversations, conversationRow)));
}

function conversationRow(row) {
  return h("a", { href: `#/recorded/conversation/${row.id}` },
    h("div", { className: "clip question-line" }, visible(row.title) || t("no_question")),
    h("div", { className: "soft small" }, [timeText(row.changed), row.model, t("messages.count", { count: row.messages })].join(" · ")));
}

async function drawConversation(container, id) {
  const { conversation, turns } = await get(`conversations/${part(id)}`);
  const boxes = turns.map(() => h("section", { className: "column turn-box" }));
  fill(container, h("div", { className: "column" }, heading(conversation.title),
    h("div", { className: "row" }, h("span", { className: "soft small" }, `${conversation.id} · ${timeText(conversation.begun)} · ${visible(conversation.model)}`),
      about.can_chat ? h("a", { className: "button push", href: `#/chat/${part(conversation.id)}` }, t("chat.go_on")) : null),
    boxes));
  turns.forEach((turn, place) => renderTurn(boxes[place], turn, { canCopy: true, canTry: true, address: `conversation/${part(id)}/${part(turn.id)}` }));
}

async function drawRun(container, name, [wanted, way]) {
  if (wanted) return drawOne(container, wanted, `run/${part(name)}`, `${part(wanted)}/${part(way)}`);
  const asked = new URLSearchParams(location.hash.split("?")[1]); // filters of an address, such as those in a report
  const chosen = Object.fromEntries(FILTERS.map((key) => [key, asked.get(key) ?? ""]));
  const filters = h("div", { className: "row filters" });
  const facts = h("p", { className: "soft small" });
  const list = paged((offset) => get(`runs/${part(name)}`, { ...chosen, text: search.value, offset, limit: PAGE }).then((found) => {
    fill(facts, [found.about.suite, found.about.model, found.about.started].filter(Boolean).join(" · "));
    drawFilters(found.filters);
    return { rows: found.rows, total: found.total };
  }), (row) => rowOf(row, `#/recorded/run/${part(name)}/${part(row.case)}/${part(row.way)}`));
  const search = searchBox(() => list.anew());

  function drawFilters(counts) {
    fill(filters, Object.keys(chosen).map((key) => h("label", { className: "row" }, t(`filter.${key}`), " ",
      h("select", { onchange: ({ target }) => { chosen[key] = target.value; list.anew(); } },
        h("option", { value: "" }, t("filter.all")),
        Object.entries(counts[key]).map(([value, number]) => h("option", { value, selected: chosen[key] === value }, `${visible(value)} (${count(number)})`))))));
  }

  fill(container, h("div", { className: "column" }, h("div", { className: "row" }, heading(name), h("span", { className: "push" }, search)), facts, filters, list.element));
  return list.anew();
}

async function drawFile(container, name, [id]) {
  if (id) return drawOne(container, name, `file/${part(name)}`, part(id));
  const only = h("select", { "aria-label": t("only.label"), onchange: () => list.anew() },
    ["", "calls", "repairs", "issues", "errors"].map((each) => h("option", { value: each }, t(`only.${each || "all"}`))));
  const list = paged((offset) => get(`files/${part(name)}`, { text: search.value, only: only.value, offset, limit: PAGE })
    .then((found) => ({ rows: found.turns, total: found.total })), (row) => rowOf(row, `#/recorded/file/${part(name)}/${part(row.id)}`));
  const search = searchBox(() => list.anew());
  fill(container, h("div", { className: "column" }, h("div", { className: "row" }, heading(name), h("span", { className: "push row" }, search, only)), list.element));
  return list.anew();
}

async function drawOne(container, title, list, place) {
  const address = `${list}/${place}`;
  const turn = await get(`turns/${part(address)}`);
  const box = h("div", { className: "column" });
  fill(container, h("div", { className: "column" }, heading(title, `#/recorded/${list}`), box));
  renderTurn(box, turn, { canCopy: true, canTry: true, address });
}

function searchBox(work) {
  return h("input", { type: "search", placeholder: t("search"), "aria-label": t("search"), oninput: settled(work, 250) });
}

/** Draw a list that is asked for page by page. */
function paged(ask, draw) {
  const total = h("p", { className: "soft small", role: "status" });
  const rows = h("ul", { className: "list card" });
  const more = h("button", { hidden: true, onclick: () => load(false) }, t("more"));
  let offset = 0;
  let asked = 0;

  async function load(isAnew) {
    const mine = ++asked;
    total.textContent = t("loading");
    const found = await ask(isAnew ? 0 : offset);
    if (mine !== asked) return;
    if (isAnew) fill(rows);
    offset = (isAnew ? 0 : offset) + found.rows.length;
    rows.append(...found.rows.map(draw));
    more.hidden = offset >= found.total;
    total.textContent = t("turns.count", { count: count(found.total) });
  }

  return { element: h("div", { className: "column" }, total, rows, more), anew: () => load(true) };
}
