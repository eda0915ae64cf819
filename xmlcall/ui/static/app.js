/* The frame: header, language, theme, keys, and which view is shown.

   The address after `#/` says what is shown; each view is a module with `mount(container, parts) -> {unmount}` that is loaded when
   it is first needed. */

import { get, stream } from "./api.js";
import { closeMenus, fill, h } from "./dom.js";
import { chooseLanguage, language, t, wayText } from "./i18n.js";

const VIEWS = {
  live: () => import("./live.js"),
  turn: () => import("./one_turn.js"),
  chat: () => import("./chat.js"),
  recorded: () => import("./recorded.js"),
  try: () => import("./try_again.js"),
};
const IN_MENU = ["chat", "live", "recorded", "try"];
const THEME = "xmlcall.theme";

/** What is known of the program, as the server says it. */
export let about = {};

const listeners = new Set();
let shown = null;
let turnOfMount = 0;
let chat = "chat"; // the conversation that was looked at last: the menu leads back to it
let isLost = false; // the connection is

/** Be told of every event of the program. @returns {function()} ends it */
export function listen(handle) {
  listeners.add(handle);
  return () => listeners.delete(handle);
}

/** Say something that a screen reader reads out. */
export function say(text) {
  document.getElementById("status").textContent = text;
}

/** Keep where the chat is, so that the menu leads back to it. */
export function atChat(path) {
  chat = path;
  document.querySelector("header nav [data-view=chat]")?.setAttribute("href", `#/${path}`);
}

/** Go to another view. */
export function go(path) {
  location.hash = `#/${path}`;
}

function parts() {
  const given = location.hash.replace(/^#\/?/, "").split("?")[0].split("/").filter(Boolean).map(decodeURIComponent);
  return given.length && given[0] in VIEWS ? given : [about.can_chat ? "chat" : about.model ? "live" : "recorded"];
}

async function show() {
  const [name, ...rest] = parts();
  const mine = ++turnOfMount;
  drawHeader(name);
  const view = await VIEWS[name]();
  if (mine !== turnOfMount) return;
  shown?.unmount();
  const box = h("div"); // of this mount alone: what a view before it still waits for is drawn where nobody looks
  fill(document.getElementById("main"), box);
  shown = view.mount(box, rest);
  document.body.dataset.view = name;
  document.title = `${t(`view.${name}`)} · xmlcall`;
}

function drawHeader(name) {
  const isThere = { chat: about.can_chat, recorded: about.recorded };
  const names = IN_MENU.filter((each) => isThere[each] ?? true);
  const current = name === "turn" ? "live" : name; // a turn is opened from that list
  const link = (each) => h("a", { href: `#/${each === "chat" ? chat : each}`, data: { view: each }, "aria-current": each === current ? "page" : null }, t(`view.${each}`));
  const facts = h("div", { className: "facts" },
    h("span", { className: "model", title: about.model }, about.model ?? ""),
    about.way ? h("span", { className: "chip way", title: t("way.title", { way: about.way }) }, wayText(about.way)) : null,
    h("button", { className: "plain", onclick: switchLanguage, title: t("switch.language"), lang: language() === "zh" ? "en" : "zh" }, language() === "zh" ? "EN" : "中文"),
    h("button", { className: "plain", onclick: switchTheme, "aria-label": t("switch.theme") }, isDark() ? "☀" : "☾"),
    h("button", { className: "plain keys-button", onclick: showKeys, "aria-label": t("keys.title") }, "?"));
  const lost = h("div", { className: "lost", id: "lost", hidden: !isLost }, t("lost"));
  fill(document.getElementById("header"), h("span", { className: "brand" }, "xmlcall"),
    h("nav", { "aria-label": t("menu") }, names.map(link)), facts, lost);
  document.getElementById("skip").textContent = t("skip");
}

function switchLanguage() {
  chooseLanguage(language() === "zh" ? "en" : "zh");
  show();
}

const isDark = () => document.documentElement.dataset.theme === "dark";

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  localStorage.setItem(THEME, theme);
  document.documentElement.dataset.theme = theme;
  drawHeader(parts()[0]);
}

function followTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? (system.matches ? "dark" : "light");
  };
  system.addEventListener("change", apply);
  apply();
}

function showKeys() {
  const rows = ["g c", "g l", "g r", "g t", "j k", "Enter", "?", "Esc"].map((keys) => [
    h("dt", null, keys.split(" ").map((key) => [h("kbd", null, key), " "])), h("dd", null, t(`keys.${keys.replace(" ", "")}`))]);
  const dialog = h("dialog", { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h("h2", { id: "keys-title" }, t("keys.title")), h("dl", { className: "keys" }, rows),
    h("button", { className: "main", onclick: () => dialog.close() }, t("close")));
  document.body.append(dialog);
  dialog.showModal();
}

/** Close an open menu by Escape, which then means nothing else. */
function onEscape(event) {
  const open = event.key === "Escape" && document.querySelector("details.menu[open]");
  if (!open) return;
  event.stopPropagation();
  closeMenus();
  open.querySelector("summary").focus();
}

let afterG = 0;

function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable], dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = { l: "live", c: "chat", r: "recorded", t: "try" }[event.key];
  if (event.timeStamp - afterG < 1200 && target) {
    event.preventDefault();
    go(target === "chat" ? chat : target);
  }
  afterG = event.key === "g" ? event.timeStamp : 0;
  if (event.key === "?") showKeys();
}

/** Lead the keyboard past the header; the link's own address would be another view's. */
function onSkip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function tell(name, data) {
  for (const handle of [...listeners]) handle(name, data);
}

/** Follow the program's events. A view is shown once they come, so that none that matters to it is missed, or if they do not. */
function follow() {
  const showLost = (yes) => {
    isLost = yes;
    const element = document.getElementById("lost");
    if (element) element.hidden = !isLost;
  };
  const names = ["turn", "question", "answered", "servers", "notice", "request", "waiting"];
  stream("events", {
    ...Object.fromEntries(names.map((name) => [name, (data) => tell(name, data)])),
    lost: () => {
      showLost(true);
      if (!turnOfMount) show().catch(tellFailure);
    },
    found: () => showLost(false),
    hello: async ({ instance }) => {
      if (turnOfMount && about.instance === instance) return tell("again", null);
      if (about.instance !== instance) about = await get("about");
      return show().catch(tellFailure);
    },
  });
}

// Not awaited here: the views import this module, and would wait for it while it waits for them.
async function start() {
  try {
    about = await get("about");
    follow();
  } catch (error) {
    tellFailure(error);
  }
}

/** Show what nobody foresaw: a blank page says nothing. */
function tellFailure(error) {
  document.getElementById("main").prepend(h("p", { className: "error", role: "alert" }, String(error?.message ?? error)));
}

followTheme();
chooseLanguage(language());
addEventListener("hashchange", () => turnOfMount && show()); // the first view is shown by `follow`, once the program is known
addEventListener("unhandledrejection", (event) => tellFailure(event.reason));
addEventListener("keydown", onEscape, true);
addEventListener("keydown", onKey);
document.getElementById("skip").addEventListener("click", onSkip);
addEventListener("click", ({ target }) => closeMenus(target));
start();
