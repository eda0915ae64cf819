/* A turn as a person reads it: the question, each call with what is asked about it, the answer, and what is waited for. How it was
   read is drawn on demand.

   What has not changed stays in the document, so that a question keeps the focus while the turn goes on around it. */

import { callCard, outcomeChip, shortArguments, shortResult, whoAllowed, whyOf } from "./call_card.js";
import { h, keep } from "./dom.js";
import { count, has, seconds, t } from "./i18n.js";
import { markdown } from "./markdown.js";
import { questionCard } from "./question.js";
import { outcomeText, renderTurn } from "./turn.js";
import { readable, visible } from "./visible.js";

const TIES = { isYours: true, isInside: true, onPoint() {} };

/** Draw a turn.
 *  @param {object} turn a TurnRecord
 *  @param {{onRegenerate(turn), onEdit(turn), onAnswered()}} ties what its buttons do; without them it has none
 *  @returns {{element, update(record), ask(question), answered(id), waits(event), remove()}} */
export function turnView(turn, ties) {
  const question = h("div", { className: "question break" });
  const body = h("div", { className: "column answer" });
  const inside = h("div", { className: "column", hidden: true });
  const inspect = h("button", { className: "plain", "aria-expanded": "false", onclick: toggleInside }, t("chat.inspect"));
  const again = h("button", { className: "plain", onclick: () => ties.onRegenerate(shown) });
  const buttons = h("div", { className: "row turn-buttons", hidden: true }, ties.onRegenerate ? [again,
    h("button", { className: "plain", onclick: () => ties.onEdit(shown) }, t("chat.edit")), inspect] : null);
  const element = h("section", { className: "chat-turn column", data: { turn: turn.id } }, question, body, buttons, inside);
  const life = lifeLine();
  const drawn = new Map(); // key -> what it was drawn from, and the element
  const cards = new Map(); // id of a question -> its card
  const opened = new Set();
  let shown = turn;
  let full = null;

  function toggleInside() {
    inside.hidden = !inside.hidden;
    inspect.setAttribute("aria-expanded", String(!inside.hidden));
    drawInside();
    if (!inside.hidden) buttons.scrollIntoView({ block: "start" });
  }

  function drawInside() {
    if (inside.hidden) return;
    if (full) full.update(shown);
    else full = renderTurn(inside, shown, { isCompact: true, canTry: true, canCopy: true });
  }

  /** Return what was drawn from the same, or draw it. */
  function kept(key, from, draw) {
    const old = drawn.get(key);
    if (old?.from === from) return old.element;
    const next = { from, element: draw() };
    drawn.set(key, next);
    return next.element;
  }

  function partsOf(reply) {
    const text = textOf(reply).trim();
    const calls = reply.calls.map((call) => cardOf(call) ?? kept(`call ${reply.number} ${call.index}`, JSON.stringify(call), () => callLine(call, opened)));
    return [text ? kept(`text ${reply.number}`, text, () => markdown(text)) : null, ...calls];
  }

  const cardOf = (call) => [...cards.values()].find((card) => card.call === call.id)?.element ?? null;

  function draw() {
    if (shown.question) keep(question, [kept("question", shown.question, () => h("span", null, readable(shown.question)))]);
    question.hidden = !shown.question;
    const parts = shown.replies.filter((reply) => reply.is_kept).flatMap(partsOf).filter(Boolean);
    const others = [...cards.values()].map((card) => card.element).filter((each) => !parts.includes(each));
    const isOver = Boolean(shown.outcome);
    life.show(cards.size ? null : doingOf(shown));
    keep(body, [...parts, ...others, life.element.hidden ? null : life.element,
      shown.error ? kept("error", shown.error, () => h("p", { className: "error" }, visible(shown.error))) : null,
      isOver && shown.outcome !== "end" && !shown.error ? kept("outcome", shown.outcome, () => h("p", { className: "small soft" }, endingText(shown))) : null]);
    again.textContent = t(shown.outcome === "error" ? "chat.ask_again" : "chat.regenerate");
    buttons.hidden = !isOver;
    drawInside();
  }

  draw();
  return {
    element,
    update(next) { shown = next; draw(); },
    ask(data) {
      if (cards.has(data.id)) return null;
      const card = questionCard(data);
      cards.set(data.id, card);
      draw();
      return card.element;
    },
    answered(id) {
      const hadFocus = cards.get(id)?.element.contains(document.activeElement);
      if (!cards.delete(id)) return;
      draw();
      if (hadFocus) ties.onAnswered();
    },
    waits(event) { life.waits(event); },
    remove() { life.end(); element.remove(); },
  };
}

