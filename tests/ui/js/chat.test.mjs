// What stands in a line of a chat: arguments, results, how a question may begin, which calls ask.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, page } from "./fake_document.mjs";

const { callCard, outcomeChip, shortArguments, shortResult, whoAllowed } = await import(page("call_card.js"));
const { asksWhat, serversOf, starter, startersOf } = await import(page("chat_side.js"));
const { chooseLanguage } = await import(page("i18n.js"));
chooseLanguage("en");

const call = (facts) => ({
  id: "c", index: 0, name: "t", server: "s", tool: "t", dialect: "", arguments: {}, ran_with: null, values: [], issues: [], repairs: [],
  outcome: "ok", by: "", reason: "", failure: "", result: null, result_size: 0, seconds: null, ...facts,
});

for (const [given, line] of [
  [{ arguments: { location: "Paris" } }, '("Paris")'],
  [{ arguments: { a: 13.5, b: "x" } }, '(a: 13.5, b: "x")'],
  [{ arguments: null }, ""],
  [{ arguments: { a: 1 }, ran_with: { a: 2 } }, "(2)"],
  [{ arguments: { text: "a\u202eb" } }, '("a⟨U+202E⟩b")'],
]) test(`arguments in a line: ${line}`, () => assert.equal(shortArguments(call(given)), line));

test("arguments without end are cut", () => assert.ok(shortArguments(call({ arguments: { a: "x".repeat(9000), b: "y".repeat(9000) } })).length < 200));

for (const [result, line] of [
  ['{"temperature": 13.5, "condition": "rain"}', 'temperature: 13.5, condition: "rain"'],
  ["24.3", "24.3"], ["two\n  lines", "two lines"], ["[1, 2]", "[1, 2]"], ["{broken", "{broken"], ["<b>\u001b[31m</b>", "<b>␛[31m</b>"], ["null", "null"],
]) test(`a result in a line: ${line}`, () => assert.equal(shortResult(call({ result })), line));

for (const [facts, isYours, words] of [
  [{ by: "person" }, true, "allowed by you"], [{ by: "person, always" }, true, "always allowed by you"],
  [{ by: "person" }, false, "allowed by: person"], [{ by: "allow s.* (--allow)" }, true, "allowed by: allow s.* (--allow)"],
]) test(`who allowed: ${words}`, () => assert.equal(whoAllowed(call(facts), { isYours }).textContent, words));

for (const [facts, words] of [[{ by: "person" }, "denied by you"], [{ by: "no person to ask" }, "denied: there was no person to ask"], [{ by: "deny s.* (--deny)" }, "denied by: deny s.* (--deny)"], [{ by: "" }, "denied"]]) {
  test(`who denied, once: ${words}`, () => {
    const denied = call({ ...facts, outcome: "denied" });
    assert.equal(outcomeChip(denied, { isYours: true }).textContent, words);
    assert.equal(whoAllowed(denied, { isYours: true }), null);
  });
}

const value = (text, repairs = []) => ({ path: "$.city", value: text, start: null, end: null, source: { kind: "person", call: null, tool: "", message: null }, repairs });
const repair = { code: "json-double-encoding", why: "why", path: "$.city", start: null };

for (const [source, isYours, words] of [
  [{ kind: "schema" }, true, "perhaps your words, translated; else the tool's description"], [{ kind: "invented" }, false, "perhaps the person's words, translated; else the model alone"],
]) test(`a value may be a translation: ${words}`, () => {
  const told = { ...value("Paris"), source: { call: null, tool: "", message: null, may_be_translation: true, ...source } };
  const drawn = callCard(call({ values: [told] }), { opened: new Set(), onPoint() {}, isYours });
  assert.deepEqual(all(drawn).filter((each) => /chip ?$/.test(each.className ?? "")).map((each) => each.textContent), [words]);
});

