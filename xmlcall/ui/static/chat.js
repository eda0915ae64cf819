/* A chat with the configured servers: the conversation, and the place where the next question is written.

   The server keeps the conversation; the page shows its turns as they are (`turns/ID/events`) and sends what the person does. So a
   page that is opened anew, or a second one, sees the same. */

import { get, post, stream } from "./api.js";
import { about, atChat, go, listen, say } from "./app.js";
import { asksWhat, historyOf, serversOf, startersOf } from "./chat_side.js";
import { turnView } from "./chat_turn.js";
import { fill, h } from "./dom.js";
import { count, share, t, wayText } from "./i18n.js";
import { requestCard } from "./question.js";
import { outcomeText } from "./turn.js";
import { visible } from "./visible.js";

const part = encodeURIComponent;
const SIDE = "chat-side";
const WIDE = "(min-width: 901px)"; // where it is no drawer, as in views.css

let draft = ""; // what is written and not sent stays while another view is looked at

export function mount(container, [given]) {
  const log = h("div", { className: "column chat-log", role: "log", "aria-live": "off", "aria-label": t("view.chat"), tabIndex: 0 });
  const side = h("aside", { className: "column chat-side", id: SIDE, popover: "auto", "aria-label": t("chat.side") });
  const status = h("p", { className: "soft small chat-status" });
  const problem = h("p", { className: "error", role: "alert", hidden: true });
  const busy = h("p", { className: "small", role: "status", hidden: true }, t("chat.busy"));
  const editing = h("p", { className: "small row", hidden: true }, h("span", null, t("chat.editing")), h("button", { className: "plain", onclick: endEditing }, t("ask.cancel")));
  const input = h("textarea", { rows: 2, value: draft, placeholder: t("chat.ask"), "aria-label": t("chat.ask"), onkeydown: onInputKey, oninput: () => { draft = input.value; } });
  const send = h("button", { className: "main large", onclick: ask }, t("chat.send"));
  const stop = h("button", { className: "danger large", hidden: true, onclick: () => stopTurn() }, t("stop"));
  const requests = new Map(); // id of what a server asks -> card
  const views = new Map(); // id of a turn -> how it is drawn
  const waited = new Map(); // id of a turn -> what it waits for, as the program said last
  const followed = new Map(); // id of a turn -> what ends following it
  let conversation = given ?? null;
  let insteadOf = null;
  let underWay = null;
  let sent = null; // a question of which the server has not said yet that it is asked
  let opening = 0; // how often it was opened: what an older opening was told is stale

  fill(container, h("div", { className: "chat" }, side, h("div", { className: "chat-main" }, h("h1", { className: "unseen" }, t("view.chat")),
    h("div", { className: "chat-top" }, h("button", { popovertarget: SIDE, "aria-label": t("chat.side") }, "☰", h("span", { className: "wide" }, ` ${t("chat.side")}`)), h("span", { className: "soft small clip" }, [visible(about.model ?? ""), about.way ? wayText(about.way) : ""].filter(Boolean).join(" · "))), log,
    h("div", { className: "chat-input" }, problem, busy, editing, h("div", { className: "row" }, input, send, stop), status))));

  async function open() {
    const mine = ++opening;
    endFollowing();
    fill(log, sent?.element);
    atChat(conversation ? `chat/${part(conversation)}` : "chat");
    if (!conversation) return drawAround();
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
    endSent();
    if (found.conversation.turn) follow(found.conversation.turn);
    for (const each of found.questions ?? []) onEvent(each.kind === "call" ? "question" : "request", each);
    toEnd();
    return drawAround();
  }

  /** Draw a turn; one that is there already, since a question about it came first, stays where it is. */
  function addTurn(turn, before = null) {
    if (views.has(turn.id)) {
      views.get(turn.id).update(turn);
      return views.get(turn.id);
    }
    const view = turnView(turn, { onRegenerate: regenerate, onEdit: edit, onAnswered: () => log.focus({ preventScroll: true }) });
    views.set(turn.id, view);
    if (waited.has(turn.id)) view.waits(waited.get(turn.id));
    log.insertBefore(view.element, before);
    return view;
  }

  function follow(id) {
    if (followed.has(id)) return;
    setUnderWay(id);
    let record = null;
    const update = (next) => {
      record = next;
      const isNear = nearEnd();
      addTurn(record);
      endSent();
      if (isNear) toEnd();
    };
    const end = stream(`turns/${part(id)}/events`, {
      turn(now) {
        update(now);
        drawStatus(now);
      },
      delta(delta) {
        if (record) update(withDelta(record, delta));
      },
      end() {
        end();
        followed.delete(id);
        waited.delete(id);
        if (underWay === id) setUnderWay(null);
        say(record?.answer ? record.answer.slice(0, 500) : outcomeText(record?.outcome ?? "", "chat"));
      },
    });
    followed.set(id, end);
  }

  function setUnderWay(id) {
    underWay = id;
    stop.hidden = !id;
    send.hidden = Boolean(id);
    if (!id) busy.hidden = true;
  }

  const nearEnd = () => log.scrollTop + log.clientHeight > log.scrollHeight - 160;

  function toEnd() {
    if (!log.querySelector(".ask:not(.over)")) log.scrollTop = log.scrollHeight; // what a person reads before answering stays
  }

  async function ask() {
    const question = input.value.trim();
    if (!question) return;
    if (underWay || sent) {
      busy.hidden = false;
      return;
    }
    const edited = insteadOf;
    endEditing();
    write(""); // at once: what is typed from now on is the next question
    if (await asking(question, edited)) return;
    insteadOf = edited;
    editing.hidden = !edited;
    write([question, input.value].filter(Boolean).join("\n"));
  }

  function write(text) {
    draft = input.value = text;
  }

  /** Ask, and show at once that it is asked: the program's first word about the turn may be seconds away. */
  async function asking(question, insteadOfTurn) {
    return doing(async () => {
      if (!conversation) fill(log);
      sent = turnView({ id: "", question, replies: [], outcome: "", error: "", source: "chat" }, {});
      log.append(sent.element);
      toEnd();
      say(t("life.waiting"));
      const begun = await post("chat", { conversation, question, ...(insteadOfTurn ? { instead_of: insteadOfTurn } : {}) });
      went(begun);
    });
  }

  function endSent() {
    sent?.remove();
    sent = null;
  }

  function went(begun) {
    const isNew = begun.conversation !== conversation;
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
      return true;
    } catch (error) {
      endSent();
      tell(error);
      return false;
    }
  }

  function tell(error) {
    problem.hidden = false;
    problem.textContent = error.message;
  }

  const stopTurn = () => doing(() => post(`chat/${part(conversation)}/stop`));
  const regenerate = (turn) => (underWay || sent ? undefined : asking(turn.question, turn.id));

  function edit(turn) {
    insteadOf = turn.id;
    write(turn.question);
    editing.hidden = false;
    input.focus();
  }

  function endEditing() {
    if (insteadOf) write("");
    insteadOf = null;
    editing.hidden = true;
  }

  function onInputKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask();
    }
    if (event.key === "Escape" && insteadOf) {
      event.stopPropagation();
      endEditing();
    }
  }

  function onPageKey(event) {
    if (event.key === "Escape" && underWay && !document.querySelector("dialog, :popover-open")) stopTurn();
  }

  function onEvent(name, data) {
    if (name === "again") return open().catch(tell);
    if (name === "servers") return drawAround();
    if (name === "notice") return log.append(h("p", { className: "small soft break" }, visible(data.text)));
    if (name === "answered") {
      requests.get(data.id)?.answered(data.answer);
      for (const view of views.values()) view.answered(data.id);
      return undefined;
    }
    if (name === "waiting") {
      waited.set(data.turn, { ...data, since: performance.now() - data.seconds * 1000 });
      views.get(data.turn)?.waits(waited.get(data.turn));
    }
    const isMine = data?.turn === "" || (conversation && String(data?.turn ?? "").startsWith(`${conversation}.`));
    if (!isMine) return undefined;
    if (name === "question") askAbout(data);
    if (name === "request" && !requests.has(data.id)) {
      const card = requestCard(data);
      requests.set(data.id, card);
      log.append(card.element);
      toCard(card.element);
    }
    return undefined;
  }

  /** Show a question in the place of its call, also when it comes before the record of its turn. */
  function askAbout(data) {
    const view = views.get(data.turn) ?? addTurn({ id: data.turn, question: "", replies: [], outcome: "", error: "", source: "chat" });
    const card = view.ask(data);
    if (card) toCard(card);
  }

  function toCard(element) {
    if (!input.value) element.focus({ preventScroll: true }); // who is writing must not answer with the next letter
    element.scrollIntoView({ block: element.offsetHeight > log.clientHeight ? "start" : "nearest" });
    say(t("ask.title"));
  }

  function drawStatus(record) {
    const last = record.replies.at(-1);
    status.textContent = last && last.prompt_tokens !== null
      ? t("chat.status", { tokens: count(last.prompt_tokens + (last.completion_tokens ?? 0)), cached: share(last.cached_tokens, last.prompt_tokens) }) : "";
  }

  async function drawAround() {
    const [{ conversations }, { servers }] = await Promise.all([get("recorded"), get("about")]);
    const held = side.contains(document.activeElement) ? document.activeElement.dataset.path : null;
    const toggle = (path, isOn) => ({ target }) => doing(async () => { target.disabled = true; await post(path, { is_on: !isOn }); await drawAround(); });
    const takeBack = (name) => doing(async () => { await post(`take_back/${part(name)}`); await drawAround(); });
    const close = h("button", { className: "plain drawer-close", "aria-label": t("close"), onclick: closeSide }, "✕");
    fill(side, h("div", { className: "row" }, h("button", { className: "grow", onclick: () => { closeSide(); go("chat"); } }, t("chat.new")), close), historyOf(conversations, conversation), serversOf(servers, toggle, takeBack));
    if (held) side.querySelector(`[data-path="${CSS.escape(held)}"]`)?.focus();
    if (!conversation && !sent) fill(log, hello(servers ?? []));
  }

  function hello(servers) {
    const begin = (text) => { write(text); input.focus(); };
    return h("div", { className: "hello column" }, h("h2", null, t("chat.hello")), startersOf(servers, begin), h("p", { className: "soft" }, asksWhat(servers)));
  }

  function endFollowing() {
    for (const end of followed.values()) end();
    for (const view of views.values()) view.remove();
    followed.clear();
    views.clear();
    requests.clear();
    setUnderWay(null);
  }

  const closeSide = () => side.hidePopover();
  const wide = matchMedia(WIDE); // a drawer that stays open while the window is widened would cover the page
  wide.addEventListener("change", closeSide);
  addEventListener("keydown", onPageKey);
  const forget = listen(onEvent);
  open().catch(tell);
  input.focus();
  return { unmount() { opening += 1; forget(); endFollowing(); endSent(); removeEventListener("keydown", onPageKey); wide.removeEventListener("change", closeSide); } };
}

/** Add to the last reply of a record what has come to it. */
function withDelta(record, delta) {
  const replies = record.replies.map((reply) => (reply.number !== delta.reply ? reply : {
    ...reply, ...delta.rest, raw: reply.raw + delta.raw, spans: [...reply.spans.filter((span) => span.start < delta.from_span), ...delta.spans],
  }));
  return { ...record, replies };
}
