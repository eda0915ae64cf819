/* A model's Markdown as elements, never as HTML.

   The library cuts a text into tokens; each becomes an element by a row of the tables below, and what has no row is shown as the
   text that it was. HTML in a text is text. A picture is a link: to fetch it would tell its server who reads. Links lead to the
   web and to mail alone, and say where. Very long or deeply nested texts are shown as they are. */

import { copy, h } from "./dom.js";
import { t } from "./i18n.js";
import { Lexer } from "./vendor/marked.js";
import { readable, visible } from "./visible.js";

const LONGEST = 100_000; // UTF-16 units
const DEEPEST = 40;
const SAFE = /^(https?:|mailto:)/i;

/** Draw a text. @returns {Element} */
export function markdown(text) {
  if (text.length > LONGEST) return plain(text);
  try {
    return h("div", { className: "markdown" }, blocks(new Lexer({ gfm: true }).lex(text), 0));
  } catch (error) {
    if (!(error instanceof RangeError) && !(error instanceof TooDeep)) throw error;
    return plain(text);
  }
}

class TooDeep extends Error {}

const plain = (text) => h("div", { className: "markdown as-written" }, readable(text));

const BLOCKS = {
  space: () => null,
  hr: () => h("hr", null),
  heading: (token, depth) => h(`h${Math.min(6, token.depth + 2)}`, null, inline(token.tokens, depth)),
  paragraph: (token, depth) => h("p", null, inline(token.tokens, depth)),
  text: (token, depth) => (token.tokens ? inline(token.tokens, depth) : entities(token.text)),
  blockquote: (token, depth) => h("blockquote", null, blocks(token.tokens, depth)),
  code: (token) => codeBlock(token.text, token.lang ?? ""),
  list: (token, depth) => h(token.ordered ? "ol" : "ul", { start: token.ordered && token.start > 1 ? token.start : null },
    token.items.map((item) => h("li", null, item.task ? (item.checked ? "☑ " : "☐ ") : null, blocks(item.tokens.filter((each) => each.type !== "checkbox"), depth)))),
  table: (token, depth) => h("div", { className: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, token.header.map((cell) => h("th", null, inline(cell.tokens, depth))))),
    h("tbody", null, token.rows.map((row) => h("tr", null, row.map((cell) => h("td", null, inline(cell.tokens, depth)))))))),
};

const INLINE = {
  strong: (token, depth) => h("strong", null, inline(token.tokens, depth)),
  em: (token, depth) => h("em", null, inline(token.tokens, depth)),
  del: (token, depth) => h("del", null, inline(token.tokens, depth)),
  codespan: (token) => h("code", null, visible(token.text)),
  br: () => h("br", null),
  escape: (token) => readable(token.text),
  text: (token, depth) => (token.tokens ? inline(token.tokens, depth) : entities(token.text)),
  link: (token, depth) => link(token.href, inline(token.tokens, depth)),
  image: (token) => link(token.href, `${t("image")}: ${readable(token.text || token.href)}`),
};

const blocks = (tokens, depth) => drawn(BLOCKS, tokens, depth);
const inline = (tokens, depth) => drawn(INLINE, tokens, depth);

function drawn(table, tokens, depth) {
  if (depth > DEEPEST) throw new TooDeep();
  return tokens.map((token) => (table[token.type] ?? BLOCKS[token.type] ?? asWritten)(token, depth + 1));
}

const asWritten = (token) => readable(token.raw);

const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" };

/** The lexer leaves character references as they are; these five are what models write. */
const entities = (text) => readable(text.replace(/&(?:amp|lt|gt|quot|#39);/g, (each) => ENTITIES[each]));

function link(address, inside) {
  if (!SAFE.test(address)) return [inside, h("span", { className: "soft" }, ` (${visible(address)})`)];
  return h("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank", title: visible(address) }, inside);
}

function codeBlock(text, language) {
  const button = h("button", { className: "plain", onclick: ({ currentTarget }) => copy(text, currentTarget, t("copied")) }, t("copy"));
  return h("div", { className: "code" }, h("div", { className: "row small soft" }, visible(language), h("span", { className: "push" }, button)),
    h("pre", { tabIndex: 0 }, visible(text)));
}
