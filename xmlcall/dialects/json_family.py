"""The JSON family: a call is an object with name and arguments, behind a mark or alone."""

from .dialect import Body, Dialect
from .result_form import BRACKETS, OWN_RESULTS, TOOL_RESPONSES, ResultForm
from .tag_patterns import bare_json, tag

__all__ = ["JSON"]

# Hermes, Qwen2.5 and many others: one JSON object a wrapper.
_HERMES = Dialect(
    name="hermes",
    tags={"block_open": tag("<tool_call"), "block_close": tag("</tool_call")},
    written={"block_open": "<tool_call>\n", "block_close": "\n</tool_call>"},
    body=Body.JSON,
    results=TOOL_RESPONSES,
)


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
    """Return a format of JSON behind a mark."""
    tags = {"block_open": opener, "block_close": closer, **marks}
    texts = {"block_open": written[0], "block_close": written[1]}
    return Dialect(
        name=name,
        tags={kind: pattern for kind, pattern in tags.items() if pattern},
        written={kind: text for kind, text in texts.items() if text},
        keys=keys,
        body=body,
        one_list=one_list,
        results=results,
        lost_mark=lost_mark,
        name_in_tag=name_in_tag,
    )


_MARKED = (
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
        "tool_request",
        r"\[TOOL_REQUEST\]",
        r"\[END_TOOL_REQUEST\]",
        ("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
        one_list=False,
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
)

# JSON alone, in a Markdown fence, or in an element that a model made up; objects one after another, or in an array.
WRAPPERS = ("tools", "tool", "json", "xml", "response", "function_call", "tool_use")
_JSON = Dialect(
    name="json",
    # Apriel writes JSON in a wrapper of ours; with that mark its thoughts end, which the prompt opens.
    tags={"json_open": bare_json(WRAPPERS), "reasoning_close": r"\[BEGIN FINAL RESPONSE\]"},
    written={},
    body=Body.JSON,
)

JSON = (_HERMES, *_MARKED, _JSON)
