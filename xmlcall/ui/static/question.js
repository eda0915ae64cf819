/* The question before a call runs, and what servers ask of a person.

   Everything about the call is shown in full, as in the terminal. The focus goes to the card, not to "yes": a key that was meant for
   something else must not allow a call. Letters answer only while the card itself has the focus. */

import { post } from "./api.js";
import { callCard } from "./call_card.js";
import { changes, difference } from "./diff.js";
import { fill, h, menu } from "./dom.js";
import { has, t } from "./i18n.js";
import { escapedJson, visible } from "./visible.js";

const KEYS = { y: "yes", n: "no", e: "edit", a: "always", w: "with", s: "stop" };
const TIES = { opened: new Set(), onPoint() {}, isInside: true, isYours: true };

/** Draw a question. @param {object} data of the event `question` @returns {{element, call}} call: its id */
export function questionCard(data) {
  const problem = h("p", { className: "error", role: "alert", hidden: true });
  const text = h("textarea", { className: "mono", rows: 6, spellcheck: "false", "aria-label": t("ask.edit"), value: escapedJson(JSON.stringify(data.call.arguments ?? {}, null, 2)) });
  const reason = h("input", { className: "reason", "aria-label": t("ask.reason"), placeholder: t("ask.reason"), onkeydown: (event) => event.key === "Enter" && !event.isComposing && answer("no") });
  const button = (name, kind, work = () => answer(name)) => h("button", { className: kind, onclick: work }, t(`ask.${name}`));
  const back = () => h("button", { className: "large", onclick: () => show(first) }, t("ask.cancel"));
  const first = h("div", { className: "row ask-buttons" }, button("yes", "main large"), button("no", "large", () => show(denying, reason)),
    menu(t("ask.more"), button("edit", "", () => show(editing, text)), button("with", ""), button("always", ""), button("stop", "danger")),
    h("span", { className: "soft small keys-hint" }, t("ask.keys")));
  const denying = h("div", { className: "row ask-buttons", hidden: true }, reason, button("deny", "large", () => answer("no")), back());
  const editing = h("div", { className: "column ask-buttons", hidden: true }, text, h("div", { className: "row" }, button("run_edited", "main large", runEdited), back()));
  const steps = [first, denying, editing];
  const element = h("section", { className: "card ask", role: "group", tabIndex: -1, "aria-label": `${t("ask.title")} ${visible(data.target)}`, onkeydown: onKey },
    h("div", { className: "pad column" }, h("h2", null, t("ask.title"), " ", h("span", { className: "mono" }, visible(data.target))), warnings(data)),
    callCard(data.call, TIES), h("div", { className: "pad column ask-end" }, tellChanges(data), problem), steps);

  /** Show what a step of the answer needs: the buttons, the reason of a no, or the arguments. */
  function show(step, focus = element) {
    for (const each of steps) each.hidden = each !== step;
    focus.focus();
  }

  async function answer(name, more = {}) {
    try {
      await post(`questions/${encodeURIComponent(data.id)}`, { answer: name, ...(name === "no" && reason.value ? { reason: reason.value } : {}), ...more });
    } catch (error) {
      if (error.status !== 409) tell([error.message, ...(error.data?.problems ?? [])].join("\n")); // 409: another page was first
    }
  }

  function tell(message) {
    problem.hidden = false;
    problem.textContent = message;
  }

  function runEdited() {
    try {
      answer("edit", { arguments: JSON.parse(text.value) });
    } catch (error) {
      tell(error.message);
    }
  }

  function onKey(event) {
    if (event.key === "Escape" && first.hidden) {
      event.stopPropagation();
      show(first);
    }
    if (event.target !== element || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS) || first.hidden) return;
    event.preventDefault();
    const steps = { edit: () => show(editing, text), no: () => show(denying, reason) };
    const name = KEYS[event.key];
    (steps[name] ?? (() => answer(name)))();
  }

  return { element, call: data.call.id };
}

