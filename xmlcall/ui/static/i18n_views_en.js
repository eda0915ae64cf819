/* English words of chat, recorded turns and reading anew. */

const RECORDED = {
  "recorded.conversations": "Conversations", "recorded.runs": "Measured runs", "recorded.files": "Files of turns", "recorded.no_conversations": "No conversation was kept yet.",
  "messages.count": "{count} messages", "turns.count": "{count} turns", loading: "Reading …", copy: "Copy", image: "Picture",
  "filter.way": "Way", "filter.failure": "Failure", "filter.repair": "Repair", "filter.tool": "Tool", "filter.all": "all", "chat.go_on": "Go on in the chat",
};

const TRY = {
  "try.text": "A reply, as a model wrote it", "try.tools": "Tools on offer (JSON, as MCP has them)", "try.dialect": "Format", "try.ending": "Reply", "try.ending.stop": "is whole",
  "try.ending.length": "was cut", "try.reasoning_open": "begins inside <think>", "try.no_call": "No call stands in this text.", "try.ways": "The same question in other ways (nothing runs)",
  "try.ask": "Ask", "try.waits": "waits …", "try.threshold": "with threshold", stop: "Stop",
};

const CHAT = {
  "chat.new": "New conversation", "chat.list": "Conversations", "chat.ask": "Ask something; Shift+Enter for a new line", "chat.send": "Send", "chat.retry": "Ask again", "chat.differently": "Ask differently",
  "chat.branches": "Branches", "chat.branch": "branch at turn {at}", "chat.branch_of": "branch of {id}, at turn {at}", "chat.tools": "Servers and tools", "chat.no_tools": "No server is configured.",
  "chat.hello": "Ask a question. Calls of tools are shown here, and you are asked before one runs.", "chat.details": "How it was read", "chat.status": "{tokens} tokens in use, {cached} from the cache",
  "chat.thinking": "The model is at work …", 
  "ask.title": "May this call run?", "ask.answered": "Answered: {answer}", "ask.destructive": "It may destroy something, its server says.", "ask.unsaid": "Nobody said {names}: the model was told, and stays with it.", "ask.unsaid_place": "Nobody said where {path} leads.", "ask.foreign": "{path} comes from server {server}, not from you.",
  "ask.repairs": "It was made out by repairs: {codes}", "ask.changed": "The server has changed what this tool says of itself since you allowed it.", "ask.changes": "What changes", "ask.times": "The same call for the {count}th time in a row.",
  "ask.yes": "Yes", "ask.no": "No", "ask.always": "Always this tool", "ask.with": "Always with these arguments", "ask.edit": "Edit arguments", "ask.stop": "Stop", "ask.reason": "Reason for the model (may be empty)",
  "ask.run_edited": "Run with these", "ask.cancel": "Back", "ask.keys": "Keys: y yes, n no, e edit, a always, w with these arguments, s stop",
  "ask.server": "{server} asks you", "ask.completion": "{server} wants the model to answer this", "ask.reply": "Send this answer to {server}?", "ask.address": "{server} wants you to open an address", "ask.accept": "Accept", "ask.decline": "Decline",
};

export const EN_VIEWS = { ...RECORDED, ...TRY, ...CHAT };