test("a call that waits says what for, and what comes next", () => {
  const drawn = callCard(call({ outcome: "held", reason: "$.x, $.y" }), { opened: new Set(), onPoint() {} });
  assert.ok(drawn.textContent.includes("The conversation does not give x, y. The model writes the call again after the results."));
  assert.ok(!drawn.textContent.includes("$."));
});

test("a repair is told once", () => {
  const drawn = callCard(call({ values: [value("Paris", ["json-double-encoding"])], repairs: [repair] }), { opened: new Set(), onPoint() {} });
  assert.equal(drawn.textContent.split("json-double-encoding").length, 2);
});

test("what a repair means comes before its code", () => {
  const drawn = callCard(call({ repairs: [repair] }), { opened: new Set(), onPoint() {} });
  assert.match(drawn.textContent, /city: why json-double-encoding$/);
});

test("an issue names its place once", () => {
  const issue = (why) => ({ code: "missing-argument", why, path: "$.city", expected: "string", got: "", readings: [] });
  const drawn = (why) => callCard(call({ issues: [issue(why)] }), { opened: new Set(), onPoint() {} }).textContent;
  assert.equal(drawn("The parameter 'city' is required.").split("city").length, 2);
  assert.equal(drawn("It is required.").split("city").length, 2);
});

test("words do not break inside, but where there is no other way", () => {
  const breaks = (text) => all(callCard(call({ values: [value(text)] }), { opened: new Set(), onPoint() {} })).filter((each) => /string.*break/.test(each.className ?? "")).length;
  assert.equal(breaks("Central Europe"), 0);
  assert.equal(breaks("x".repeat(90)), 1);
});

test("a name that stands around a card is not said again", () => {
  const drawn = callCard(call({}), { opened: new Set(), onPoint() {}, isInside: true });
  assert.ok(!drawn.textContent.includes("s.t"));
});

for (const [description, words] of [
  ["Get the current weather of a city.", "Get the current weather of a city"], ["Calculate with two numbers: add, subtract. Use it.", "Calculate with two numbers"],
  ["  Read\nmore", "Read"], ["查询天气。很快。", "查询天气"], ["x".repeat(500), "x".repeat(80)],
]) test(`a question may begin: ${words}`, () => assert.equal(starter(description), words));

const tool = (name, is_asked, is_on = true) => ({ name: `s.${name}`, description: `Do ${name}.`, is_on, is_asked, destructive: false });
const server = (...tools) => ({ name: "s", is_on: true, state: "answers", problem: "", tools });

for (const [servers, words] of [
  [[], /^No tool/], [[server(tool("a", true))], /asked before any call/], [[server(tool("a", false))], /without asking you/],
  [[server(tool("a", false), tool("b", true))], /without asking you.*: s\.a\. You are asked/], [[server(tool("a", false, false), tool("b", true))], /asked before any call/],
  [[{ ...server(tool("a", true)), is_on: false }], /^No tool/],
]) test(`which calls ask: ${words}`, () => assert.match(asksWhat(servers), words));

test("starters are of tools that are on", () => {
  assert.equal(startersOf([server(tool("a", true, false))], () => {}), null);
  const begun = [];
  const drawn = startersOf([server(tool("a", true))], (text) => begun.push(text));
  all(drawn).find((each) => each.tag === "button").listeners.click();
  assert.deepEqual(begun, ["Do a: "]);
});

test("a tool that is always allowed says so, and how to be asked again", () => {
  const [allowed, other] = ["demo.a", "demo.b"].map((name) => ({ name, description: "", is_on: true, is_always_allowed: name === "demo.a" }));
  const drawn = serversOf([{ ...server(), is_on: true, tools: [allowed, other] }], () => () => {}, () => {});
  assert.equal(drawn.textContent.split("allowed ✕").length, 2);
});

test("a server says why it failed, and its name once", () => {
  const drawn = serversOf([{ ...server(), name: "files", state: "failed", problem: "files: the command was not found" }], () => () => {});
  assert.match(drawn.textContent, /failed.*the command was not found/);
  assert.equal(drawn.textContent.split("files").length, 2);
});
