/* English. */

const FRAME = {
  menu: "Main", skip: "Skip to the content", lost: "The program does not answer; the page is reconnecting.",
  "view.live": "Live", "view.turn": "Turn", "view.chat": "Chat", "view.recorded": "Recorded", "view.try": "Try",
  "switch.language": "中文", "switch.theme": "Light or dark", close: "Close", more: "More", search: "Search", copied: "Copied",
  "keys.title": "Keys", "keys.gl": "live turns", "keys.gc": "chat", "keys.gr": "recorded turns", "keys.gt": "try a text",
  "keys.jk": "next, previous line", "keys.Enter": "open", "keys.?": "this list", "keys.Esc": "close, stop",
  "only.label": "Which turns", "only.all": "All turns", "only.calls": "With calls", "only.repairs": "With repairs",
  "only.issues": "With calls that cannot run", "only.errors": "Failed",
  "live.none": "No turn matches.", "live.empty": "Nothing has been asked yet. Point a client at this server.",
  "live.empty_chat": "Nothing has been asked yet. Ask something in the chat.", no_question: "(no question)",
  "repairs.count": "{count} repaired", "issues.count": "{count} cannot run", "replies.count": "{count} {count|reply|replies}",
};

const TURN = {
  first_token: "first token", whole: "whole", tokens: "{count} {count|token|tokens}", "tokens.read": "{count} {count|token|tokens} read", "tokens.written": "{count} {count|token|tokens} written", cached: "cached", characters: "{count} {count|character|characters}",
  reply: "Reply {number}", finish: "ended by {reason}", "finish.stop": "ended by itself", "finish.tool_calls": "ended with calls", "finish.length": "cut off at the limit of tokens", writing: "being written", not_kept: "not kept, asked again", verdict: "judged",
  "reasoning.apart": "Reasoning that the server sent apart", "show.all": "Show all {count} {count|character|characters}", "turn.over": "The turn is over.",
  "raw.label": "What the model wrote", "raw.more": "Show {count} more characters", repair: "repaired",
  "span.text": "text", "span.reasoning": "reasoning", "span.markup": "markup", "span.name": "call", "span.value": "value", "span.end": "end of the call", "span.unread": "not read",
  "prompt.title": "Prompt", "prompt.messages": "{count} {count|message|messages}", "prompt.cached": "about {share} from the cache (shaded)",
  "role.system": "system", "role.user": "person", "role.assistant": "model", "role.tool": "result",
  "copy.menu": "Copy", "copy.raw": "Copy text", "copy.corpus": "Copy as case", "copy.curl": "Copy as curl", "copy.bench": "Copy for bench", "try.this": "Open in Try",
  "call.label": "Call of {name}", "call.allowed_by": "allowed by: {who}", "call.denied_by": "denied by: {who}", "call.allowed_you": "allowed by you", "call.allowed_always": "always allowed by you", "call.denied_you": "denied by you",
  "call.held": "The conversation does not give {values}. The model writes the call again after the results.", "call.no_person": "denied: there was no person to ask", "call.no_answer": "denied: no answer came in time", "call.no_rule": "denied: no rule allows it", "call.repeated": "denied: the same call came too often in a row", "call.tool_changes": "denied: the server kept changing the tool",
  "call.issues": "Why it cannot run", "call.repairs": "What was repaired", "call.no_arguments": "No arguments", "call.ran_with": "A person changed the arguments to",
  "call.result": "Result", "value.path": "Argument", "value.value": "Value", "value.source": "Comes from", "value.show": "Show its place",
  "issue.expected": "Expected:", "issue.got": "Got:", "issue.told": "What the model reads",
  "source.person": "the person", "source.you": "you", "source.result": "result {number} of {tool}", "source.some_result": "a result of {tool}", "source.schema": "the tool's description", "source.system": "the instructions",
  "source.assistant": "the model earlier", "source.trivial": "plain value", "source.invented": "the model alone",
  "source.translation": "perhaps the person's words, translated; else {otherwise}", "source.translation_you": "perhaps your words, translated; else {otherwise}",
  "outcome.writing": "being written", "outcome.waiting": "waits for you", "outcome.running": "runs", "outcome.ok": "ran", "outcome.error": "tool error",
  "outcome.failed": "server failed", "outcome.denied": "denied", "outcome.rejected": "cannot run", "outcome.held": "held back", "outcome.handed over": "handed to the client",
  "outcome.unknown": "unknown whether it ran", "outcome.not started": "not started",
  "end.running": "under way", "end.end": "answered", "end.stop": "answered", "end.tool_calls": "calls handed over", "end.error": "error", "end.left": "the client left",
  "end.length": "cut off", "end.max_turns": "too many replies", "end.invalid_calls": "calls cannot run", "end.tool_errors": "tools failed", "end.repeated_call": "same call again",
  "end.invented_results": "invented results", "end.own_words": "repeated the prompt", "end.repetition": "repeated itself", "end.no_tool_call": "no call", "end.stopped": "stopped",
  "way.xml": "tools in the prompt", "way.native": "the server's own calls", "way.native-only": "only the server's own calls", "way.auto": "way not decided yet", "way.plain": "no tools", "way.relayed": "passed on unread", "way.title": "How the model gets the tools (mode {way})",
  "life.waiting": "Waiting for the model", "life.reading": "Reading the prompt, {read} of {total} tokens", "life.queued": "Another conversation is answered first", "life.writing": "The model writes", "life.writing_call": "The model writes a call", "life.running": "{name} runs", "life.seconds": "{text}, {seconds} s",
  "over.left": "You stopped this.", "over.max_turns": "No answer: the model kept calling tools. Ask for less, or allow more replies with --max-turns.",
  "over.invalid_calls": "No answer: the model wrote no valid call, even after its errors were explained to it. Use a larger model.",
  "over.tool_errors": "No answer: one call after another failed. Look at the calls above, or rephrase the question.",
  "over.invented_results": "No answer: the model wrote results that no tool gave. Rephrase the question, or use a larger model.",
  "over.own_words": "No answer: the model only repeated its instructions. Rephrase the question, or use a larger model.",
  "over.repetition": "The model repeated itself and was stopped. Rephrase the question, or use a larger model.",
  "over.repeated_call": "No answer: the model made the same call again and again. Rephrase the question, or use a larger model.",
  "over.length": "The reply was cut off at the limit of tokens. Allow more with --ask max_tokens=N, or give a larger --context.",
  "refusal.invented_results": "Not an answer: the model wrote results that no tool gave. It was asked again with that reason.",
  "refusal.own_words": "Not an answer: the model repeated its instructions. It was asked again with that reason.",
  "refusal.unfounded": "Asked again: the answer stated something that no tool found.",
  "refusal.undone": "Asked again: the answer claimed to have done something that no tool did.",
  "refusal.native_empty": "The server's own function calling gave an empty reply. Asked again with the tools in the prompt.",
  "refusal.native_unread": "The server could not read what its model wrote. Asked again with the tools in the prompt.",
  "refusal.native_failed": "The server failed with its own function calling. Asked again with the tools in the prompt.",
  "refusal.no_access": "Asked again: the model said that it has no access, but a tool may have.",
  "refusal.repeated_answer": "Asked again: the answer repeated an earlier one despite a new result.",
};

