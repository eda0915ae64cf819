"""What the command line says to a person in `run` and `chat`, in each language. Messages of exceptions stay English.

Every language has the same keys with the same placeholders (tests/cli/test_cli_words.py).
"""

from collections.abc import Callable

__all__ = ["LABELS", "TEXTS", "Say", "speaker"]

Say = Callable[..., str]
"""Gives a text by its key, with its placeholders filled in."""

LABELS = [
    "call",
    "result",
    "error",
    "failed",
    "denied",
    "rejected",
    "waits",
    "cut",
    "retry",
    "decided",
    "repaired",
    "left out",
    "tokens",
]

EN = {
    **{label: label for label in LABELS},
    "elapsed": "{text}, {seconds} s",
    "loading": "Loading {model}",
    "waiting": "Waiting for the model",
    "reading": "Reading the prompt: {read} of {total} tokens",
    "writing_call": "Writing a call: {count} tokens",
    "running": "Running {target}",
    "progress_of": "({done} of {total})",
    "progress": "({done})",
    "cut_call": "the reply was cut off inside a call; the model goes on with it",
    "held": "{name} is not run yet: nobody has said {values}; the model writes it again behind the results",
    "family": "the model was most likely trained on the format {name}",
    "lost_call": "the model called {name} in thinking that never ended, so nothing was called",
    "constrained": "the next reply is constrained to a call of {name}",
    "asked_again": "the reply was empty; the model is asked once more",
    "refused_invented_results": "the model wrote results that no tool gave; it is told, and asked again",
    "refused_own_words": "the model only repeated its instructions; it is told, and asked again",
    "cut_results": "{missing} of {whole} characters of results of {names}",
    "cut_messages": "{count} of the oldest messages (a line of each turn stays)",
    "and": " and ",
    "does_not_fit": "{parts}: they do not fit into the model's context (see --context)",
    "context": "the model's context holds {count} tokens",
    "profile": "profile: {words}",
    "needs_tool": "the question needs a tool (log-odds of a call {odds}, threshold {threshold})",
    "needs_this_tool": "the question needs the tool {tool} (log-odds of a call {odds}, threshold {threshold})",
    "needs_no_tool": "the question needs no tool (log-odds of a call {odds}, threshold {threshold})",
    "proposal": "The model wants to run {target} (server {host}):",
    "again": "the same call with the same arguments, now {times} times in a row",
    "question": "Run it? [y]es / [n]o (n and why: the model is told) / [e]dit the arguments\n"
    "  [a]lways this tool / [w]ith these arguments always (in this session) / [s]top: ",
    "edit": "Arguments (an empty line: do not run it): ",
    "changed": "the server has changed this tool since you allowed it:",
    "from_result": "{path} is from the result of {tool} (call {call})",
    "from_result_of_unknown": "{path} is from the result of call {call}",
    "from_system": "{path} is from the instructions of the program",
    "from_schema": "{path} is from the tool's own description",
    "from_assistant": "{path} is what the model said before",
    "from_invented": "{path}: nobody has said this; the model made it up or worked it out",
    "foreign": "{path} was told by another server, {server}; what it tells may be meant to act here",
    "nobody_flow": "{target} did not run: {path} comes from a result of {server}, and there is no terminal to ask on. "
    "Allow values to go from server to server with --flow allow",
    "nobody": "{target} did not run: no terminal to ask on. Allow it with --allow {pattern}, or every tool with --yes",
    "nobody_rule": "{target} did not run: the rule {rule} asks, and there is no terminal to ask on. "
    "Change the rule, or answer every question with --yes",
    "nobody_repaired": "{target} did not run: the call was not written quite as it would run ({codes}), and there is no terminal "
    "to ask on. Allow such calls with --repaired allow",
    "or_in_file": "or allow it for good, in {file}:",
    "denied_by": "a rule does not let it run: {rule}",
    "change": "what would change:",
    "made_out": "not written quite as it is shown; made out of it: {codes}",
    "strict_here": "{file} is in the working directory: only its rules that ask or deny hold. If you know the file, name it: "
    "--policy {name}",
    "stopped_before": "stopped before {target} ran",
    "stopped": "stopped",
    "usage": "{counts}; replies: {replies}",
    "tokens_in": "{count} in",
    "tokens_cached": "{count} from the cache",
    "tokens_out": "{count} out",
    "tokens_unknown": "not told by the server",
    "more_issues": "... and {count} more",
    "greeting": "{model}, tools: {count}; /help tells what else can be typed",
    "no_template": "{model} has no chat template: it looks like a base model, which continues text instead of answering; "
    "take an instruct version (names often end in -instruct, -it or -chat)",
    "no_native": "the server says that this model has no function calling of its own; --mode xml works with any model",
    "shown_signatures": "{count} tools are more than the model should read each time: it sees their names and parameters, "
    "and in full those that fit the question (see --tool-tokens)",
    "shown_lines": "{count} tools are more than the model should read each time: it sees their names and a sentence of each, "
    "and in full those that fit the question (see --tool-tokens)",
    "shown_names": "{count} tools are more than the model should read each time: it sees their names, "
    "and in full those that fit the question (see --tool-tokens)",
    "no_grammar": "--constrain does nothing here: this model server obeys no grammar behind a call that is begun for the model; "
    "llama.cpp does, for models whose template leaves no thinking open",
    "new_conversation": "a new conversation",
    "help_help": "show this",
    "help_tools": "list the tools; /tools NAME shows one with its parameters",
    "help_clear": "begin a new conversation",
    "help_quit": "leave; so do exit, quit, :q and Ctrl-D",
    "unknown_command": "expected a question or one of {commands}, got {line}",
    "unknown_tool": "expected the name of a tool, got {name}; /tools lists them",
    "required": "required",
    "optional": "optional",
    "empty": "the model's answer is empty: ask in other words, or take a larger model",
    "max_turns": "no answer after {count} replies: the model kept calling tools; allow more with --max-turns, or ask for less",
    "invalid_calls": "no answer: the model's calls could not run, however often it was told why; take a larger model",
    "tool_errors": "no answer: one call after another failed; see the errors above, or ask in other words",
    "invented_results": "no answer: the model wrote results that no tool gave; ask in other words, or take a larger model",
    "own_words": "no answer: the model only repeated its instructions; ask in other words, or take a larger model",
    "repetition": "the model repeated itself and was stopped: ask in other words, or take a larger model",
    "repeated_call": "no answer: the model made the same call again and again; ask in other words, or take a larger model",
    "length": "the reply was cut off at the limit of tokens: allow more with --max-tokens, or a larger context with --context",
    "ended_early": "expected a whole reply, the model server ended it early and gave as its reason {reason}",
}

