// Markdown, differences and words: elements come from tables alone, links lead to the web, every word is there twice.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, page } from "./fake_document.mjs";

const { Refused } = await import(page("api.js"));
const { markdown } = await import(page("markdown.js"));
const { difference } = await import(page("diff.js"));
const { chooseLanguage, has, language, share, t } = await import(page("i18n.js"));
const { EN } = await import(page("i18n_en.js"));
const { ZH } = await import(page("i18n_zh.js"));

const tags = (element) => new Set(all(element).map((each) => each.tag));
const HARMFUL = ["script", "img", "iframe", "style", "svg", "form", "object", "video"];

for (const text of [
  "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a <b onclick='x'>b</b>", "![x](http://evil/x.png)",
  "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](data:text/html,1)", "<svg/onload=alert(1)>", "[x]: javascript:alert(1)\n\n[x]",
  "<javascript:alert(1)>", "| a | b |\n|---|---|\n| <script>1</script> | `<script>` |", "```<script>\n</script>\n```",
]) {
  test(`stays text: ${JSON.stringify(text)}`, () => {
    const drawn = markdown(text);
    for (const tag of HARMFUL) assert.ok(!tags(drawn).has(tag), tag);
    for (const each of all(drawn)) {
      const address = each.href ?? each.attributes.href;
      if (address !== undefined) assert.match(address, /^(https?:|mailto:)/i);
      for (const name of Object.keys(each.attributes)) assert.doesNotMatch(name, /^on/i);
    }
  });
}

for (const [number, words] of [["1", "1 token"], ["0", "0 tokens"], ["1,001", "1,001 tokens"]]) {
  test(`as many as they are: ${words}`, () => { chooseLanguage("en"); assert.equal(t("tokens", { count: number }), words); });
}

test("a refusal speaks the chosen language, and the server's words where it has none", () => {
  chooseLanguage("zh");
  assert.equal(new Refused(409, { error: { message: "it runs", code: "turn_running" } }).message, "此对话还在回答。请等它结束，或停止它。");
  assert.equal(new Refused(422, { error: { message: "expected a text", code: "" } }).message, "expected a text");
  assert.equal(new Refused(500, "").message, "HTTP 500");
  chooseLanguage("en");
});

test("what Markdown means is drawn", () => {
  const drawn = markdown("# T\n\n**b** *i* `c`\n\n- [x] done\n\n1. one\n\n> q\n\n[l](https://example.org) ~~d~~");
  for (const tag of ["h3", "strong", "em", "code", "ul", "ol", "blockquote", "a", "del"]) assert.ok(tags(drawn).has(tag), tag);
  assert.match(drawn.textContent, /☑ done/);
});

test("depth and length without end are shown as they are", () => {
  assert.ok(markdown(">".repeat(5000) + "x").textContent.includes("x"));
  assert.ok(markdown("*".repeat(200_000)).textContent.length >= 200_000);
});

test("a difference has the lines that come and go, and two around them", () => {
  const drawn = difference("a\nb\nc\nold\nd\ne\nf", "a\nb\nc\nnew\nmore\nd\ne\nf");
  assert.equal(drawn.textContent, "  b\n  c\n- old\n+ new\n+ more\n  d\n  e\n");
  assert.equal(all(drawn).filter((each) => /removed|added/.test(each.className ?? "")).length, 3);
});

test("texts that are alike have no difference", () => {
  assert.doesNotMatch(difference("a\nb", "a\nb").textContent, /^[+-] /m);
});

test("both languages have the same words with the same places for values", () => {
  assert.deepEqual(Object.keys(EN).sort(), Object.keys(ZH).filter((key) => !key.startsWith("code.")).sort());
  for (const [key, text] of Object.entries(EN)) {
    const places = (words) => (words.match(/\{\w+\}/g) ?? []).sort();
    assert.deepEqual(places(ZH[key]), places(text), key);
  }
});

test("a word is put together, in the chosen language; an unknown one is seen", () => {
  chooseLanguage("zh");
  assert.equal(language(), "zh");
  assert.ok(has("code.call-in-reasoning"));
  chooseLanguage("en");
  assert.equal(t("turns.count", { count: 3 }).includes("3"), true);
  assert.equal(t("there.is.none"), "there.is.none");
  assert.equal(share(1, 0), "–");
});
