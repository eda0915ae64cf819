/* The prompt of a reply, as the model got it: message by message, the part that came from the server's cache shaded.

   Servers say how many tokens came from the cache, not which text that was. It is the beginning, and how far it goes is reckoned by
   the share of tokens; the page says "about". */

import { fill, h } from "./dom.js";
import { count, share, t } from "./i18n.js";
import { beginning, unitsOf, visible } from "./visible.js";

const SHOWN = 3000; // UTF-16 units of a message that are shown at once

/** Draw a prompt, folded.
 *  @returns {{update(reply), mark(message, start, end, scrolls), unmark()}} */
export function renderPrompt(container, reply) {
  const summary = h("summary", null);
  const body = h("div", { className: "prompt" });
  const details = h("details", { className: "fold", ontoggle: () => details.open && draw() }, summary, body);
  let shown = reply;
  let messages = [];
  let marked = null;
  fill(container, details);

  function title() {
    const told = [t("prompt.messages", { count: shown.prompt.length })];
    if (shown.prompt_tokens !== null) told.push(t("tokens", { count: count(shown.prompt_tokens) }));
    if (shown.cached_tokens !== null) told.push(t("prompt.cached", { share: share(shown.cached_tokens, shown.prompt_tokens) }));
    fill(summary, `${t("prompt.title")} `, h("span", { className: "soft small" }, told.join(" · ")));
    details.hidden = shown.prompt.length === 0;
  }

  function draw() {
    const whole = shown.prompt.reduce((sum, each) => sum + each.content.length, 0);
    let cached = shown.prompt_tokens && shown.cached_tokens ? Math.round((whole * shown.cached_tokens) / shown.prompt_tokens) : 0;
    messages = shown.prompt.map((message, place) => {
      const element = messageElement(message, cached, marked?.message === place ? marked : null);
      cached = Math.max(0, cached - message.content.length);
      return element;
    });
    fill(body, messages);
  }

  function mark(message, start, end, scrolls) {
    marked = { message, start, end };
    if (!details.open && !scrolls) return;
    details.open = true;
    draw();
    if (scrolls) (messages[message]?.querySelector("mark") ?? messages[message])?.scrollIntoView({ block: "center", behavior: "smooth" });
  }

  title();
  return {
    update(next) {
      const isSame = next.prompt.length === shown.prompt.length && next.cached_tokens === shown.cached_tokens;
      shown = next;
      title();
      if (details.open && !isSame) draw();
    },
    mark,
    unmark() {
      const had = marked;
      marked = null;
      if (had && details.open) draw();
    },
  };
}

function messageElement(message, cached, marked) {
  const text = h("pre", { className: "message-text" });
  const element = h("section", { className: `message ${message.role}` },
    h("h4", null, t(`role.${message.role}`), message.name ? h("span", { className: "soft" }, ` ${message.name}`) : null), text);
  const units = unitsOf(message.content);
  const range = marked && marked.start !== null && marked.start !== undefined ? [units(marked.start), units(marked.end)] : null;
  const most = Math.max(SHOWN, range ? range[1] + 200 : 0);
  const whole = message.content.length > most ? beginning(message.content, most) : message.content;
  write(text, whole, cached, range);
  if (marked && !range) element.classList.add("marked");
  if (whole.length < message.content.length) {
    const more = h("button", { onclick: () => { write(text, message.content, cached, range); more.remove(); } },
      t("show.all", { count: count(message.content.length) }));
    element.append(more);
  }
  return element;
}

/** Write a text with its cached beginning shaded and a range marked. */
function write(element, text, cached, range) {
  const cuts = [0, Math.min(cached, text.length), ...(range ?? []), text.length].sort((one, other) => one - other);
  const parts = [];
  for (let place = 1; place < cuts.length; place += 1) {
    const [start, end] = [cuts[place - 1], cuts[place]];
    if (start === end) continue;
    const isMarked = range && start >= range[0] && end <= range[1];
    parts.push(h(isMarked ? "mark" : "span", { className: end <= cached ? "cached" : "" }, visible(text.slice(start, end))));
  }
  fill(element, parts);
}
