/* What stands around a conversation: the others, the servers with their tools, and how one may begin. */

import { h } from "./dom.js";
import { t, timeText } from "./i18n.js";
import { beginning, visible } from "./visible.js";

const part = encodeURIComponent;
const MOST = 50; // conversations
const STARTERS = 4;
const NAMED = 4; // tools that are named in a sentence

/** Draw the conversations, newest first. */
export function historyOf(conversations, current) {
  return h("nav", { className: "chat-history", "aria-label": t("chat.list") }, h("h2", null, t("chat.list")),
    conversations.length ? h("ul", { className: "list" }, conversations.slice(0, MOST).map((each) => h("li", null,
      h("a", { href: `#/chat/${part(each.id)}`, "aria-current": each.id === current ? "page" : null },
        h("span", { className: "clip" }, visible(each.title) || each.id), h("span", { className: "clip small soft" }, [timeOf(each.changed), visible(each.model)].filter(Boolean).join(" · "))))))
      : h("p", { className: "soft small" }, t("recorded.no_conversations")));
}

/** Return the time of today, and the day of what was before. */
function timeOf(text) {
  const time = new Date(text);
  const isToday = time.toDateString() === new Date().toDateString();
  return timeText(time, isToday ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" });
}

/** Draw the servers with their tools.
 *  @param {function(string, boolean)} toggle makes what a box does @param {function(string)} takeBack ends that a tool is always allowed */
export function serversOf(servers, toggle, takeBack) {
  const box = (path, isOn) => h("input", { type: "checkbox", checked: isOn, data: { path }, onchange: toggle(path, isOn) });
  const allowed = (each) => (each.is_always_allowed ? h("button", { className: "plain small", title: t("tool.take_back"), data: { path: `take_back/${part(each.name)}` },
    onclick: () => takeBack(each.name) }, `${t("tool.allowed")} ✕`) : null);
  const tool = (each) => h("li", { className: "row" }, h("label", { className: "row", title: visible(each.description ?? "") }, box(`tools/${part(each.name)}`, each.is_on),
    h("span", { className: "mono clip" }, visible(each.name.slice(each.name.lastIndexOf(".") + 1))), each.destructive ? h("span", { className: "chip warn", title: t("ask.destructive") }, "!") : null), allowed(each));
  const server = (each) => h("div", { className: "column server" },
    h("label", { className: "row" }, box(`servers/${part(each.name)}`, each.is_on), h("strong", { className: "clip" }, visible(each.name)),
      each.state === "answers" ? null : h("span", { className: `small ${each.state === "failed" ? "bad-text" : "soft"}` }, t(`server.${each.state}`))),
    each.problem ? h("p", { className: "small break server-problem" }, visible(beginning(each.problem.replace(`${each.name}: `, ""), 400))) : null,
    each.is_on && each.tools.length ? h("ul", { className: "tools" }, each.tools.map(tool)) : null);
  return h("section", { className: "chat-servers", "aria-label": t("chat.tools") }, h("h2", null, t("chat.tools")),
    servers?.length ? servers.map(server) : h("p", { className: "soft small" }, t("chat.no_tools")));
}

const offered = (servers) => servers.filter((server) => server.is_on).flatMap((server) => server.tools.filter((tool) => tool.is_on));

/** Draw how a question may begin, in the words of the tools on offer. @param {function(string)} begin takes the words */
export function startersOf(servers, begin) {
  const tools = offered(servers).filter((tool) => tool.description).slice(0, STARTERS);
  return tools.length ? h("ul", { className: "starters" }, tools.map((tool) => {
    const words = visible(starter(tool.description));
    return h("li", null, h("button", { onclick: () => begin(`${words}: `) }, h("span", null, `${words} …`), h("span", { className: "small soft mono clip" }, visible(tool.name))));
  })) : null;
}

/** Return the first words of a description, which mostly say what to do: "Get the weather of a city". */
export function starter(description) {
  return beginning(description.trim().split(/[.:;。：；\n]/)[0].trim(), 80);
}

/** Say truly which calls ask and which do not. */
export function asksWhat(servers) {
  const tools = offered(servers);
  const free = tools.filter((tool) => !tool.is_asked).map((tool) => visible(tool.name));
  if (!tools.length) return t("asks.nothing");
  if (!free.length) return t("asks.all");
  if (free.length === tools.length) return t("asks.none");
  return t("asks.some", { names: free.slice(0, NAMED).join(", ") + (free.length > NAMED ? ", …" : "") });
}
