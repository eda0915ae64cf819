/* A chat with the configured servers.

   The server keeps the conversation; the page shows its turns as they are (`turns/ID/events`) and sends what the person does. So a
   page that is opened anew, or a second one, sees the same. */

import { get, post, stream } from "./api.js";
import { about, go, listen, say } from "./app.js";
import { callCard, outcomeChip } from "./call_card.js";
import { fill, h } from "./dom.js";
import { count, seconds, share, t } from "./i18n.js";
import { markdown } from "./markdown.js";
import { questionCard, requestCard } from "./question.js";
import { outcomeText, renderTurn } from "./turn.js";
import { readable, visible } from "./visible.js";

const part = encodeURIComponent;

export function mount(container, [given]) {
  const log = h("div", { className: "column chat-log", role: "log", "aria-label": t("view.chat") });
  const side = h("aside", { className: "column chat-side" });
  const status = h("p", { className: "soft small chat-status" });
  const problem = h("p", { className: "error", role: "alert", hidden: true });
  const input = h("textarea", { rows: 2, placeholder: t("chat.ask"), "aria-label": t("chat.ask"), onkeydown: onInputKey });
  const send = h("button", { className: "main", onclick: ask }, t("chat.send"));
  const stop = h("button", { className: "danger", hidden: true, onclick: () => stopTurn() }, t("stop"));
  const cards = new Map(); // id of a question -> card
  const followed = new Map(); // id of a turn -> what ends following it
  let conversation = given ?? null;
  let insteadOf = null;
  let underWay = null;
  let opening = 0; // how often it was opened: what an older opening was told is stale

  fill(container, h("div", { className: "chat" }, h("div", { className: "chat-main" }, log,
    h("div", { className: "chat-input column" }, problem, h("div", { className: "row" }, input, send, stop), status)), side));

  async function open() {
    const mine = ++opening;
    endFollowing();
    fill(log);
    if (!conversation) {
      fill(log, h("p", { className: "empty" }, t("chat.hello")));
      return drawSide();
    }
    const found = await get(`chat/${part(conversation)}`);
    if (mine !== opening) return undefined;
    const newer = log.firstChild; // what came while we waited stays below, and where the focus is
    const add = (element) => log.insertBefore(element, newer);
    const { branch_of: origin } = found.conversation;
    if (origin) add(h("p", { className: "small" }, h("a", { href: `#/chat/${part(origin.id)}` }, t("chat.branch_of", origin))));
    for (const turn of found.turns) if (!followed.has(turn.id)) addTurn(turn, newer);
    if (found.branches.length) {
      add(h("p", { className: "small row" }, t("chat.branches"), found.branches.map((each) => h("a", { href: `#/chat/${part(each.id)}`, className: "chip info" }, t("chat.branch", each)))));
    }
    if (found.conversation.turn) follow(found.conversation.turn);
    for (const each of found.questions ?? []) onEvent(each.kind === "call" ? "question" : "request", each);
    toEnd();
    return drawSide(found.conversation);
  }

  function addTurn(turn, before = null) {
    const box = h("section", { className: "chat-turn column", data: { turn: turn.id } });
    log.insertBefore(box, before);
    const view = turnView(box, turn, { onRetry: retry, onDifferently: differently });
    return view;
  }

  function follow(id) {
    if (followed.has(id)) return;
    setUnderWay(id);
    let view = null;
    let record = null;
    const end = stream(`turns/${part(id)}/events`, {
      turn(now) {
        record = now;
        const isNear = nearEnd();
        if (view) view.update(record);
        else {
          log.querySelector(`[data-turn="${CSS.escape(id)}"]`)?.remove();
          view = addTurn(record);
        }
        drawStatus(record);
        if (isNear) toEnd();
      },
      delta(delta) {
        if (!record) return;
        record = withDelta(record, delta);
        const isNear = nearEnd();
        view.update(record);
        if (isNear) toEnd();
      },
      end() {
        end();
        followed.delete(id);
        if (underWay === id) setUnderWay(null);
        say(record?.answer ? record.answer.slice(0, 500) : outcomeText(record?.outcome ?? "", "chat"));
      },
    });
    followed.set(id, end);
  }

  function setUnderWay(id) {
    underWay = id;
    stop.hidden = !id;
    send.disabled = Boolean(id);
  }

  const nearEnd = () => window.innerHeight + window.scrollY > document.body.scrollHeight - 160;
  const toEnd = () => window.scrollTo({ top: document.body.scrollHeight });

  async function ask() {
    const question = input.value.trim();
    if (!question || underWay) return;
    await doing(async () => {
      const begun = await post("chat", { conversation, question, ...(insteadOf ? { instead_of: insteadOf } : {}) });
      input.value = "";
      went(begun);
    });
  }

  function went(begun) {
    const isNew = begun.conversation !== conversation;
    insteadOf = null;
    conversation = begun.conversation;
    if (isNew) {
      history.replaceState(null, "", `#/chat/${part(conversation)}`);
      open().catch(tell);
    } else follow(begun.turn);
  }

  async function doing(work) {
    problem.hidden = true;
    try {
      await work();
    } catch (error) {
      tell(error);
    }
  }

  function tell(error) {
    problem.hidden = false;
    problem.textContent = error.message;
  }

  const stopTurn = () => doing(() => post(`chat/${part(conversation)}/stop`));
  const retry = () => doing(async () => went(await post(`chat/${part(conversation)}/retry`)));

  function differently(turn) {
    insteadOf = turn.id;
    input.value = turn.question;
    input.focus();
  }

  function onInputKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask();
    }
    if (event.key === "Escape" && insteadOf) {
      insteadOf = null;
      input.value = "";
    }
  }

  function onPageKey(event) {
    if (event.key === "Escape" && underWay && !document.querySelector("dialog")) stopTurn();
  }

  function onEvent(name, data) {
    if (name === "again") return open().catch(tell);
    if (name === "servers") return drawSide();
    if (name === "answered") return cards.get(data.id)?.answered(data.answer);
    if (name === "notice") return log.append(h("p", { className: "small soft break" }, visible(data.text)));
    const isMine = data?.turn === "" || (conversation && String(data?.turn ?? "").startsWith(`${conversation}.`));
    if ((name === "question" || name === "request") && isMine && !cards.has(data.id)) {
      const card = name === "question" ? questionCard(data) : requestCard(data);
      cards.set(data.id, card);
      log.append(card.element);
      card.element.focus();
      card.element.scrollIntoView({ block: "nearest" });
      say(t("ask.title"));
    }
    return undefined;
  }

  function drawStatus(record) {
    const last = record.replies.at(-1);
    status.textContent = last && last.prompt_tokens !== null
      ? t("chat.status", { tokens: count(last.prompt_tokens + (last.completion_tokens ?? 0)), cached: share(last.cached_tokens, last.prompt_tokens) }) : "";
  }

  async function drawSide() {
    const [{ conversations }, facts] = await Promise.all([get("recorded"), get("about")]);
    fill(side, h("button", { onclick: () => go("chat") }, t("chat.new")), h("details", { open: window.innerWidth > 900 }, h("summary", null, h("strong", null, t("chat.list"))),
      h("ul", { className: "list" }, conversations.slice(0, 30).map((each) => h("li", null,
        h("a", { href: `#/chat/${part(each.id)}`, className: "clip", "aria-current": each.id === conversation ? "page" : null }, visible(each.title) || each.id))))),
      h("details", { open: window.innerWidth > 900 }, h("summary", null, h("strong", null, t("chat.tools"))), serversOf(facts.servers)));
  }

  function serversOf(servers) {
    if (!servers?.length) return h("p", { className: "soft small" }, t("chat.no_tools"));
    const toggle = (path, isOn) => ({ target }) => doing(async () => { target.disabled = true; await post(path, { is_on: !isOn }); await drawSide(); });
    return servers.map((server) => h("div", { className: "column server" },
      h("label", { className: "row" }, h("input", { type: "checkbox", checked: server.is_on, onchange: toggle(`servers/${part(server.name)}`, server.is_on) }), h("strong", null, visible(server.name)), h("span", { className: "soft small" }, visible(server.state ?? ""))),
      server.is_on ? h("ul", { className: "tools" }, server.tools.map((tool) => h("li", null, h("label", { className: "row", title: visible(tool.description ?? "") },
        h("input", { type: "checkbox", checked: tool.is_on, onchange: toggle(`tools/${part(tool.name)}`, tool.is_on) }), h("span", { className: "mono clip" }, visible(tool.name)), tool.destructive ? h("span", { className: "chip warn", title: t("ask.destructive") }, "!") : null)))) : null));
  }

  function endFollowing() {
    for (const end of followed.values()) end();
    followed.clear();
    cards.clear();
    setUnderWay(null);
  }

  addEventListener("keydown", onPageKey);
  const forget = listen(onEvent);
  open().catch(tell);
  input.focus();
  return { unmount() { opening += 1; forget(); endFollowing(); removeEventListener("keydown", onPageKey); } };
}

