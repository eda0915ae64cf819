/* 对话、记录和试读的中文。 */

const RECORDED = {
  "recorded.conversations": "对话", "recorded.runs": "评测运行", "recorded.files": "轮次文件", "recorded.no_conversations": "还没有保存任何对话。",
  "messages.count": "{count} 条消息", "turns.count": "{count} 个轮次", loading: "正在读取……", copy: "复制", image: "图片",
  "filter.way": "方式", "filter.failure": "失败", "filter.repair": "修复", "filter.tool": "工具", "filter.all": "全部", "chat.go_on": "在对话中继续",
};

const TRY = {
  "try.text": "模型写的一个回复", "try.tools": "提供的工具（MCP 的 JSON）", "try.dialect": "格式", "try.ending": "回复", "try.ending.stop": "完整",
  "try.ending.length": "被截断", "try.reasoning_open": "从 <think> 内开始", "try.no_call": "这段文本中没有调用。", "try.ways": "用其他方式问同一问题（不执行任何工具）",
  "try.ask": "提问", "try.waits": "等待中……", "try.threshold": "用阈值", stop: "停止",
};

const CHAT = {
  "chat.new": "新对话", "chat.list": "对话列表", "chat.ask": "请提问；Shift+Enter 换行", "chat.send": "发送", "chat.retry": "再问一次", "chat.differently": "换个问法",
  "chat.branches": "分支", "chat.branch": "在第 {at} 轮分支", "chat.branch_of": "{id} 在第 {at} 轮的分支", "chat.tools": "服务器和工具", "chat.no_tools": "没有配置服务器。",
  "chat.hello": "请提问。工具调用会显示在这里，执行之前会先询问您。", "chat.details": "如何读取", "chat.status": "使用 {tokens} 个词元，{cached} 来自缓存",
  "chat.thinking": "模型正在工作……", 
  "ask.title": "允许执行这个调用吗？", "ask.answered": "已回答：{answer}", "ask.destructive": "服务器说它可能有破坏性。", "ask.unsaid": "没有人说过 {names}：已告知模型，模型仍坚持。", "ask.unsaid_place": "没有人说过 {path} 的去向。", "ask.foreign": "{path} 来自服务器 {server}，不是您说的。",
  "ask.repairs": "经过修复才读出：{codes}", "ask.changed": "自您允许以来，服务器改变了对这个工具的说明。", "ask.changes": "会有什么变化", "ask.times": "同样的调用已连续 {count} 次。",
  "ask.yes": "是", "ask.no": "否", "ask.always": "总是允许此工具", "ask.with": "总是允许这些参数", "ask.edit": "修改参数", "ask.stop": "停止", "ask.reason": "给模型的理由（可不填）",
  "ask.run_edited": "用这些参数执行", "ask.cancel": "返回", "ask.keys": "按键：y 是，n 否，e 修改，a 总是，w 这些参数，s 停止",
  "ask.server": "{server} 询问您", "ask.completion": "{server} 想让模型回答", "ask.reply": "把这个回答发给 {server} 吗？", "ask.address": "{server} 请您打开一个地址", "ask.accept": "接受", "ask.decline": "拒绝",
};

export const ZH_VIEWS = { ...RECORDED, ...TRY, ...CHAT };