ZH = {
    "call": "调用",
    "result": "结果",
    "error": "错误",
    "failed": "失败",
    "denied": "未允许",
    "rejected": "无效",
    "waits": "等待",
    "cut": "截断",
    "retry": "重试",
    "decided": "判断",
    "repaired": "修复",
    "left out": "略去",
    "tokens": "词元",
    "elapsed": "{text}，{seconds} 秒",
    "loading": "正在加载 {model}",
    "waiting": "正在等待模型",
    "reading": "正在读取提示：{read} / {total} 个词元",
    "writing_call": "正在写调用：{count} 个词元",
    "running": "正在运行 {target}",
    "progress_of": "（{done} / {total}）",
    "progress": "（{done}）",
    "cut_call": "回复在调用中被截断，模型继续写完",
    "held": "{name} 暂不执行：没有人说过 {values}；模型在得到结果后重新写",
    "family": "这个模型很可能是用 {name} 格式训练的",
    "lost_call": "模型在没有结束的思考中调用了 {name}，因此没有执行任何调用",
    "constrained": "下一次回复被限定为调用 {name}",
    "asked_again": "回复是空的，再问模型一次",
    "refused_invented_results": "模型写出了没有任何工具给过的结果，告诉模型后再问一次",
    "refused_own_words": "模型只是重复了给它的说明，告诉模型后再问一次",
    "cut_results": "{names} 的结果中 {whole} 个字符里的 {missing} 个",
    "cut_messages": "最早的 {count} 条消息（每轮保留一行）",
    "and": "，以及",
    "does_not_fit": "{parts}：模型的上下文放不下（见 --context）",
    "context": "模型的上下文可容纳 {count} 个词元",
    "profile": "配置：{words}",
    "needs_tool": "这个问题需要工具（调用的对数几率 {odds}，阈值 {threshold}）",
    "needs_this_tool": "这个问题需要工具 {tool}（调用的对数几率 {odds}，阈值 {threshold}）",
    "needs_no_tool": "这个问题不需要工具（调用的对数几率 {odds}，阈值 {threshold}）",
    "proposal": "模型想运行 {target}（服务器 {host}）：",
    "again": "同样的调用、同样的参数，已连续 {times} 次",
    "question": "运行吗？[y] 是 / [n] 否（n 加原因会告诉模型）/ [e] 修改参数\n"
    "  本次会话：[a] 总是允许这个工具 / [w] 总是允许这些参数 / [s] 停止：",
    "edit": "参数（留空则不运行）：",
    "changed": "自从你允许这个工具以来，服务器修改了它：",
    "from_result": "{path} 来自 {tool} 的结果（第 {call} 次调用）",
    "from_result_of_unknown": "{path} 来自第 {call} 次调用的结果",
    "from_system": "{path} 来自程序的说明",
    "from_schema": "{path} 来自工具自己的描述",
    "from_assistant": "{path} 是模型之前说过的",
    "from_invented": "{path}：没有人说过，是模型编造或推算的",
    "foreign": "{path} 来自另一个服务器 {server}；它的内容可能意在借此行事",
    "nobody_flow": "{target} 没有运行：{path} 来自 {server} 的结果，而没有可以询问的终端。用 --flow allow 允许值在服务器之间传递",
    "nobody": "{target} 没有运行：没有可以询问的终端。用 --allow {pattern} 允许它，或用 --yes 允许所有工具",
    "nobody_rule": "{target} 没有运行：规则 {rule} 要求询问，而没有可以询问的终端。请修改规则，或用 --yes 对所有问题回答“是”",
    "nobody_repaired": "{target} 没有运行：调用的写法与将要运行的不完全一样（{codes}），而没有可以询问的终端。"
    "用 --repaired allow 允许这样的调用",
    "or_in_file": "或者在 {file} 中长期允许它：",
    "denied_by": "有一条规则不允许它运行：{rule}",
    "change": "将会改变的内容：",
    "made_out": "写法与显示的不完全一样；据此推断：{codes}",
    "strict_here": "{file} 在工作目录中：只有其中询问或拒绝的规则有效。如果你了解这个文件，请指明它：--policy {name}",
    "stopped_before": "在运行 {target} 之前停止",
    "stopped": "已停止",
    "usage": "{counts}；回复：{replies}",
    "tokens_in": "输入 {count}",
    "tokens_cached": "来自缓存 {count}",
    "tokens_out": "输出 {count}",
    "tokens_unknown": "服务器没有说明",
    "more_issues": "……还有 {count} 处",
    "greeting": "{model}，工具：{count} 个；输入 /help 查看其他命令",
    "no_template": "{model} 没有对话模板：看来是基础模型，只会续写文字，不会回答；"
    "请换指令版（名称常以 -instruct、-it 或 -chat 结尾）",
    "no_native": "服务器说这个模型没有自己的函数调用；--mode xml 适用于任何模型",
    "shown_signatures": "{count} 个工具的说明太长：模型看到它们的名称和参数，适合问题的工具则有完整说明（见 --tool-tokens）",
    "shown_lines": "{count} 个工具的说明太长：模型看到它们的名称和第一句说明，适合问题的工具则有完整说明（见 --tool-tokens）",
    "shown_names": "{count} 个工具的说明太长：模型只看到它们的名称，适合问题的工具则有完整说明（见 --tool-tokens）",
    "no_grammar": "--constrain 在这里不起作用：这个模型服务器不能让语法约束已经开头的调用；llama.cpp 可以，只要模板不以思考开头",
    "new_conversation": "新的对话",
    "help_help": "显示这些说明",
    "help_tools": "列出工具；/tools 名称 显示一个工具和它的参数",
    "help_clear": "开始新的对话",
    "help_quit": "离开；退出、exit、quit、:q 和 Ctrl-D 也可以",
    "unknown_command": "应输入问题或 {commands} 之一，得到的是 {line}",
    "unknown_tool": "应输入工具的名称，得到的是 {name}；/tools 列出所有工具",
    "required": "必填",
    "optional": "可选",
    "empty": "模型的回答是空的：换一种说法提问，或换更大的模型",
    "max_turns": "{count} 次回复后仍没有回答：模型一直在调用工具；用 --max-turns 允许更多次，或把问题改小",
    "invalid_calls": "没有回答：模型的调用无法运行，多次说明原因后仍是如此；请换更大的模型",
    "tool_errors": "没有回答：调用接连失败；请看上面的错误，或换一种说法提问",
    "invented_results": "没有回答：模型写出了没有任何工具给过的结果；换一种说法提问，或换更大的模型",
    "own_words": "没有回答：模型只是重复了给它的说明；换一种说法提问，或换更大的模型",
    "repetition": "模型不停重复，已被停止：换一种说法提问，或换更大的模型",
    "repeated_call": "没有回答：模型一再发出同样的调用；换一种说法提问，或换更大的模型",
    "length": "回复在词元上限处被截断：用 --max-tokens 允许更多，或用 --context 加大上下文",
    "ended_early": "回复不完整，模型服务器提前结束，给出的原因是 {reason}",
}

TEXTS = {"en": EN, "zh": ZH}
"""Language -> key -> text."""


def speaker(lang: str) -> Say:
    """Return what gives the texts of a language.

    Args:
        lang: `en` or `zh`.
    """
    texts = TEXTS[lang]
    return lambda key, **values: texts[key].format(**values)
