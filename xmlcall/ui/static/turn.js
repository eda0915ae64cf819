/* One turn: facts, and for each reply the prompt, the raw text beside its calls.

   While a reply is written, `delta` adds to its text; all else is drawn again from the record, which is small beside it. What a
   person has folded open stays so. */

import { get } from "./api.js";
import { go } from "./app.js";
import { callCard, markLine } from "./call_card.js";
import { copy, fill, h, menu } from "./dom.js";
import { count, has, seconds, share, t, timeText, wayText } from "./i18n.js";
import { renderPrompt } from "./prompt_view.js";
import { legend, renderSpans } from "./spans.js";
import { visible } from "./visible.js";

/** Draw a turn.
 *  @param {Element} container filled by this alone
 *  @param {object} record a TurnRecord
 *  @param {{canCopy?: boolean, canTry?: boolean, isCompact?: boolean, address?: string}} [options] address: of a recorded turn
 *  @returns {{update(record), delta(delta)}} */
export function renderTurn(container, record, options = {}) {
  const facts = h("div", { className: "turn-facts" });
  const question = h("blockquote", { className: "question break" });
  const error = h("p", { className: "error", role: "alert", hidden: true });
  const replies = h("div", { className: "column" });
  const views = [];
  let shown = record;
  fill(container, options.isCompact ? null : [facts, question, error], legend(), replies);

  function draw() {
    fill(facts, factsOf(shown));
    fill(question, visible(shown.question));
    question.hidden = !shown.question;
    error.hidden = !shown.error;
    error.textContent = visible(shown.error);
    shown.replies.forEach((reply, place) => {
      if (views[place]) return views[place].update(reply);
      const section = h("section", { className: "reply" });
      replies.append(section);
      views[place] = renderReply(section, reply, { ...options, isYours: shown.source === "chat" || shown.source === "conversation", address: options.address ?? shown.id });
    });
    while (views.length > shown.replies.length) {
      views.pop();
      replies.lastChild.remove();
    }
  }

  draw();
  return {
    update(next) { shown = next; draw(); },
    delta(delta) {
      const place = shown.replies.findIndex((reply) => reply.number === delta.reply);
      if (place < 0) return;
      const old = shown.replies[place];
      const spans = [...old.spans.filter((span) => span.start < delta.from_span), ...delta.spans];
      const reply = { ...old, ...delta.rest, raw: old.raw + delta.raw, spans };
      shown = { ...shown, replies: shown.replies.with(place, reply) };
      views[place].update(reply);
    },
  };
}

/** Return what is known of a turn, as chips. */
export function factsOf(turn) {
  const chip = (text, kind = "") => (text ? h("span", { className: `chip ${kind}` }, text) : null);
  const outcome = turn.outcome || "running";
  const isGood = ["end", "tool_calls", "stop"].includes(outcome);
  return [
    h("span", { className: `chip ${outcome === "running" ? "info running" : isGood ? "good" : "bad"}` }, outcomeText(outcome, turn.source)),
    chip(turn.verdict ? `${t("verdict")}: ${turn.verdict}` : "", "bad"),
    chip(turn.model), chip([turn.way ? wayText(turn.way) : "", turn.dialect].filter(Boolean).join(" · ")), chip(visible(turn.client)),
    turn.began ? h("span", { className: "soft small" }, timeText(turn.began)) : null,
    h("span", { className: "soft small" }, secondsOf(turn).join(" · ")),
  ];
}

/** Return the times of a turn that are known, in words. */
export function secondsOf(turn) {
  return [["first_token", turn.first_token_seconds], ["whole", turn.seconds]].filter(([, value]) => (value ?? null) !== null).map(([key, value]) => `${t(key)} ${seconds(value)}`);
}

/** Return in words how a turn ended. @param {string} source of the turn: who leaves a chat is the person, who stops it */
export function outcomeText(outcome, source = "") {
  if (outcome === "left" && (source === "chat" || source === "conversation")) return t("end.stopped");
  return has(`end.${outcome}`) ? t(`end.${outcome}`) : visible(outcome);
}

