/* A call beside the reply it stands in: what it is, where each value came from, what was mended, who allowed it, what came of it. */

import { fill, h } from "./dom.js";
import { count, has, seconds, t } from "./i18n.js";
import { beginning, readable, visible } from "./visible.js";

const SHOWN = 1200; // UTF-16 units of a result that are shown at once
const LINE = 120; // of what stands in a line
const UNBROKEN = 28; // of a word that may be broken
const GOOD = new Set(["ok", "handed over"]);
const BAD = new Set(["rejected", "failed", "error", "unknown"]);
const UNDER_WAY = new Set(["writing", "running", "waiting"]);
const SOURCES = { person: "good", result: "info", schema: "", system: "", assistant: "", trivial: "", invented: "warn" };

// What `by` of a call says where xmlcall itself refused it -> key of the words.
const BY_ITSELF = { "no person to ask": "call.no_person", "no answer in time": "call.no_answer", "no rule": "call.no_rule", "repeated too often": "call.repeated", "the tool changes": "call.tool_changes" };

/** Return the chip that says what came of a call, and of a denied one who denied it. */
export function outcomeChip(call, ties) {
  const { outcome } = call;
  const kind = GOOD.has(outcome) ? "good" : BAD.has(outcome) ? "bad" : UNDER_WAY.has(outcome) ? "info running" : "warn";
  return h("span", { className: `chip ${kind}` }, outcome === "denied" && call.by ? decided(call, ties) : t(`outcome.${outcome}`));
}

/** Return what a code means, in the chosen language. */
export const whyOf = (mark) => (has(`code.${mark.code}`) ? t(`code.${mark.code}`) : mark.why);

/** Draw a repair or an issue: where it is, what it means, and last the code by which documents name it. */
export function markLine(mark, where = "") {
  return [where ? [h("code", null, visible(where)), ": "] : null, whyOf(mark), " ", h("code", { className: "soft small" }, mark.code)];
}

/** Draw a call.
 *  @param {object} call a CallRecord
 *  @param {{onPoint(value|null, scrolls), opened: Set<string>, isInside?: boolean, isYours?: boolean, isRead?: boolean}} ties shows a
 *    value's places; remembers what was folded open; whether the call's name stands around it already, whether the person who looks
 *    is the one who asked, and whether the call was only read and never meant to run */
export function callCard(call, ties) {
  const target = call.server ? `${call.server}.${call.tool}` : call.name;
  const head = ties.isInside ? null : h("div", { className: "row" },
    h(ties.isRead ? "h2" : "h3", { className: "mono break" }, visible(target)), ties.isRead && call.outcome === "not started" ? null : outcomeChip(call, ties),
    call.seconds !== null ? h("span", { className: "soft small" }, seconds(call.seconds)) : null,
    h("span", { className: "soft small push" }, call.dialect));
  return h("article", { className: ties.isInside ? "call-inside" : "card call", "aria-label": t("call.label", { name: target }) },
    h("div", { className: "pad column" }, head, approval(call, ties), issues(call), values(call, ties), repairs(call), changed(call), result(call, ties)));
}

/** Return who allowed a call; null if nobody did. */
export function whoAllowed(call, ties) {
  return call.by && call.outcome !== "denied" ? h("span", { className: "small break who" }, decided(call, ties)) : null;
}

function decided(call, ties) {
  const isDenied = call.outcome === "denied";
  if (isDenied && Object.hasOwn(BY_ITSELF, call.by)) return t(BY_ITSELF[call.by]);
  const isYou = ties.isYours && (call.by === "person" || call.by === "person, always");
  const key = isYou ? (isDenied ? "call.denied_you" : call.by === "person" ? "call.allowed_you" : "call.allowed_always") : isDenied ? "call.denied_by" : "call.allowed_by";
  return t(key, { who: visible(call.by) });
}

/** Return the arguments of a call in a line; of a single one the value alone. Nothing for a call that could not be read. */
export function shortArguments(call) {
  const given = call.ran_with ?? call.arguments;
  return given ? `(${inLine(given)})` : "";
}

/** Return the beginning of a result in a line, without the punctuation of JSON where it is a plain object. */
export function shortResult(call) {
  let data = null;
  try {
    data = call.result.length < SHOWN ? JSON.parse(call.result) : null;
  } catch {
    data = null; // a text
  }
  return typeof data === "object" && data && !Array.isArray(data) ? inLine(data) : visible(cut(call.result.trim().replace(/\s+/g, " ")));
}

const cut = (text) => (text.length > LINE ? `${beginning(text, LINE)} …` : text);

function inLine(values) {
  const names = Object.keys(values);
  const text = (name) => cut(JSON.stringify(values[name]) ?? "");
  return visible(cut(names.length === 1 ? text(names[0]) : names.map((name) => `${name}: ${text(name)}`).join(", ")));
}

