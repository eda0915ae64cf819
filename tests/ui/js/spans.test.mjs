// Each character of a reply is in one piece, whatever the spans and the repairs are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./fake_document.mjs";

const { piecesOf, blocksOf } = await import(page("spans.js"));
const { unitsOf, visible, readable, escapedJson, beginning } = await import(page("visible.js"));

const reply = (raw, spans, repairs = []) => ({ raw, spans, repairs, calls: [] });
const span = (start, end, kind = "text") => ({ start, end, kind, about: "" });
const repair = (start, code = "some-code") => ({ code, start, end: start, path: "" });

function tile(raw, pieces) {
  let at = 0;
  for (const piece of pieces) {
    assert.equal(piece.start, at);
    assert.ok(piece.end >= piece.start);
    at = piece.end;
  }
  assert.equal(at, raw.length);
}

const CASES = {
  empty: reply("", []),
  "no spans": reply("abc", []),
  "spans that end before the text": reply("abcdef", [span(0, 3)]),
  "a repair inside a span": reply("abcdef", [span(0, 6)], [repair(2)]),
  "two repairs in one place": reply("abcdef", [span(0, 3), span(3, 6, "value")], [repair(3), repair(3, "other")]),
  "a repair after the end": reply("abc", [span(0, 3)], [repair(3)]),
  "a repair without a place": reply("abc", [span(0, 3)], [repair(null)]),
  "characters of two units": reply("a😀b😀c", [span(0, 2), span(2, 5, "value")], [repair(3)]),
};

for (const [name, given] of Object.entries(CASES)) {
  test(`pieces tile a reply: ${name}`, () => {
    const pieces = piecesOf(given);
    tile(given.raw, pieces);
    const placed = given.repairs.filter((each) => each.start !== null).length;
    assert.equal(pieces.flatMap((piece) => piece.repairs).length, placed);
  });
}

test("random spans and repairs tile a reply", () => {
  let seed = 1;
  const below = (limit) => { seed = (seed * 48271) % 2147483647; return seed % limit; };
  for (let round = 0; round < 500; round += 1) {
    const characters = Array.from({ length: below(40) }, () => ["a", "😀", "\u202e", "\n", "<"][below(5)]);
    const cuts = [...new Set([0, characters.length, ...Array.from({ length: below(6) }, () => below(characters.length + 1))])].sort((a, b) => a - b);
    const spans = cuts.slice(1).map((end, place) => span(cuts[place], end, ["text", "markup", "value"][below(3)]));
    const repairs = Array.from({ length: below(4) }, (_, number) => repair(below(characters.length + 1), `code-${number}`));
    const given = reply(characters.join(""), spans, repairs);
    tile(given.raw, piecesOf(given));
  }
});

test("a megabyte is cut into blocks that hold all of it", () => {
  const raw = "word ".repeat(200_000);
  const blocks = blocksOf(raw, piecesOf(reply(raw, [span(0, raw.length)])));
  assert.ok(blocks.length > 60);
  assert.equal(blocks.flatMap((block) => block.pieces ?? block).reduce((sum, piece) => sum + piece.end - piece.start, 0), raw.length);
});

test("offsets in characters become offsets in units", () => {
  const units = unitsOf("😀a😀b");
  assert.deepEqual([0, 1, 2, 3, 4].map(units), [0, 2, 3, 5, 6]);
});

for (const hidden of ["\u115f", "\u1160", "\u2800", "\u3164", "\uffa0", "\ufe00", "\ufe0f", "\u{e0100}", "\u{e01ef}", "\u{e0041}", "\u202e", "\u034f", "\u180f"]) {
  test(`is seen by a person who judges: ${hidden.codePointAt(0).toString(16)}`, () => {
    assert.match(visible(`a${hidden}b`), /^a⟨U\+[0-9A-F]{4,5}⟩b$/);
    const json = escapedJson(JSON.stringify({ a: `x${hidden}` }, null, 2));
    assert.ok(!json.includes(hidden));
    assert.deepEqual(JSON.parse(json), { a: `x${hidden}` });
  });
}

test("an emoji in a text that is only read stays one", () => {
  assert.equal(readable("ok \u2764\ufe0f"), "ok \u2764\ufe0f");
  assert.equal(readable("a\ufe0f \u2764\ufe0f\ufe0f\u2800"), "a⟨U+FE0F⟩ \u2764\ufe0f⟨U+FE0F⟩⟨U+2800⟩");
});

test("nothing hides in a text", () => {
  const shown = visible("a\u001b[31m\u202ee\u200b\u0000\ud800z\ttab\nline");
  assert.doesNotMatch(shown, /[\u0000-\u0008\u000b-\u001f\u202e\u200b\ud800]/);
  assert.match(shown, /\ttab\nline$/);
});

test("a beginning cuts no pair in half", () => {
  assert.equal(beginning("a😀b", 2), "a");
  assert.equal(beginning("a😀b", 3), "a😀");
});