/** Add to the last reply of a record what has come to it. */
function withDelta(record, delta) {
  const replies = record.replies.map((reply) => (reply.number !== delta.reply ? reply : {
    ...reply, ...delta.rest, raw: reply.raw + delta.raw, spans: [...reply.spans.filter((span) => span.start < delta.from_span), ...delta.spans],
  }));
  return { ...record, replies };
}

/** Draw a turn as a person reads it: question, calls in a line each, the answer; how it was read is folded below. */
function turnView(box, turn, ties) {
  const body = h("div", { className: "column answer" });
  const details = h("details", { className: "fold small", ontoggle: () => details.open && drawDetails() }, h("summary", null, t("chat.details")));
  const inside = h("div", { className: "column" });
  const opened = new Set();
  let shown = turn;
  let full = null;
  details.append(inside);
  fill(box, h("div", { className: "question break" }, readable(turn.question)), body, h("div", { className: "row" }, details, h("span", { className: "push" }),
    h("button", { className: "plain", onclick: () => ties.onDifferently(shown) }, t("chat.differently")), h("button", { className: "plain", onclick: ties.onRetry }, t("chat.retry"))));

  function drawDetails() {
    if (full) full.update(shown);
    else full = renderTurn(inside, shown, { isCompact: true, canTry: true, canCopy: true });
  }

  function draw() {
    const parts = shown.replies.filter((reply) => reply.is_kept).flatMap((reply) => [markdownOf(reply), ...reply.calls.map((call) => callLine(call, opened))]);
    const isOver = Boolean(shown.outcome);
    fill(body, parts, isOver || parts.length ? null : h("p", { className: "soft running" }, ` ${t("chat.thinking")}`), shown.error ? h("p", { className: "error" }, visible(shown.error)) : null,
      isOver && shown.outcome !== "end" ? h("p", { className: "small soft" }, outcomeText(shown.outcome, shown.source)) : null);
    if (details.open) drawDetails();
  }

  draw();
  return { update(next) { shown = next; draw(); } };
}

/** Return the text of a reply that is for a person. */
function markdownOf(reply) {
  const letters = reply.spans.some((span) => span.kind !== "text") ? textOf(reply) : reply.raw;
  return letters.trim() ? markdown(letters.trim()) : null;
}

function textOf(reply) {
  const characters = Array.from(reply.raw);
  return reply.spans.filter((span) => span.kind === "text").map((span) => characters.slice(span.start, span.end).join("")).join("");
}

function callLine(call, opened) {
  const target = call.server ? `${call.server}.${call.tool}` : call.name;
  const inside = h("div", null);
  const details = h("details", { className: "call-line", open: opened.has(call.id), ontoggle: () => {
    if (details.open) { opened.add(call.id); fill(inside, callCard(call, { opened, onPoint() {} })); } else opened.delete(call.id);
  } }, h("summary", null, h("span", { className: "mono" }, visible(target)), " ", outcomeChip(call.outcome), call.seconds !== null ? h("span", { className: "soft small" }, ` ${seconds(call.seconds)}`) : null,
    call.repairs.length ? h("span", { className: "chip warn" }, `◆ ${t("repairs.count", { count: call.repairs.length })}`) : null), inside);
  return details;
}
