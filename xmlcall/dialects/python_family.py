"""The Python family: a call is that of Python, with literals as arguments."""

from .dialect import Body, Dialect
from .result_form import OWN_RESULTS, ResultForm
from .tag_patterns import python_list, tag

__all__ = ["PYTHON"]


_QUOTE = "'{3}|\"{3}"


def _row(
    name: str,
    opener: str,
    closer: str,
    written: tuple[str, str],
    body: Body = Body.PYTHON,
    results: ResultForm = OWN_RESULTS,
) -> Dialect:
    block_open, block_close = written
    return Dialect(
        name=name,
        tags={"block_open": opener, "block_close": closer, "quote": _QUOTE},
        written={"block_open": block_open, "block_close": block_close},
        body=body,
        one_list=body is Body.PYTHON,
        results=results,
    )


# Llama 4; LFM2 and LFM2.5. Both marks are special tokens, which some servers take out: then what is left is `pythonic`.
_LLAMA4 = _row("llama4", r"<\|python_start\|>", r"<\|python_end\|>", ("<|python_start|>", "<|python_end|>"))
_LFM2 = _row(
    "lfm2",
    r"<\|tool_call_start\|>",
    r"<\|tool_call_end\|>",
    ("<|tool_call_start|>", "<|tool_call_end|>"),
    results=ResultForm(result_open="<|tool_response_start|>", result_close="<|tool_response_end|>"),
)

# Olmo 3: a call a line, in the wrapper of `function_calls`; what follows the wrapper tells them apart.
_OLMO = _row(
    "olmo3", tag("<function_calls"), tag("</function_calls"), ("<function_calls>\n", "\n</function_calls>"), body=Body.LINES
)

# Gemma 3 and Gemini: the same in a Markdown fence.
_TOOL_CODE = Dialect(
    name="tool_code",
    tags={"quote": _QUOTE, "fence_close": "```"},
    written={"block_open": "```tool_code\n", "block_close": "\n```"},
    fence="tool_code",
    body=Body.LINES,
)

# Llama 3.2, ToolACE, and the others where their marks are lost: a list that is all of its line.
_PYTHONIC = Dialect(name="pythonic", tags={"json_open": python_list()}, written={}, body=Body.PYTHON, one_list=True)

PYTHON = (_LLAMA4, _LFM2, _OLMO, _TOOL_CODE, _PYTHONIC)