const RECORDED = {
  "recorded.conversations": "Conversations", "recorded.runs": "Measured runs", "recorded.files": "Files of turns", "recorded.no_conversations": "No conversation is kept yet.",
  "messages.count": "{count} {count|message|messages}", "turns.count": "{count} {count|turn|turns}", loading: "Reading …", copy: "Copy", image: "Picture",
  "filter.way": "Way", "filter.failure": "Failure", "filter.repair": "Repair", "filter.tool": "Tool", "filter.all": "all", "chat.go_on": "Continue in the chat",
};

const TRY = {
  "try.text": "A reply, as a model wrote it", "try.tools": "Tools on offer (JSON, as MCP has them)", "try.dialect": "Format", "try.ending": "Reply", "try.ending.stop": "is whole",
  "try.ending.length": "was cut", "try.reasoning_open": "begins inside <think>", "try.no_call": "There is no call in this text.", "try.ways": "The same question in other ways (nothing runs)",
  "try.ask": "Ask", "try.waits": "waits …", "try.threshold": "with threshold", stop: "Stop",
};

const CHAT = {
  "chat.new": "New conversation", "chat.list": "Conversations", "chat.side": "Conversations and tools", "chat.ask": "Ask something; Shift+Enter for a new line", "chat.send": "Send", "chat.regenerate": "Regenerate", "chat.ask_again": "Ask again", "chat.edit": "Edit", "chat.inspect": "Inspect",
  "chat.busy": "Not sent: an answer is under way. Wait for its end, or stop it.",
  "chat.editing": "You edit a question: the answer begins a branch, and what was answered stays.", "chat.branches": "Branches", "chat.branch": "branch at turn {at}", "chat.branch_of": "branch of {id}, at turn {at}", "chat.tools": "Servers and tools", "chat.no_tools": "No server is configured.", "tool.allowed": "allowed", "tool.take_back": "You always allow this tool. Click to be asked again.",
  "chat.hello": "What would you like to know?", "chat.status": "{tokens} tokens in use, {cached} from the cache", "server.starting": "starting", "server.failed": "failed; it is tried again", "server.off": "off",
  "refused.turn_running": "An answer of this conversation is still under way. Wait for its end, or stop it.", "refused.nothing_running": "Nothing is running in this conversation.", "refused.held_elsewhere": "Another program uses this conversation. Close it there, or begin a new one.", "refused.no_conversation": "There is no such conversation any more.",
  "refused.already_answered": "This question has its answer already.", "refused.no_question": "This question is not open any more.", "refused.no_turn": "There is no such turn any more: only the newest ones are kept.", "refused.other_page_asks": "Another page is asking just now. Wait until it has its answers.",
  "asks.nothing": "No tool is on offer: the model answers from what it knows.", "asks.all": "You are asked before any call runs.", "asks.none": "Calls run without asking you, since rules allow these tools; a call with a value that looks made up may still ask.", "asks.some": "These tools run without asking you, since rules or you allow them: {names}. You are asked before any other call.",
  "ask.title": "May this call run?", "ask.destructive": "Its server says that it may destroy something.", "ask.unsaid": "The conversation does not give {names}: the model was asked again, and kept its call.", "ask.unsaid_place": "The conversation does not mention the place in {path}.", "ask.foreign": "{path} comes from server {server}, not from you.",
  "ask.repairs": "The model did not write it quite as shown; repaired: {codes}", "ask.changed": "The server has changed this tool's description since you allowed it.", "ask.changes": "What changes", "ask.times": "The same call, {count} times in a row.",
  "ask.yes": "Yes", "ask.no": "No", "ask.deny": "Do not run it", "ask.always": "Allow this tool until xmlcall ends", "ask.with": "Allow these arguments until xmlcall ends", "ask.edit": "Edit arguments", "ask.stop": "Stop", "ask.more": "More answers", "ask.reason": "Reason for the model (may be empty)",
  "ask.run_edited": "Run with these", "ask.cancel": "Back", "ask.keys": "Keys: y yes, n no, e edit, a this tool from now on, w these arguments, s stop", "ask.was_yes": "accepted", "ask.was_no": "declined", "ask.was_stop": "stopped", "ask.was_late": "not answered in time", "ask.was_gone": "withdrawn",
  "ask.server": "{server} asks you", "ask.completion": "{server} wants the model to answer this", "ask.reply": "Send this answer to {server}?", "ask.address": "{server} wants you to open an address", "ask.accept": "Accept", "ask.decline": "Decline",
};

export const EN = { ...FRAME, ...TURN, ...RECORDED, ...TRY, ...CHAT };
