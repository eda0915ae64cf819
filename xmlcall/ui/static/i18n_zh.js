/* 中文。 */

import { ZH_CODES } from "./i18n_codes_zh.js";
import { ZH_VIEWS } from "./i18n_views_zh.js";

const FRAME = {
  menu: "主菜单", skip: "跳到内容", lost: "程序没有应答，页面正在重新连接。",
  "view.live": "实时", "view.turn": "轮次", "view.chat": "对话", "view.recorded": "记录", "view.try": "试读",
  "switch.language": "English", "switch.theme": "浅色或深色", close: "关闭", more: "更多", search: "搜索", copied: "已复制",
  "keys.title": "快捷键", "keys.gl": "实时轮次", "keys.gc": "对话", "keys.gr": "记录", "keys.gt": "试读一段文本",
  "keys.jk": "下一行、上一行", "keys.Enter": "打开", "keys.?": "此列表", "keys.Esc": "关闭、停止",
  "only.label": "哪些轮次", "only.all": "全部轮次", "only.calls": "有调用", "only.repairs": "有修复",
  "only.issues": "有无法执行的调用", "only.errors": "失败",
  "live.none": "没有符合条件的轮次。", "live.empty": "还没有任何请求。请让客户端连接到此服务器。",
  "live.empty_chat": "还没有任何提问。请在“对话”中提问。", no_question: "（没有问题）",
  "repairs.count": "修复 {count} 处", "issues.count": "{count} 处问题", "replies.count": "{count} 个回复",
};

const TURN = {
  first_token: "首个词元", whole: "总计", tokens: "{count} 个词元", cached: "缓存", characters: "{count} 个字符",
  reply: "回复 {number}", finish: "结束原因", writing: "正在书写", not_kept: "未保留，已重新询问", verdict: "评判",
  "reasoning.apart": "服务器另外发送的思考", "show.all": "显示全部 {count} 个字符", "turn.over": "本轮已结束。",
  "raw.label": "模型写的内容", "raw.more": "再显示 {count} 个字符", repair: "已修复",
  "span.text": "文本", "span.reasoning": "思考", "span.markup": "标记", "span.name": "调用", "span.value": "值", "span.end": "调用结束", "span.unread": "未读取",
  "prompt.title": "提示", "prompt.messages": "{count} 条消息", "prompt.cached": "约 {share} 来自缓存（底色标出）",
  "role.system": "系统", "role.user": "用户", "role.assistant": "模型", "role.tool": "结果",
  "copy.raw": "复制文本", "copy.corpus": "复制为用例", "copy.curl": "复制为 curl", "copy.bench": "复制为评测用例", "try.this": "重新试读",
  "call.label": "调用 {name}", "call.allowed_by": "允许者：{who}", "call.denied_by": "拒绝者：{who}",
  "call.issues": "为什么无法执行", "call.repairs": "修复了什么", "call.no_arguments": "没有参数", "call.ran_with": "用户把参数改成了",
  "call.result": "结果", "value.path": "参数", "value.value": "值", "value.source": "来源", "value.show": "显示它的位置",
  "issue.expected": "应为：", "issue.got": "得到：", "issue.told": "告诉模型的内容",
  "source.person": "用户", "source.result": "{tool} 的第 {number} 个结果", "source.some_result": "{tool} 的结果", "source.schema": "模式定义", "source.system": "系统说明",
  "source.assistant": "模型之前的话", "source.trivial": "简单值", "source.invented": "模型自己",
  "outcome.writing": "正在书写", "outcome.waiting": "等待您的决定", "outcome.running": "正在执行", "outcome.ok": "已执行", "outcome.error": "工具报错",
  "outcome.failed": "服务器失败", "outcome.denied": "已拒绝", "outcome.rejected": "无法执行", "outcome.held": "暂缓", "outcome.handed over": "交给客户端",
  "outcome.unknown": "不知是否执行", "outcome.not started": "未开始",
  "end.running": "进行中", "end.end": "已回答", "end.stop": "已回答", "end.tool_calls": "调用已交出", "end.error": "错误", "end.left": "客户端已离开",
  "end.length": "被截断", "end.max_turns": "回复过多", "end.invalid_calls": "调用无法执行", "end.tool_errors": "工具失败", "end.repeated_call": "重复同一调用",
  "end.invented_results": "编造结果", "end.own_words": "重复提示", "end.repetition": "不断重复", "end.no_tool_call": "没有调用", "end.stopped": "已停止",
  "refusal.invented_results": "这不是回答：模型写了没有任何工具给出的结果。已告知模型并重新询问。",
  "refusal.own_words": "这不是回答：模型重复了给它的说明。已告知模型并重新询问。",
  "refusal.unfounded": "已重新询问：回答说出了没有任何工具查到的内容。",
  "refusal.undone": "已重新询问：回答说已经完成，但没有任何工具做过。",
  "refusal.repeated_answer": "已重新询问：有了新的结果，回答却与之前的相同。",
};

export const ZH = { ...FRAME, ...TURN, ...ZH_VIEWS, ...ZH_CODES };
