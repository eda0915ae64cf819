"""The object family: a tag names the tool, and one object with its arguments stands behind it."""

from .dialect import Body, Dialect
from .result_form import BRACKETS, ResultForm

__all__ = ["OBJECTS"]

_NAME = r"[\w.\-]{1,128}"
# What follows a name is part of the pattern: else a name that is cut in the stream would be a shorter one.
_BEFORE_OBJECT = r"(?=\s{0,8}\{)"
_BEFORE_GEMMA = r"(?=\s{0,8}[{(])"

# Gemma 4: strings between marks, keys without quotes; reasoning is a channel.
_GEMMA4 = Dialect(
    name="gemma4",
    tags={
        "call_open": rf"<\|tool_call>(?:call)?:\s{{0,4}}(?:[\w.\-]{{1,64}}:){{0,3}}{_NAME}{_BEFORE_GEMMA}",
        "call_close": r"<tool_call\|>",
        "lost_open": rf"call:\s{{0,4}}{_NAME}{_BEFORE_OBJECT}",
        "quote": r'<\|"\|>',
        "reasoning_open": r"<\|channel>(?:thought(?:\n|(?=[^\n]))|(?=[^t]|t[^h]|th[^o]|tho[^u]|thou[^g]|thoug[^h]|though[^t]))",
        "reasoning_close": r"<channel\|>",
        "mark": r"<turn\|>|<\|tool_response>|<eos>",
    },
    written={"call_open": "<|tool_call>call:{name}", "call_close": "<tool_call|>", "quote": '<|"|>'},
    name_in_tag=r"(?:<\|tool_call>(?:call)?|\Acall):\s*([\w.\-]+(?::[\w.\-]+)*)",
    body=Body.GEMMA,
    joint="",
    results=ResultForm(result_open='<|tool_response>response:{name}{value:<|"|>', result_close='<|"|>}<tool_response|>'),
)
_FUNCTION_GEMMA = Dialect(
    name="functiongemma",
    tags={
        "call_open": rf"<start_function_call>\s{{0,4}}call:\s{{0,4}}{_NAME}{_BEFORE_GEMMA}",
        "call_close": "<end_function_call>",
        "quote": "<escape>",
        "mark": "<start_function_response>|<end_of_turn>",
    },
    written={"call_open": "<start_function_call>call:{name}", "call_close": "<end_function_call>", "quote": "<escape>"},
    name_in_tag=r":\s*([\w.\-]+)",
    body=Body.GEMMA,
    joint="",
    results=ResultForm(
        result_open="<start_function_response>response:{name}{value:<escape>", result_close="<escape>}<end_function_response>"
    ),
)

# Mistral from its tokenizer 11 on: the mark before each call; an id and a second mark in some models. Nothing closes a call.
_MISTRAL = Dialect(
    name="mistral",
    tags={
        "call_open": rf"\[TOOL_CALLS\]\s{{0,4}}{_NAME}(?:\s{{0,4}}\[CALL_ID\]\w{{1,64}})?(?:\s{{0,4}}\[ARGS\])?"
        rf"{_BEFORE_OBJECT}",
        "reasoning_open": r"\[THINK\]",
        "reasoning_close": r"\[/THINK\]",
    },
    written={"call_open": "[TOOL_CALLS]{name}[ARGS]"},
    name_in_tag=r"(?:\[TOOL_CALLS\]\s*|\A)([\w.\-]+)",
    lost_mark=rf"{{tools}}(?:\s{{0,4}}\[CALL_ID\]\w{{1,64}})?\[ARGS\]{_BEFORE_OBJECT}",
    body=Body.OBJECT,
    joint="",
    results=BRACKETS,
)

# gpt-oss: messages with a header. One with a recipient among the functions is a call, whatever its channel.
_BUILT_IN = r"(?!(?:assistant|browser|python|container|user|system)\b)"
_TO = rf"to=(?:functions\.)?{_BUILT_IN}{_NAME}"
_KIND = r"(?:\s{0,4}(?:<\|constrain\|>)?\s{0,4}\w{1,16})?\s{0,4}"
_STARTS = r"(?:<\|start\|>assistant)?"
_HARMONY = Dialect(
    name="harmony",
    tags={
        "call_open": rf"(?:(?:<\|start\|>assistant\s{{0,4}})?{_TO}|{_STARTS}(?=<\|channel\|>\w{{1,16}}\s{{0,4}}{_TO}))"
        rf"<\|channel\|>\w{{1,16}}(?:\s{{0,4}}{_TO})?{_KIND}<\|message\|>",
        "reasoning_open": rf"{_STARTS}<\|channel\|>analysis{_KIND}<\|message\|>",
        "text_open": rf"{_STARTS}<\|channel\|>(?:final|commentary)(?:\s{{0,4}}to=(?:assistant|user|all))?{_KIND}<\|message\|>"
        r"|<\|start\|>assistant<\|message\|>|<\|start\|>assistant\s{0,4}to=[\w.\-]{1,128}<\|message\|>(?=\s{0,8}<)",
        "message_close": r"<\|(?:end|return|call)\|>",
        "lost_open": rf"(?:assistant)?(?:commentary|analysis)\s{{0,4}}to=functions\.{_NAME}(?:\s{{0,4}}(?:json|code))?"
        rf"{_BEFORE_OBJECT}",
    },
    written={
        "call_open": "<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
        "call_close": "<|call|>",
    },
    name_in_tag=r"to=(?:functions\.)?([\w.\-]+)",
    body=Body.OBJECT,
    joint="",
)