function approval(call, ties) {
  if (!call.by && !call.reason && !call.failure) return null;
  return h("div", { className: "small break" }, ties.isInside ? null : whoAllowed(call, ties),
    call.reason ? h("div", { className: "soft" }, call.outcome === "held" ? t("call.held", { values: visible(call.reason.split(", ").map(nameOf).join(", ")) }) : visible(call.reason)) : null,
    call.failure ? h("div", { className: "error" }, visible(call.failure)) : null);
}

function issues(call) {
  if (!call.issues.length) return null;
  return h("ul", { className: "marks bad", "aria-label": t("call.issues") }, call.issues.map((issue) => h("li", null,
    markLine(issue, issue.path !== "$" && !whyOf(issue).includes(`'${nameOf(issue.path)}'`) ? nameOf(issue.path) : ""),
    issue.expected ? h("div", { className: "small" }, `${t("issue.expected")} `, h("code", null, visible(issue.expected))) : null,
    issue.got ? h("div", { className: "small" }, `${t("issue.got")} `, h("code", null, visible(issue.got))) : null,
    issue.readings.map((reading) => h("pre", { className: "reading" }, visible(reading))),
    issue.told && whyOf(issue) !== issue.told ? h("details", { className: "small" }, h("summary", null, t("issue.told")), visible(issue.told)) : null)));
}

function values(call, ties) {
  if (!call.values.length) return call.arguments ? h("div", { className: "soft small" }, t("call.no_arguments")) : null;
  return h("div", { className: "scroll" }, h("table", { className: "values" },
    h("thead", null, h("tr", null, h("th", null, t("value.path")), h("th", null, t("value.value")), h("th", null, t("value.source")))),
    h("tbody", null, call.values.map((value) => valueRow(value, ties)))));
}

function valueRow(value, ties) {
  const point = (scrolls) => () => ties.onPoint(value, scrolls);
  const show = h("button", { className: "plain path mono", onclick: point(true), onfocus: point(false), onblur: () => ties.onPoint(null, false),
    title: t("value.show") }, visible(nameOf(value.path)));
  return h("tr", { onmouseenter: point(false), onmouseleave: () => ties.onPoint(null, false) },
    h("td", null, show),
    h("td", { className: "mono" }, value.repairs.length ? h("span", { className: "repair", title: value.repairs.join(", "), role: "img", "aria-label": t("repair") }, "◆") : null, valueText(value.value)),
    h("td", null, sourceChip(value.source, ties)));
}

/** Return the name of a place in arguments, without the sign of their root. */
const nameOf = (path) => path.replace(/^\$\.?/, "") || path;

function valueText(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const short = beginning(text, 400);
  const isLong = short.split(/\s/).some((word) => word.length > UNBROKEN);
  return [h("span", { className: `${typeof value === "string" ? "string" : "literal"}${isLong ? " break" : ""}` }, visible(short)),
    short.length < text.length ? h("span", { className: "soft" }, ` … ${t("characters", { count: count(text.length) })}`) : null];
}

function sourceChip(source, ties) {
  if (!source) return h("span", { className: "soft" }, "–");
  const what = { number: source.call ?? "", tool: visible(source.tool ?? "") };
  const kind = { result: source.call === null ? "some_result" : "result", person: ties.isYours ? "you" : "person" }[source.kind];
  const key = `source.${kind ?? source.kind}`;
  if (source.may_be_translation) return h("span", { className: "chip" }, t(ties.isYours ? "source.translation_you" : "source.translation", { otherwise: t(key, what) }));
  return h("span", { className: `chip ${SOURCES[source.kind] ?? ""}` }, t(key, what));
}

function repairs(call) {
  if (!call.repairs.length) return null;
  return h("ul", { className: "marks warn", "aria-label": t("call.repairs") }, call.repairs.map((repair) => h("li", null, markLine(repair, repair.path ? nameOf(repair.path) : ""))));
}

function changed(call) {
  if (!call.ran_with) return null;
  return h("div", { className: "small" }, h("strong", null, t("call.ran_with")),
    h("pre", { className: "result" }, visible(JSON.stringify(call.ran_with, null, 2))));
}

function result(call, ties) {
  if (call.result === null) return null;
  const key = `result ${call.id}`;
  const text = h("pre", { className: "result", tabIndex: 0, "aria-label": t("call.result") });
  const whole = readable(call.result);
  const more = h("button", { onclick: () => { ties.opened.add(key); draw(); } });
  function draw() {
    const isShort = whole.length > SHOWN && !ties.opened.has(key);
    fill(text, isShort ? `${beginning(whole, SHOWN)} …` : whole);
    more.hidden = !isShort;
    more.textContent = t("show.all", { count: count(call.result_size || whole.length) });
  }
  draw();
  return h("div", null, h("div", { className: "small soft" }, t("call.result")), text, more);
}
