"""The families whose arguments are one body in a notation of its own.

- JSON: a call is an object with name and arguments, after a mark or alone.
- Python: a call is a Python call with literals as arguments.
- Objects: a tag names the tool, and one object with its arguments follows.
"""

from .dialect import BRACKETS, OWN_RESULTS, PYTHON_LIST, TOOL_RESPONSES, Body, Dialect, ResultForm, bare_json, pairs, tag


def _marked(
    name: str,
    opener: str,
    closer: str,
    written: tuple[str, str],
    *,
    keys: tuple[str, str] = ("name", "arguments"),
    body: Body = Body.JSON,
    one_list: bool = True,
    results: ResultForm = OWN_RESULTS,
    lost_mark: str = "",
    name_in_tag: str = "",
    **marks: str,
) -> Dialect:
    """Return a format in which a body in its own notation follows a mark."""
    return Dialect(
        name=name,
        tags=pairs(block=(opener, closer), **marks),
        written=pairs(block=written),
        keys=keys,
        body=body,
        one_list=one_list,
        results=results,
        lost_mark=lost_mark,
        name_in_tag=name_in_tag,
    )


WRAPPERS = ("tools", "tool", "json", "xml", "response", "function_call", "tool_use")  # elements that models made up

JSON = (
    # Hermes, Qwen2.5 and many others: one JSON object a wrapper.
    _marked(
        "hermes",
        tag("<tool_call"),
        tag("</tool_call"),
        ("<tool_call>\n", "\n</tool_call>"),
        one_list=False,
        results=TOOL_RESPONSES,
    ),
    # Mistral up to its tokenizer 7.
    _marked(
        "mistral_list", r"\[TOOL_CALLS\](?=\s{0,8}[\[{])", "", ("[TOOL_CALLS]", ""), results=BRACKETS, mark=r"\[/TOOL_CALLS\]"
    ),
    # Llama 3.1 and later.
    _marked(
        "llama3",
        r"<\|python_tag\|>",
        "",
        ("<|python_tag|>", ""),
        keys=("name", "parameters"),
        one_list=False,
        mark=r"<\|eom_id\|>",
    ),
    # Phi-4-mini, FireFunction v2.
    _marked("functools", r"functools(?=\s{0,8}\[)", "", ("functools", "")),
    # Granite 3.0, Sarashina.
    _marked("granite", r"<\|tool_calls?\|>", "", ("<|tool_call|>", "")),
    # Nemotron Nano v2.
    _marked("nemotron", tag("<TOOLCALL"), tag("</TOOLCALL"), ("<TOOLCALL>", "</TOOLCALL>")),
    # InternLM 2.
    _marked(
        "internlm",
        r"<\|action_start\|>\s{0,8}<\|plugin\|>",
        r"<\|action_end\|>",
        ("<|action_start|><|plugin|>", "<|action_end|>"),
        keys=("name", "parameters"),
        one_list=False,
    ),
    # Command R7B, Command A.
    _marked(
        "command",
        r"<\|START_ACTION\|>",
        r"<\|END_ACTION\|>",
        ("<|START_ACTION|>", "<|END_ACTION|>"),
        keys=("tool_name", "parameters"),
        reasoning_open=r"<\|START_THINKING\|>",
        reasoning_close=r"<\|END_THINKING\|>",
        text_open=r"<\|START_(?:RESPONSE|TEXT)\|>",
        message_close=r"<\|END_(?:RESPONSE|TEXT)\|>",
        special=r"<\|(?:END_OF_TURN_TOKEN|CHATBOT_TOKEN|START_OF_TURN_TOKEN)\|>",
    ),
    # Apertus.
    _marked(
        "apertus",
        r"<\|tools_prefix\|>",
        r"<\|tools_suffix\|>",
        ("<|tools_prefix|>", "<|tools_suffix|>"),
        body=Body.KEYED,
        reasoning_open=r"<\|inner_prefix\|>",
        reasoning_close=r"<\|inner_suffix\|>",
    ),
    # GigaChat 3 and 3.1.
    _marked(
        "gigachat",
        r"(?:<\|message_sep\|>\s{0,8})?function call<\|role_sep\|>|<\|function[_ ]call\|>",
        "",
        ("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
        one_list=False,
        mark=r"</s>",
    ),
    # Inkling: the name before the mark and in the object.
    _marked(
        "inkling",
        r"(?:<\|message_model\|>[\w.\-]{0,128})?<\|content_invoke_tool_json\|>",
        r"<\|end_message\|>",
        ("<|message_model|><|content_invoke_tool_json|>", "<|end_message|>"),
        keys=("name", "args"),
        one_list=False,
        lost_mark=r"{tools}<\|content_invoke_tool_json\|>(?=\s{0,8}\{)",
        name_in_tag=r"\A([\w.\-]+)<",
        reasoning_open=r"(?:<\|message_model\|>)?<\|content_thinking\|>",
        text_open=r"(?:<\|message_model\|>)?<\|content_text\|>",
        message_close=r"<\|end_message\|>",
    ),
    # LM Studio, where a model has no format of its own.
    _marked(
        "tool_request", r"\[TOOL_REQUEST\]", r"\[END_TOOL_REQUEST\]", ("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"), one_list=False
    ),
    # LongCat, in its JSON form.
    _marked(
        "longcat",
        r"<longcat_tool_call>(?=\s{0,8}[\[{])",
        "</longcat_tool_call>",
        ("<longcat_tool_call>", "</longcat_tool_call>"),
        one_list=False,
        reasoning_open="<longcat_think>",
        reasoning_close="</longcat_think>",
    ),
    # JSON alone, in a Markdown fence, or in an element that a model made up; objects one after another, or in an array.
    Dialect(
        name="json",
        # Apriel writes JSON in a wrapper of ours; this mark ends its reasoning, which the prompt opens.
        tags={"json_open": bare_json(WRAPPERS), "reasoning_close": r"\[BEGIN FINAL RESPONSE\]"},
        written={},
        body=Body.JSON,
    ),
)

_QUOTE = "'{3}|\"{3}"


PYTHON = (
    # Llama 4; LFM2 and LFM2.5. Both marks are special tokens, which some servers remove; the rest is then `pythonic`.
    _marked(
        "llama4",
        r"<\|python_start\|>",
        r"<\|python_end\|>",
        ("<|python_start|>", "<|python_end|>"),
        body=Body.PYTHON,
        quote=_QUOTE,
    ),
    _marked(
        "lfm2",
        r"<\|tool_call_start\|>",
        r"<\|tool_call_end\|>",
        ("<|tool_call_start|>", "<|tool_call_end|>"),
        body=Body.PYTHON,
        results=ResultForm(result_open="<|tool_response_start|>", result_close="<|tool_response_end|>"),
        quote=_QUOTE,
    ),
    # Olmo 3: one call a line, in the wrapper of `function_calls`; the text after the opener distinguishes the two formats.
    _marked(
        "olmo3",
        tag("<function_calls"),
        tag("</function_calls"),
        ("<function_calls>\n", "\n</function_calls>"),
        body=Body.LINES,
        one_list=False,
        quote=_QUOTE,
    ),
    # Gemma 3 and Gemini: the same in a Markdown fence.
    Dialect(
        name="tool_code",
        tags={"quote": _QUOTE, "fence_close": "```"},
        written=pairs(block=("```tool_code\n", "\n```")),
        fence="tool_code",
        body=Body.LINES,
    ),
    # Llama 3.2, ToolACE, and the others where their marks are lost: a list that is all of its line.
    Dialect(name="pythonic", tags={"json_open": PYTHON_LIST}, written={}, body=Body.PYTHON, one_list=True),
)


_NAME = r"[\w.\-]{1,128}"
# The pattern includes what follows a name; else a name that the stream cuts would be read as a shorter one.
_BEFORE_OBJECT = r"(?=\s{0,8}\{)"
_BEFORE_GEMMA = r"(?=\s{0,8}[{(])"

# Gemma 4: strings between marks, keys without quotes; reasoning is a channel.
_GEMMA4 = Dialect(
    name="gemma4",
    tags=pairs(
        call=(rf"<\|tool_call>(?:call)?:\s{{0,4}}(?:[\w.\-]{{1,64}}:){{0,3}}{_NAME}{_BEFORE_GEMMA}", r"<tool_call\|>"),
        lost_open=rf"call:\s{{0,4}}{_NAME}{_BEFORE_OBJECT}",
        quote=r'<\|"\|>',
        reasoning=(
            r"<\|channel>(?:thought(?:\n|(?=[^\n]))|(?=[^t]|t[^h]|th[^o]|tho[^u]|thou[^g]|thoug[^h]|though[^t]))",
            r"<channel\|>",
        ),
        mark=r"<turn\|>|<\|tool_response>|<eos>",
    ),
    written=pairs(call=("<|tool_call>call:{name}", "<tool_call|>"), quote='<|"|>'),
    name_in_tag=r"(?:<\|tool_call>(?:call)?|\Acall):\s*([\w.\-]+(?::[\w.\-]+)*)",
    body=Body.GEMMA,
    joint="",
    results=ResultForm(result_open='<|tool_response>response:{name}{value:<|"|>', result_close='<|"|>}<tool_response|>'),
)
_FUNCTION_GEMMA = Dialect(
    name="functiongemma",
    tags=pairs(
        call=(rf"<start_function_call>\s{{0,4}}call:\s{{0,4}}{_NAME}{_BEFORE_GEMMA}", "<end_function_call>"),
        quote="<escape>",
        mark="<start_function_response>|<end_of_turn>",
    ),
    written=pairs(call=("<start_function_call>call:{name}", "<end_function_call>"), quote="<escape>"),
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
    tags=pairs(
        call_open=rf"\[TOOL_CALLS\]\s{{0,4}}{_NAME}(?:\s{{0,4}}\[CALL_ID\]\w{{1,64}})?(?:\s{{0,4}}\[ARGS\])?"
        rf"{_BEFORE_OBJECT}",
        reasoning=(r"\[THINK\]", r"\[/THINK\]"),
    ),
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
    written=pairs(call=("<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", "<|call|>")),
    name_in_tag=r"to=(?:functions\.)?([\w.\-]+)",
    body=Body.OBJECT,
    joint="",
)

# Kimi K2: the id names the tool and counts the calls of a conversation.
_KIMI_K2 = Dialect(
    name="kimi_k2",
    tags=pairs(
        block=(r"<\|tool_calls?_section_begin\|>", r"<\|tool_calls?_section_end\|>"),
        call=(
            rf"<\|tool_call_begin\|>\s{{0,8}}(?:functions\.)?{_NAME}(?::\d{{1,6}})?\s{{0,8}}"
            r"<\|tool_call_argument_begin\|>",
            r"<\|tool_call_end\|>",
        ),
        lost_open=rf"functions\.{_NAME}:\d{{1,6}}\s{{0,8}}(?:<\|tool_call_argument_begin\|>)?{_BEFORE_OBJECT}",
    ),
    written=pairs(
        block=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        call=("<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    # Without separators an id keeps its prefix, so that `tools.names` recognizes the number at its end.
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
    tags=pairs(
        block=(_deepseek("tool calls begin"), _deepseek("tool calls end")),
        call=(
            _deepseek("tool call begin") + rf"\s{{0,8}}(?:function{_SEP}\s{{0,8}}{_NAME}{_FENCE}|{_NAME}\s{{0,8}}{_SEP}{_FENCE})",
            _deepseek("tool call end"),
        ),
        fence_close="```",
        special=rf"{_deepseek('end of sentence')}|{_deepseek('tool output begin')}|{_deepseek('tool output end')}",
    ),
    written=pairs(
        block=("<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"),
        call=(
            "<\uff5ctool\u2581call\u2581begin\uff5c>{name}<\uff5ctool\u2581sep\uff5c>",
            "<\uff5ctool\u2581call\u2581end\uff5c>",
        ),
    ),
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
    tags=pairs(
        block=(_plamo("begin_tool_requests"), _plamo("end_tool_requests")),
        call=(
            rf"{_plamo('begin_tool_request')}\s{{0,8}}{_plamo('begin_tool_name')}\s{{0,8}}{_NAME}\s{{0,8}}"
            rf"{_plamo('end_tool_name')}\s{{0,8}}{_plamo('begin_tool_arguments')}{_BEFORE_OBJECT}",
            _plamo("end_tool_arguments"),
        ),
        reasoning=(_plamo("begin_think"), _plamo("end_think")),
        special=_plamo(r"(?:end_(?:tool_request|of_turn|message|response)|begin_(?:message|response)|msg|role)"),
    ),
    written=pairs(
        block=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
        call=(
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
            "<|plamo:begin_tool_arguments:plamo|>",
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        ),
    ),
    name_in_tag=r"begin_tool_name:plamo\|>\s*([\w.\-]+)",
    body=Body.OBJECT,
    joint="",
)

# ReAct, as LangChain's agents and many fine-tunes write it. Its words are everyday words, so only a tool's name makes a call.
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