# Kimi K2: the id names the tool and counts the calls of a conversation.
_KIMI_K2 = Dialect(
    name="kimi_k2",
    tags={
        "block_open": r"<\|tool_calls?_section_begin\|>",
        "block_close": r"<\|tool_calls?_section_end\|>",
        "call_open": rf"<\|tool_call_begin\|>\s{{0,8}}(?:functions\.)?{_NAME}(?::\d{{1,6}})?\s{{0,8}}"
        r"<\|tool_call_argument_begin\|>",
        "call_close": r"<\|tool_call_end\|>",
        "lost_open": rf"functions\.{_NAME}:\d{{1,6}}\s{{0,8}}(?:<\|tool_call_argument_begin\|>)?{_BEFORE_OBJECT}",
    },
    written={
        "block_open": "<|tool_calls_section_begin|>",
        "block_close": "<|tool_calls_section_end|>",
        "call_open": "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>",
        "call_close": "<|tool_call_end|>",
    },
    # Without its separators an id keeps its beginning, by which `tools.names` knows the number at its end.
    name_in_tag=r"(?:<\|tool_call_begin\|>\s*|\A)(?:functions\.(?![\w.\-]*\d\s*<))?([\w.\-]+)",
    body=Body.OBJECT,
    joint="",
)

# DeepSeek V3.1, and V3 and R1, which put the object in a fence. Some templates have plain bars and underscores.
_BAR = "[\uff5c|]"
_WORD = "[\u2581_ ]"


def _deepseek(part: str) -> str:
    return f"<{_BAR}{part.replace(' ', _WORD)}{_BAR}>"


_SEP = _deepseek("tool sep")
_FENCE = r"\s{0,8}(?:```(?:json)?\s{0,8})?(?=\{)"
_DEEPSEEK = Dialect(
    name="deepseek",
    tags={
        "block_open": _deepseek("tool calls begin"),
        "block_close": _deepseek("tool calls end"),
        "call_open": _deepseek("tool call begin")
        + rf"\s{{0,8}}(?:function{_SEP}\s{{0,8}}{_NAME}{_FENCE}|{_NAME}\s{{0,8}}{_SEP}{_FENCE})",
        "call_close": _deepseek("tool call end"),
        "fence_close": "```",
        "special": rf"{_deepseek('end of sentence')}|{_deepseek('tool output begin')}|{_deepseek('tool output end')}",
    },
    written={
        "block_open": "<\uff5ctool\u2581calls\u2581begin\uff5c>",
        "block_close": "<\uff5ctool\u2581calls\u2581end\uff5c>",
        "call_open": "<\uff5ctool\u2581call\u2581begin\uff5c>{name}<\uff5ctool\u2581sep\uff5c>",
        "call_close": "<\uff5ctool\u2581call\u2581end\uff5c>",
    },
    name_in_tag=rf"begin{_BAR}>\s*(?:function{_SEP}\s*)?([\w.\-]+)",
    body=Body.OBJECT,
    joint="",
    results=ResultForm(
        result_open="<\uff5ctool\u2581output\u2581begin\uff5c>", result_close="<\uff5ctool\u2581output\u2581end\uff5c>"
    ),
)


# PLaMo 3: every mark is a pair of words of its own.
def _plamo(words: str) -> str:
    return rf"<\|plamo:{words}:plamo\|>"


_PLAMO = Dialect(
    name="plamo",
    tags={
        "block_open": _plamo("begin_tool_requests"),
        "block_close": _plamo("end_tool_requests"),
        "call_open": rf"{_plamo('begin_tool_request')}\s{{0,8}}{_plamo('begin_tool_name')}\s{{0,8}}{_NAME}\s{{0,8}}"
        rf"{_plamo('end_tool_name')}\s{{0,8}}{_plamo('begin_tool_arguments')}{_BEFORE_OBJECT}",
        "call_close": _plamo("end_tool_arguments"),
        "reasoning_open": _plamo("begin_think"),
        "reasoning_close": _plamo("end_think"),
        "special": _plamo(r"(?:end_(?:tool_request|of_turn|message|response)|begin_(?:message|response)|msg|role)"),
    },
    written={
        "block_open": "<|plamo:begin_tool_requests:plamo|>",
        "block_close": "<|plamo:end_tool_requests:plamo|>",
        "call_open": "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|>",
        "call_close": "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    },
    name_in_tag=r"begin_tool_name:plamo\|>\s*([\w.\-]+)",
    body=Body.OBJECT,
    joint="",
)

# ReAct, as LangChain's agents and many fine-tunes write it. Its words are those of every day: only a tool's name makes a call.
_REACT = Dialect(
    name="react",
    tags={},
    written={"call_open": "Action: {name}\nAction Input: "},
    name_in_tag=r"Action:[ \t]*[`\"*]*([\w.\-]+)",
    lost_mark=rf"Action:[ \t]{{0,4}}[`\"*]{{0,2}}{{tools}}[`\"*]{{0,2}}[ \t]{{0,4}}\r?\n{{1,2}}Action Input:{_BEFORE_OBJECT}",
    body=Body.OBJECT,
    joint="",
)

OBJECTS = (_GEMMA4, _FUNCTION_GEMMA, _MISTRAL, _HARMONY, _KIMI_K2, _DEEPSEEK, _PLAMO, _REACT)
