/* 中文。 */

import { ZH_CODES } from "./i18n_codes_zh.js";

const FRAME = {
  menu: "主菜单", skip: "跳到内容", lost: "程序没有应答，页面正在重新连接。",
  "view.live": "实时", "view.turn": "轮次", "view.chat": "对话", "view.recorded": "记录", "view.try": "试解析",
  "switch.language": "English", "switch.theme": "浅色或深色", close: "关闭", more: "更多", search: "搜索", copied: "已复制",
  "keys.title": "快捷键", "keys.gl": "实时轮次", "keys.gc": "对话", "keys.gr": "记录", "keys.gt": "试解析一段文本",
  "keys.jk": "下一行、上一行", "keys.Enter": "打开", "keys.?": "此列表", "keys.Esc": "关闭、停止",
  "only.label": "显示哪些轮次", "only.all": "全部轮次", "only.calls": "有调用", "only.repairs": "有修复",
  "only.issues": "有无法执行的调用", "only.errors": "失败",
  "live.none": "没有符合条件的轮次。", "live.empty": "还没有任何请求。请让客户端连接到此服务器。",
  "live.empty_chat": "还没有任何提问。请在“对话”中提问。", no_question: "（没有问题）",
  "repairs.count": "修复 {count} 处", "issues.count": "{count} 处问题", "replies.count": "{count} 个回复",
};

