/* The turns of the running program, newest first, as they come.

   The server keeps the newest few hundred turns; here the rows of those that are asked for stay, at most MOST, so that a page that
   is left open does not grow. A row is drawn again when its turn changes, at most a few times a second. */

import { get } from "./api.js";
import { about, listen } from "./app.js";
import { outcomeText, secondsOf } from "./turn.js";
import { fill, h, settled } from "./dom.js";
import { count, share, t, timeText, wayText } from "./i18n.js";
import { beginning, visible } from "./visible.js";

const PAGE = 100;
const MOST = 300; // rows
const ONLY = ["", "calls", "repairs", "issues", "errors"];

export function mount(container) {
  const rows = new Map(); // id -> {data, element}
  const list = h("ul", { className: "list card", "aria-label": t("view.live"), onkeydown: onKey });
  const empty = h("p", { className: "empty" });
  const more = h("button", { hidden: true, onclick: () => load(false) }, t("more"));
  const search = h("input", { type: "search", placeholder: t("search"), "aria-label": t("search"), oninput: settled(() => load(true), 200) });
  const only = h("select", { "aria-label": t("only.label"), onchange: () => load(true) }, ONLY.map((each) => h("option", { value: each }, t(`only.${each || "all"}`))));
  let asked = 0;

  fill(container, h("div", { className: "column" }, h("div", { className: "row" }, h("h1", null, t("view.live")), h("span", { className: "push row" }, search, only)), list, empty, more));

  async function load(isAnew) {
    const mine = ++asked;
    const before = isAnew ? "" : [...rows.keys()].at(-1);
    const found = await get("turns", { text: search.value, only: only.value, before, limit: PAGE });
    if (mine !== asked) return;
    if (isAnew) {
      rows.clear();
      fill(list);
    }
    for (const data of found.turns) put(data, false);
    more.hidden = !found.more || rows.size >= MOST;
    sayEmpty();
  }

  function put(data, isFirst) {
    const kept = rows.get(data.id);
    const element = rowOf(data);
    if (kept) {
      const hadFocus = kept.element.contains(document.activeElement);
      kept.element.replaceWith(element);
      if (hadFocus) element.firstChild.focus();
      rows.set(data.id, { data, element });
      return;
    }
    if (isFirst) list.prepend(element);
    else list.append(element);
    rows.set(data.id, { data, element });
    if (isFirst) trim();
  }

  function trim() {
    while (rows.size > MOST) {
      const last = list.lastElementChild;
      rows.delete(last.dataset.id);
      last.remove();
    }
  }

  function sayEmpty() {
    empty.hidden = rows.size > 0;
    empty.textContent = search.value || only.value ? t("live.none") : t(about.can_chat ? "live.empty_chat" : "live.empty");
  }

  function matches(data) {
    if (search.value) return false; // the server searches: ask it
    return { "": true, calls: data.calls.length > 0, repairs: data.repairs.length > 0, issues: data.issues.length > 0 }[only.value] ?? Boolean(data.error);
  }

  const anew = settled(() => load(true), 400);

  function onEvent(name, data) {
    if (name === "again") return load(true);
    if (name !== "turn") return undefined;
    if (rows.has(data.id)) put(data, false);
    else if (matches(data)) put(data, true);
    else if (search.value) anew();
    return sayEmpty();
  }

  function onKey(event) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!step) return;
    const links = [...list.querySelectorAll("a")];
    const next = links[links.indexOf(document.activeElement) + step];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }

  function onPageKey(event) {
    const isFree = !event.target.closest?.("input, textarea, select, dialog, a");
    if (isFree && ["j", "ArrowDown"].includes(event.key) && list.firstElementChild) list.querySelector("a").focus();
  }

  addEventListener("keydown", onPageKey);
  const forget = listen(onEvent);
  load(true).catch((error) => fill(empty, error.message));
  return { unmount() { forget(); removeEventListener("keydown", onPageKey); } };
}

/** Draw the line of a turn; views of recorded turns use it, too. */
export function rowOf(data, href = `#/turn/${encodeURIComponent(data.id)}`) {
  const chips = [
    ...data.calls.slice(0, 4).map((call) => h("span", { className: `chip mono ${["rejected", "failed", "error"].includes(call.outcome) ? "bad" : "info"}` }, visible(beginning(call.name, 40)))),
    data.calls.length > 4 ? h("span", { className: "chip" }, `+${data.calls.length - 4}`) : null,
    data.repairs.length ? h("span", { className: "chip warn", title: data.repairs.join(", ") }, `◆ ${t("repairs.count", { count: data.repairs.length })}`) : null,
    data.issues.length ? h("span", { className: "chip bad", title: data.issues.join(", ") }, t("issues.count", { count: data.issues.length })) : null,
    data.verdict ? h("span", { className: "chip bad" }, data.verdict) : null,
  ];
  const outcome = data.outcome || "running";
  const isGood = ["end", "tool_calls", "stop"].includes(outcome);
  const facts = [
    data.began ? timeText(data.began, { timeStyle: "medium" }) : null, visible(data.client), data.model, data.way ? wayText(data.way) : "",
    ...secondsOf(data),
    data.prompt_tokens !== null ? t("tokens.read", { count: count(data.prompt_tokens) }) : null,
    data.completion_tokens ? t("tokens.written", { count: count(data.completion_tokens) }) : null,
    data.cached_tokens !== null ? `${t("cached")} ${share(data.cached_tokens, data.prompt_tokens)}` : null,
    data.replies > 1 ? t("replies.count", { count: data.replies }) : null,
  ].filter(Boolean);
  return h("li", { data: { id: data.id } }, h("a", { href },
    h("div", { className: "row" },
      h("span", { className: `chip ${outcome === "running" ? "info running" : isGood ? "good" : "bad"}` }, outcomeText(outcome, data.source)),
      h("span", { className: "clip question-line" }, visible(beginning(data.question, 160)) || t("no_question")),
      h("span", { className: "row push" }, chips)),
    h("div", { className: "soft small break" }, facts.join(" · ")),
    data.error ? h("div", { className: "small clip bad-text" }, visible(data.error)) : null));
}