function warnings(data) {
  const tool = data.tool ?? {};
  const told = [
    tool.annotations?.destructiveHint ? t("ask.destructive") : "",
    ...(data.unsaid?.length ? [t("ask.unsaid", { names: visible(data.unsaid.join(", ")) })] : []),
    ...Object.entries(data.foreign ?? {}).map(([path, server]) => t(server ? "ask.foreign" : "ask.unsaid_place", { path: visible(path), server: visible(server) })),
    data.repairs?.length && !data.call.repairs?.length ? t("ask.repairs", { codes: data.repairs.join(", ") }) : "",
    data.times_in_a_row > 1 ? t("ask.times", { count: data.times_in_a_row }) : "",
    data.definition_before ? t("ask.changed") : "",
  ].filter(Boolean);
  return [
    tool.title || tool.description ? h("p", { className: "soft break" }, visible([tool.title, tool.description].filter(Boolean).join(": ").slice(0, 600))) : null,
    told.length ? h("ul", { className: "marks warn" }, told.map((each) => h("li", null, each))) : null,
    data.definition_before ? difference(data.definition_before, data.definition_now ?? "") : null,
  ];
}

function tellChanges(data) {
  if (!data.changes?.length) return null;
  return h("details", { className: "fold", open: true }, h("summary", null, t("ask.changes")), changes(data.changes));
}

/** Draw what a server asks of the person. @param {object} data of the event `request` @returns {{element, answered(answer)}} */
export function requestCard(data) {
  const server = visible(data.server ?? "");
  const problem = h("p", { className: "error", role: "alert", hidden: true });
  const buttons = h("div", { className: "row" });
  const fields = (data.fields ?? []).map(fieldOf);
  const title = { completion: "ask.completion", reply: "ask.reply", address: "ask.address" }[data.kind] ?? "ask.server";

  async function answer(name) {
    const given = Object.fromEntries(fields.map((field) => [field.name, field.value()]).filter(([, value]) => value !== undefined));
    try {
      await post(`questions/${encodeURIComponent(data.id)}`, name === "yes" && data.kind === "form" ? { answer: name, arguments: given } : { answer: name });
    } catch (error) {
      problem.hidden = false;
      problem.textContent = [error.message, ...(error.data?.problems ?? [])].join("\n");
    }
  }

  fill(buttons, h("button", { className: "main large", onclick: () => answer("yes") }, t("ask.accept")), h("button", { className: "large", onclick: () => answer("no") }, t("ask.decline")),
    h("button", { className: "danger push", onclick: () => answer("stop") }, t("ask.stop")));
  const element = h("section", { className: "card ask", role: "group", tabIndex: -1, "aria-label": t(title, { server }) }, h("div", { className: "pad column" },
    h("h2", null, t(title, { server })), h("p", { className: "break" }, visible(data.message ?? data.text ?? "")),
    (data.messages ?? []).map((each) => h("pre", { className: "result" }, visible(`${each.role}: ${each.content}`))),
    data.url ? h("p", { className: "mono break" }, visible(data.url), data.host ? ` (${visible(data.host)})` : "") : null,
    fields.map((field) => field.element), problem, buttons));
  const answered = (name) => fill(element, h("p", { className: "small soft" }, `${t(title, { server })}: ${has(`ask.was_${name}`) ? t(`ask.was_${name}`) : name}`)).classList.add("over");
  return { element, answered };
}

function fieldOf(field) {
  const isChoice = field.kind === "choice" || field.kind === "choices";
  const input = isChoice
    ? h("select", { multiple: field.kind === "choices" }, field.options.map(([value, title]) => h("option", { value, selected: [field.default].flat().includes(value) }, visible(title))))
    : h("input", { type: field.kind === "boolean" ? "checkbox" : ["number", "integer"].includes(field.kind) ? "number" : "text", step: field.kind === "integer" ? 1 : "any",
      checked: field.default === true, value: typeof field.default === "boolean" ? undefined : (field.default ?? undefined) });
  const value = {
    boolean: () => input.checked,
    number: () => (input.value === "" ? undefined : Number(input.value)),
    choices: () => [...input.selectedOptions].map((each) => each.value),
  };
  value.integer = value.number;
  return {
    name: field.name,
    value: value[field.kind] ?? (() => (input.value === "" ? undefined : input.value)),
    element: h("label", { className: "column" }, visible(`${field.title || field.name}${field.is_required ? " *" : ""}`), input,
      field.description ? h("span", { className: "small" }, visible(field.description)) : null),
  };
}