function renderReply(section, reply, options) {
  const head = h("div", { className: "row reply-head" });
  const notes = h("div", null);
  const prompt = h("div", null);
  const raw = h("div", { className: "raw-box" });
  const calls = h("div", { className: "calls column" });
  const columns = h("div", { className: "reply-columns" }, raw, calls);
  fill(section, head, notes, prompt, columns);
  const promptView = renderPrompt(prompt, reply);
  const spans = renderSpans(raw, reply);
  const ties = { opened: new Set(), onPoint, isYours: options.isYours };
  let shown = reply;
  let drawnCalls = "";
  let drawnHead = "";
  let pinned = null; // what was clicked stays marked: the page scrolls, and the mouse is elsewhere then

  function onPoint(pointed, scrolls) {
    if (scrolls) pinned = pointed;
    const value = pointed ?? pinned;
    spans.unmark();
    promptView.unmark();
    if (!value) return;
    const source = value.source;
    if (source && source.message !== null) promptView.mark(source.message, source.start, source.end, scrolls);
    if (value.start !== null) spans.mark(value.start, value.end, scrolls);
  }

  function draw() {
    const facts = JSON.stringify({ ...shown, raw: "", spans: [], prompt: [], calls: [] });
    if (facts !== drawnHead) fill(head, headOf(shown, options)); // an open menu stays open while the reply is written
    drawnHead = facts;
    fill(notes, notesOf(shown));
    const now = JSON.stringify(shown.calls);
    if (now === drawnCalls) return;
    drawnCalls = now;
    columns.classList.toggle("without-calls", shown.calls.length === 0);
    fill(calls, shown.calls.map((call) => callCard(call, ties)));
  }

  draw();
  return { update(next) { shown = next; promptView.update(next); spans.update(next); draw(); } };
}

function headOf(reply, options) {
  const facts = [
    has(`finish.${reply.finish_reason}`) ? t(`finish.${reply.finish_reason}`) : reply.finish_reason && t("finish", { reason: reply.finish_reason }),
    reply.completion_tokens !== null ? t("tokens", { count: count(reply.completion_tokens) }) : null,
    reply.cached_tokens !== null ? `${t("cached")} ${share(reply.cached_tokens, reply.prompt_tokens)}` : null,
    reply.seconds !== null ? seconds(reply.seconds) : null,
  ].filter(Boolean);
  return [
    h("h2", null, t("reply", { number: reply.number })),
    reply.finish_reason ? null : h("span", { className: "chip info running" }, t("writing")),
    reply.is_kept ? null : h("span", { className: "chip warn" }, t("not_kept")),
    h("span", { className: "soft small" }, facts.join(" · ")),
    h("span", { className: "push row" }, buttonsOf(reply, options)),
  ];
}

function buttonsOf(reply, options) {
  const copied = (name, text) => h("button", { className: "copies", onclick: ({ currentTarget }) => text().then((each) => copy(each, currentTarget, t("copied"))) }, t(`copy.${name}`));
  const from = (kind) => () => get(`turns/${encodeURIComponent(options.address)}/copy`, { as: kind, reply: reply.number });
  return [
    options.canTry ? h("button", { onclick: () => go(`try/${encodeURIComponent(options.address)}/${reply.number}`) }, t("try.this")) : null,
    menu(t("copy.menu"), copied("raw", async () => reply.raw), options.canCopy ? ["corpus", "curl", "bench"].map((kind) => copied(kind, from(kind))) : null),
  ];
}

function notesOf(reply) {
  const outside = reply.repairs.filter((repair) => !reply.calls.some((call) => call.repairs.some((each) => each.code === repair.code)));
  return [
    reply.refusal ? h("p", { className: "error" }, t(`refusal.${reply.refusal}`)) : null,
    reply.reasoning ? h("details", { className: "fold" }, h("summary", null, t("reasoning.apart")), h("pre", { className: "message-text" }, visible(reply.reasoning))) : null,
    outside.length ? h("ul", { className: "marks warn" }, outside.map((repair) => h("li", null, markLine(repair)))) : null,
  ];
}