const TURN = {
  first_token: "首个词元", whole: "总计", tokens: "{count} 个词元", "tokens.read": "读取 {count} 个词元", "tokens.written": "生成 {count} 个词元", cached: "缓存", characters: "{count} 个字符",
  reply: "回复 {number}", finish: "结束原因：{reason}", "finish.stop": "自行结束", "finish.tool_calls": "以调用结束", "finish.length": "在词元上限处被截断", writing: "正在生成", not_kept: "未保留，已重新询问", verdict: "评判",
  "reasoning.apart": "服务器另外发送的思考", "show.all": "显示全部 {count} 个字符", "turn.over": "本轮已结束。",
  "raw.label": "模型写的内容", "raw.more": "再显示 {count} 个字符", repair: "已修复",
  "span.text": "文本", "span.reasoning": "思考", "span.markup": "标记", "span.name": "调用", "span.value": "值", "span.end": "调用结束", "span.unread": "未解析",
  "prompt.title": "提示词", "prompt.messages": "{count} 条消息", "prompt.cached": "约 {share} 来自缓存（底色标出）",
  "role.system": "系统", "role.user": "用户", "role.assistant": "模型", "role.tool": "结果",
  "copy.menu": "复制", "copy.raw": "复制文本", "copy.corpus": "复制为用例", "copy.curl": "复制为 curl", "copy.bench": "复制为评测用例", "try.this": "在“试解析”中打开",
  "call.label": "调用 {name}", "call.allowed_by": "允许依据：{who}", "call.denied_by": "拒绝依据：{who}", "call.allowed_you": "您已允许", "call.allowed_always": "您已设为总是允许", "call.denied_you": "您已拒绝",
  "call.held": "对话中没有提到 {values}。模型得到结果后会重新写这个调用。", "call.no_person": "未允许：没有人可供询问", "call.no_answer": "未允许：没有及时得到回答", "call.no_rule": "未允许：没有规则允许它", "call.repeated": "未允许：同样的调用连续出现太多次", "call.tool_changes": "未允许：服务器一再修改这个工具",
  "call.issues": "为什么无法执行", "call.repairs": "修复了什么", "call.no_arguments": "没有参数", "call.ran_with": "用户把参数改成了",
  "call.result": "结果", "value.path": "参数", "value.value": "值", "value.source": "来源", "value.show": "显示它的位置",
  "issue.expected": "应为：", "issue.got": "得到：", "issue.told": "告诉模型的内容",
  "source.person": "用户", "source.you": "您", "source.result": "{tool} 的第 {number} 个结果", "source.some_result": "{tool} 的结果", "source.schema": "工具的说明", "source.system": "系统说明",
  "source.assistant": "模型之前的话", "source.trivial": "简单值", "source.invented": "模型自行给出",
  "source.translation": "可能译自用户的话；否则：{otherwise}", "source.translation_you": "可能译自您的话；否则：{otherwise}",
  "outcome.writing": "正在生成", "outcome.waiting": "等待您的决定", "outcome.running": "正在执行", "outcome.ok": "已执行", "outcome.error": "工具报错",
  "outcome.failed": "服务器出错", "outcome.denied": "已拒绝", "outcome.rejected": "无法执行", "outcome.held": "暂缓", "outcome.handed over": "交给客户端",
  "outcome.unknown": "不确定是否已执行", "outcome.not started": "未开始",
  "end.running": "进行中", "end.end": "已回答", "end.stop": "已回答", "end.tool_calls": "调用已交出", "end.error": "错误", "end.left": "客户端已离开",
  "end.length": "被截断", "end.max_turns": "回复过多", "end.invalid_calls": "调用无法执行", "end.tool_errors": "工具失败", "end.repeated_call": "重复同一调用",
  "end.invented_results": "编造结果", "end.own_words": "重复提示词", "end.repetition": "不断重复", "end.no_tool_call": "没有调用", "end.stopped": "已停止",
  "way.xml": "工具写在提示词中", "way.native": "服务器的函数调用", "way.native-only": "只用服务器的函数调用", "way.auto": "方式尚未确定", "way.plain": "没有工具", "way.relayed": "原样转发", "way.title": "工具的提供方式（模式 {way}）",
  "life.waiting": "正在等待模型", "life.reading": "正在读取提示词：{read} / {total} 个词元", "life.queued": "先回答另一个对话", "life.writing": "模型正在生成回复", "life.writing_call": "模型正在生成调用", "life.running": "{name} 正在执行", "life.seconds": "{text}，{seconds} 秒",
  "over.left": "您已停止。", "over.max_turns": "没有回答：模型一直在调用工具。请缩小问题范围，或用 --max-turns 允许更多次回复。",
  "over.invalid_calls": "没有回答：模型没有写出有效的调用，说明错误后仍是如此。请换更大的模型。",
  "over.tool_errors": "没有回答：调用接连失败。请看上面的调用，或换一种说法提问。",
  "over.invented_results": "没有回答：模型写出了工具并未返回的结果。请换一种说法提问，或换更大的模型。",
  "over.own_words": "没有回答：模型只是重复了给它的说明。请换一种说法提问，或换更大的模型。",
  "over.repetition": "模型不断重复，已被停止。请换一种说法提问，或换更大的模型。",
  "over.repeated_call": "没有回答：模型一再发出同样的调用。请换一种说法提问，或换更大的模型。",
  "over.length": "回复在词元上限处被截断。用 --ask max_tokens=N 允许更多，或用 --context 加大上下文。",
  "refusal.invented_results": "这不是回答：模型写出了工具并未返回的结果。已告知模型并重新询问。",
  "refusal.own_words": "这不是回答：模型重复了给它的说明。已告知模型并重新询问。",
  "refusal.unfounded": "已重新询问：回答给出了工具并未查到的内容。",
  "refusal.undone": "已重新询问：回答声称已经完成，但没有工具执行过。",
  "refusal.native_empty": "服务器自带的函数调用给出了空回复。已改为在提示词中提供工具，重新询问。",
  "refusal.native_unread": "服务器读不懂模型写的内容。已改为在提示词中提供工具，重新询问。",
  "refusal.native_failed": "服务器自带的函数调用失败了。已改为在提示词中提供工具，重新询问。",
  "refusal.no_access": "已重新询问：模型说自己无法获取，但可能有工具可以。",
  "refusal.repeated_answer": "已重新询问：有了新的结果，回答却与之前的相同。",
};

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
  "chat.new": "新对话", "chat.list": "对话列表", "chat.side": "对话和工具", "chat.ask": "请提问；Shift+Enter 换行", "chat.send": "发送", "chat.regenerate": "重新生成", "chat.ask_again": "重新提问", "chat.edit": "编辑", "chat.inspect": "查看细节",
  "chat.busy": "未发送：上一个回答还在进行。请等它结束，或将它停止。",
  "chat.editing": "您正在编辑问题：新的回答会另开一个分支，原来的回答会保留。", "chat.branches": "分支", "chat.branch": "在第 {at} 轮分支", "chat.branch_of": "{id} 在第 {at} 轮的分支", "chat.tools": "服务器和工具", "chat.no_tools": "没有配置服务器。", "tool.allowed": "已允许", "tool.take_back": "您总是允许此工具。点击后会重新询问您。",
  "chat.hello": "想了解什么？", "chat.status": "使用 {tokens} 个词元，{cached} 来自缓存", "server.starting": "正在启动", "server.failed": "失败，会自动重试", "server.off": "已关闭",
  "refused.turn_running": "此对话还在回答。请等它结束，或停止它。", "refused.nothing_running": "此对话中没有正在进行的回答。", "refused.held_elsewhere": "另一个程序正在使用此对话。请在那里关闭它，或开始新对话。", "refused.no_conversation": "此对话已不存在。",
  "refused.already_answered": "这个问题已有回答。", "refused.no_question": "这个问题已不再等待回答。", "refused.no_turn": "此轮已不存在：只保留最新的几轮。", "refused.other_page_asks": "另一个页面正在提问。请等它得到回答。",
  "asks.nothing": "没有可用的工具：模型只凭自己的知识回答。", "asks.all": "每个调用执行之前都会先询问您。", "asks.none": "规则允许这些工具，调用不经询问就会执行；如果某个值像是编造的，仍可能询问您。", "asks.some": "规则或您允许以下工具不经询问就执行：{names}。其他调用都会先询问您。",
  "ask.title": "允许执行这个调用吗？", "ask.destructive": "服务器声明它可能有破坏性。", "ask.unsaid": "对话中没有提到 {names}：已再次询问模型，它坚持这个调用。", "ask.unsaid_place": "对话中没有提到 {path} 指向的地方。", "ask.foreign": "{path} 来自服务器 {server}，而不是来自您。",
  "ask.repairs": "已修复：{codes}", "ask.changed": "您允许这个工具之后，服务器修改了它的说明。", "ask.changes": "将会改变的内容", "ask.times": "同样的调用已连续 {count} 次。",
  "ask.yes": "是", "ask.no": "否", "ask.deny": "不执行", "ask.always": "允许此工具，直到 xmlcall 结束", "ask.with": "允许这些参数，直到 xmlcall 结束", "ask.edit": "修改参数", "ask.stop": "停止", "ask.more": "更多选项", "ask.reason": "给模型的理由（可不填）",
  "ask.run_edited": "用这些参数执行", "ask.cancel": "返回", "ask.keys": "按键：y 是，n 否，e 修改，a 以后都允许此工具，w 这些参数，s 停止", "ask.was_yes": "已接受", "ask.was_no": "已拒绝", "ask.was_stop": "已停止", "ask.was_late": "没有及时回答", "ask.was_gone": "已撤回",
  "ask.server": "{server} 询问您", "ask.completion": "{server} 请模型回答", "ask.reply": "把这个回答发给 {server} 吗？", "ask.address": "{server} 请您打开一个地址", "ask.accept": "接受", "ask.decline": "拒绝",
};

export const ZH = { ...FRAME, ...TURN, ...RECORDED, ...TRY, ...CHAT, ...ZH_CODES };
