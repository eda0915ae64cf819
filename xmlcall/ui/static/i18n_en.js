/* English. */

import { EN_VIEWS } from "./i18n_views_en.js";

const FRAME = {
  menu: "Main", skip: "Skip to the content", lost: "The program does not answer; this page looks for it again.",
  "view.live": "Live", "view.turn": "Turn", "view.chat": "Chat", "view.recorded": "Recorded", "view.try": "Try",
  "switch.language": "中文", "switch.theme": "Light or dark", close: "Close", more: "More", search: "Search", copied: "Copied",
  "keys.title": "Keys", "keys.gl": "live turns", "keys.gc": "chat", "keys.gr": "recorded turns", "keys.gt": "try a text",
  "keys.jk": "next, previous line", "keys.Enter": "open", "keys.?": "this list", "keys.Esc": "close, stop",
  "only.label": "Which turns", "only.all": "All turns", "only.calls": "With calls", "only.repairs": "With repairs",
  "only.issues": "With calls that cannot run", "only.errors": "Failed",
  "live.none": "No turn is like that.", "live.empty": "Nothing has been asked yet. Point a client at this server.",
  "live.empty_chat": "Nothing has been asked yet. Ask something in the chat.", no_question: "(no question)",
  "repairs.count": "{count} repaired", "issues.count": "{count} cannot run", "replies.count": "{count} replies",
};

const TURN = {
  first_token: "first token", whole: "whole", tokens: "{count} tokens", cached: "cached", characters: "{count} characters",
  reply: "Reply {number}", finish: "ended by", writing: "being written", not_kept: "not kept, asked again", verdict: "judged",
  "reasoning.apart": "Reasoning that the server sent apart", "show.all": "Show all {count} characters", "turn.over": "The turn is over.",
  "raw.label": "What the model wrote", "raw.more": "Show {count} more characters", repair: "repaired",
  "span.text": "text", "span.reasoning": "reasoning", "span.markup": "markup", "span.name": "call", "span.value": "value", "span.end": "end of the call", "span.unread": "not read",
  "prompt.title": "Prompt", "prompt.messages": "{count} messages", "prompt.cached": "about {share} from the cache (shaded)",
  "role.system": "system", "role.user": "person", "role.assistant": "model", "role.tool": "result",
  "copy.raw": "Copy text", "copy.corpus": "Copy as case", "copy.curl": "Copy as curl", "copy.bench": "Copy for bench", "try.this": "Try again",
  "call.label": "Call of {name}", "call.allowed_by": "Allowed by: {who}", "call.denied_by": "Denied by: {who}",
  "call.issues": "Why it cannot run", "call.repairs": "What was repaired", "call.no_arguments": "No arguments", "call.ran_with": "A person changed the arguments to",
  "call.result": "Result", "value.path": "Argument", "value.value": "Value", "value.source": "Comes from", "value.show": "Show where it stands",
  "issue.expected": "Expected:", "issue.got": "Got:", "issue.told": "What the model is told",
  "source.person": "the person", "source.result": "result {number} of {tool}", "source.some_result": "a result of {tool}", "source.schema": "the schema", "source.system": "the instructions",
  "source.assistant": "the model earlier", "source.trivial": "plain value", "source.invented": "the model alone",
  "outcome.writing": "being written", "outcome.waiting": "waits for you", "outcome.running": "runs", "outcome.ok": "ran", "outcome.error": "tool error",
  "outcome.failed": "server failed", "outcome.denied": "denied", "outcome.rejected": "cannot run", "outcome.held": "held back", "outcome.handed over": "handed to the client",
  "outcome.unknown": "unknown whether it ran", "outcome.not started": "not started",
  "end.running": "under way", "end.end": "answered", "end.stop": "answered", "end.tool_calls": "calls handed over", "end.error": "error", "end.left": "the client left",
  "end.length": "cut off", "end.max_turns": "too many replies", "end.invalid_calls": "calls cannot run", "end.tool_errors": "tools failed", "end.repeated_call": "same call again",
  "end.invented_results": "invented results", "end.own_words": "repeated the prompt", "end.repetition": "repeated itself", "end.no_tool_call": "no call", "end.stopped": "stopped",
  "refusal.invented_results": "Not an answer: the model wrote results that no tool gave. It was told, and asked again.",
  "refusal.own_words": "Not an answer: the model repeated its instructions. It was told, and asked again.",
  "refusal.unfounded": "Asked again: the answer stated what no tool had found.",
  "refusal.undone": "Asked again: the answer said that it was done, and no tool did it.",
  "refusal.repeated_answer": "Asked again: the answer was an earlier one, although there is a new result.",
};

export const EN = { ...FRAME, ...TURN, ...EN_VIEWS };
