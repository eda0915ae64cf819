/* A text read anew while it is edited, and the same question asked in other ways.

   The text goes to the program's own parser a moment after the last key; an answer that was overtaken by another is dropped. */

import { get, post, postStream } from "./api.js";
import { about } from "./app.js";
import { callCard, markLine } from "./call_card.js";
import { fill, h, settled } from "./dom.js";
import { t, wayText } from "./i18n.js";
import { legend, renderSpans } from "./spans.js";
import { renderTurn } from "./turn.js";
import { visible } from "./visible.js";

const EXAMPLE = `I will look that up.

<function_calls>
<invoke name="get_weather">
<parameter name="city">Paris</parameter>
<parameter name="days">"3"</parameter>
</invoke>
</function_calls>`;
const TOOLS = [{
  name: "get_weather",
  description: "Tell the weather of a city.",
  inputSchema: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" }, units: { type: "string", enum: ["celsius", "fahrenheit"] } },
    required: ["city"],
  },
}];

export function mount(container, [id, number]) {
  const text = h("textarea", { className: "mono", rows: 14, spellcheck: "false", "aria-label": t("try.text"), oninput: settled(read, 150) });
  const tools = h("textarea", { className: "mono", rows: 10, spellcheck: "false", "aria-label": t("try.tools"), oninput: settled(read, 150) });
  const dialect = h("select", { "aria-label": t("try.dialect"), onchange: read }, ["auto", ...(about.dialects ?? [])].map((each) => h("option", { value: each }, each)));
  const ending = h("select", { "aria-label": t("try.ending"), onchange: read }, ["stop", "length"].map((each) => h("option", { value: each }, t(`try.ending.${each}`))));
  const isOpen = h("input", { type: "checkbox", onchange: read });
  const problem = h("p", { className: "error", role: "alert", hidden: true });
  const raw = h("div", { className: "raw-box" });
  const calls = h("div", { className: "calls column", "aria-live": "polite" });
  const visibleText = h("div", null);
  const ways = h("div", null);
  const question = h("blockquote", { className: "question break", hidden: true });
  const back = h("span", null);
  const ties = { opened: new Set(), onPoint, isRead: true };
  let spans = null;
  let asked = 0;
  let under = null; // what ends the asking that is under way

  fill(container, h("div", { className: "column" },
    h("div", { className: "row" }, back, h("h1", null, t("view.try")), h("span", { className: "push row" },
      h("label", null, `${t("try.dialect")} `, dialect), h("label", null, `${t("try.ending")} `, ending), h("label", null, isOpen, ` ${t("try.reasoning_open")}`))),
    question,
    h("div", { className: "reply-columns" },
      h("div", { className: "column" }, h("label", { className: "column" }, t("try.text"), text), h("details", { className: "fold" }, h("summary", null, t("try.tools")), tools)),
      h("div", { className: "column" }, problem, raw, legend(), visibleText, calls)),
    ways));

  function onPoint(value, scrolls) {
    spans?.unmark();
    if (value && value.start !== null) spans.mark(value.start, value.end, scrolls);
  }

  async function read() {
    const mine = ++asked;
    const body = { text: text.value, dialect: dialect.value, finish_reason: ending.value, reasoning_open: isOpen.checked, turn: id, reply: Number(number ?? 1) };
    try {
      body.tools = JSON.parse(tools.value || "[]");
    } catch (error) {
      return say(`${t("try.tools")}: ${error.message}`);
    }
    try {
      const { reply } = await post("read", body);
      if (mine === asked) draw(reply);
    } catch (error) {
      if (mine === asked) say(error.message);
    }
    return undefined;
  }

  function say(message) {
    problem.textContent = message;
    problem.hidden = !message;
  }

  function draw(reply) {
    say("");
    if (spans) spans.update(reply);
    else spans = renderSpans(raw, reply);
    const isNone = reply.calls.length === 0;
    fill(visibleText, isNone ? h("p", { className: "soft" }, t("try.no_call")) : null,
      isNone ? reply.repairs.map((each) => h("p", { className: "small" }, markLine(each))) : null);
    fill(calls, reply.calls.map((call) => callCard(call, ties)));
  }

  async function begin() {
    const turn = id ? await get(`turns/${encodeURIComponent(id)}`) : null;
    const reply = turn?.replies.find((each) => String(each.number) === (number ?? "1"));
    text.value = reply ? reply.raw : EXAMPLE;
    tools.value = JSON.stringify(turn ? turn.tools : TOOLS, null, 2);
    if (turn) drawTurn(turn);
    if (turn && about.can_ask) fill(ways, waysSection(turn));
    await read();
  }

  /** Keep in sight what the reply was to, and the way back. */
  function drawTurn(turn) {
    question.hidden = !turn.question;
    question.textContent = visible(turn.question);
    ties.isYours = turn.source === "chat" || turn.source === "conversation";
    if (turn.source === "chat" && about.can_chat) fill(back, h("a", { href: `#/chat/${encodeURIComponent(id.slice(0, id.lastIndexOf(".")))}` }, `← ${t("view.chat")}`));
  }

  function waysSection(turn) {
    const rows = [
      { mode: "xml" }, { mode: "xml", call_threshold: "auto" }, { mode: "native" },
      ...(about.dialects ?? []).filter((each) => ["hermes", "qwen3-coder", "llama3-json"].includes(each)).map((each) => ({ mode: "xml", dialect: each })),
    ];
    const boxes = rows.map((row, place) => h("input", { type: "checkbox", checked: place < 3, data: { place } }));
    const columns = h("div", { className: "way-columns" });
    const stop = h("button", { hidden: true, onclick: () => under?.abort() }, t("stop"));
    const begin = h("button", { className: "main", onclick: () => ask(rows.filter((_, place) => boxes[place].checked)) }, t("try.ask"));

    async function ask(chosen) {
      if (!chosen.length) return;
      under?.abort();
      under = new AbortController();
      [stop.hidden, begin.disabled] = [false, true];
      const cells = chosen.map((row) => {
        const body = h("div", { className: "column" }, h("p", { className: "soft" }, t("try.waits")));
        columns.append(h("section", { className: "card pad column" }, h("h3", null, wayName(row)), body));
        return { body, view: null };
      });
      columns.replaceChildren(...[...columns.children].slice(-chosen.length));
      try {
        await postStream("ask", { turn: id, ways: chosen }, (name, data) => name === "way" && tell(cells[data.place], data), under.signal);
      } catch (error) {
        if (error.name !== "AbortError") columns.append(h("p", { className: "error", role: "alert" }, error.message));
      }
      [stop.hidden, begin.disabled] = [true, false];
    }

    function tell(cell, data) {
      if (data.error) fill(cell.body, h("p", { className: "error" }, data.error));
      else if (data.reply) {
        const record = { ...turn, question: "", error: "", replies: [data.reply] };
        if (cell.view) cell.view.update(record);
        else cell.view = renderTurn(cell.body, record, { isCompact: true });
      }
    }

    return h("section", { className: "column" }, h("h2", null, t("try.ways")),
      h("div", { className: "row" }, rows.map((row, place) => h("label", { className: "row" }, boxes[place], wayName(row))), begin, stop), columns);
  }

  begin().catch((error) => say(error.message));
  return { unmount() { under?.abort(); } };
}

function wayName(row) {
  const name = row.dialect ? `${wayText(row.mode)} · ${row.dialect}` : wayText(row.mode);
  return row.call_threshold ? `${name} · ${t("try.threshold")}` : name;
}