/** Draw what is waited for, with the seconds since then. */
function lifeLine() {
  const element = h("p", { className: "soft life running", hidden: true });
  let doing = null; // key of the words, and values in them
  let waited = null; // what the program says that the model is waited for
  let since = 0;
  let timer = 0;

  function draw() {
    const isModel = doing.key === "life.waiting";
    const words = isModel && waited?.for === "prompt" ? t("life.reading", { read: count(waited.read), total: count(waited.total) })
      : t(isModel && waited?.for === "turn" ? "life.queued" : doing.key, doing.values);
    const gone = Math.floor((performance.now() - since) / 1000);
    element.textContent = gone > 0 ? t("life.seconds", { text: words, seconds: gone }) : words;
  }

  function end() {
    clearInterval(timer);
    timer = 0;
  }

  return {
    element,
    show(next) {
      element.hidden = !next;
      if (doing?.key === "life.waiting" && next?.key !== doing.key) waited = null;
      if (next?.key !== doing?.key) since = next?.key === "life.waiting" && waited ? waited.since : performance.now();
      doing = next;
      if (!next) return end();
      draw();
      if (!timer) timer = setInterval(draw, 1000);
      return undefined;
    },
    waits(event) {
      waited = event;
      if (doing?.key !== "life.waiting") return;
      since = Math.min(since, event.since);
      draw();
    },
    end,
  };
}

/** Return what a turn does at this moment that nothing else shows; null where something does, and after its end. */
export function doingOf(turn) {
  if (turn.outcome) return null;
  const last = turn.replies.at(-1);
  const running = last?.calls.find((call) => call.outcome === "running" || call.outcome === "waiting");
  if (running) return { key: "life.running", values: { name: visible(running.name) } };
  if (!last || last.finish_reason || !last.raw) return { key: "life.waiting", values: {} };
  if (last.calls.some((call) => call.outcome === "writing")) return { key: "life.writing_call", values: {} };
  return textOf(last).trim() ? null : { key: "life.writing", values: {} };
}

/** Return in a sentence why a turn has no whole answer, and what helps. */
const endingText = (turn) => (has(`over.${turn.outcome}`) ? t(`over.${turn.outcome}`) : outcomeText(turn.outcome, turn.source));

/** Return the text of a reply that is for a person. */
function textOf(reply) {
  if (!reply.spans.some((span) => span.kind !== "text")) return reply.raw;
  const characters = Array.from(reply.raw);
  return reply.spans.filter((span) => span.kind === "text").map((span) => characters.slice(span.start, span.end).join("")).join("");
}

/** Draw a call in a line: its arguments, who allowed it, and what came of it; all else below, on demand. */
function callLine(call, opened) {
  const key = `line ${call.id}`;
  const target = call.server ? `${call.server}.${call.tool}` : call.name;
  const inside = h("div", null);
  const draw = () => {
    if (details.open) opened.add(key);
    else opened.delete(key);
    keep(inside, details.open ? [callCard(call, { ...TIES, opened })] : []);
  };
  const details = h("details", { className: "call-line card", open: opened.has(key), ontoggle: draw }, h("summary", null,
    h("span", { className: "call-head mono" }, h("strong", null, visible(target)), shortArguments(call)),
    call.result === null ? null : h("span", { className: "call-result mono" }, `→ ${shortResult(call)}`),
    call.issues.length ? h("span", { className: "call-result" }, call.issues.map(whyOf).join(" ")) : null,
    h("span", { className: "row call-facts" }, outcomeChip(call, TIES), whoAllowed(call, TIES), call.seconds !== null ? h("span", { className: "soft small" }, seconds(call.seconds)) : null,
      call.repairs.length ? h("span", { className: "chip warn" }, `◆ ${t("repairs.count", { count: call.repairs.length })}`) : null)), inside);
  return details;
}
