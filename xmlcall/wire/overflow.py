"""How servers say that a prompt is longer than the model's context, and which figures they tell.

llama.cpp and OpenAI have a code for it, most others only words, and each its own. The words here are of llama.cpp, vLLM, SGLang,
LM Studio, Ollama, TGI, TabbyAPI, TensorRT-LLM, llama-cpp-python and the large providers. What is read is short: see `read_error`.
"""

import re
from typing import Final

__all__ = ["is_overflow", "told_context", "told_prompt"]

_OVERFLOW: Final = re.compile(
    r"exceed_context_size_error|context_length_exceeded|context_window_exceeded|maximum context length"
    r"|(?:exceed\w*|(?:long|great|larg)er than|too (?:long|large|big) for|overflow\w*)\b[^.]{0,60}?"
    r"(?:\bcontext\b|max_seq_len|max_model_len|n_ctx|\bmodel length)"
    r"|\bcontext(?: \w+){0,3}? (?:overflow|exceed)|n_keep: ?\d+ ?>=? ?n_ctx"
    r"|(?:prompt|input)(?: is)? too long|model token limit"
    r"|context (?:length|size|window)(?: is| of)? only \d|maximum (?:input|model|prompt) length"
    r"|(?:input|prompt) (?:length|tokens?|token count)\b[^.]{0,40}? exceed"
    r"|`inputs`[^.]{0,40}? must (?:be|have)|tokens in the prompt cannot exceed",
    re.IGNORECASE,
)
_NUMBER: Final = r"(\d{1,3}(?:,\d{3})+|\d{1,15})(?!\d)"


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text.replace("#", _NUMBER), re.IGNORECASE) for text in texts)


# The first that is found counts; what is surer comes first, and the sum of prompt and reply last.
_PROMPT: Final = _patterns(
    r"\(# in the messages",
    r"# tokens from the input",
    r"\b(?:request|input|prompt) \(#",
    r"(?:resulted in|request has|passed|prompt contains|request contains) # (?:input )?tokens",
    r"the first # tokens",
    r"n_keep: ?#",
    r"\b(?:input|prompt) (?:length|token count)(?: of| is)? \(?#",
    r"\(length #\)",
    r"(?:context|prompt) length # is",
    r"given: #",
    r"too long: # tokens",
    r"requested tokens \(#",
    r"requested:? (?:about |a total of )?#",
    r"received #",
)
_CONTEXT: Final = _patterns(
    r"(?:max_seq_len|max_model_len|n_ctx):? \(?#",
    r"context (?:length|size|window|limit)(?: is| of)?(?: only)? \(?#(?! is greater)",
    r"context limit: # \+ # > #",
    r"maximum allowed length \(?#",
    r"maximum (?:model|prompt|input) length(?: is| of)? \(?#",
    r"must be <= #",
    r"less than # tokens",
    r"tokens > #",
    r"tokens allowed \(#",
    r"with # maximum context",
    r"token limit: #",
    r"(?:the limit of|cannot exceed) #",
)


def is_overflow(text: str) -> bool:
    """Tell whether an error says that the prompt does not fit.

    Args:
        text: its type, code and words.
    """
    return bool(_OVERFLOW.search(text))


def told_prompt(message: str) -> int | None:
    """Return how many tokens the prompt has, if the words tell.

    Args:
        message: of an overflow.
    """
    return _first(_PROMPT, message)


def told_context(message: str) -> int | None:
    """Return how many tokens the context holds, if the words tell.

    Args:
        message: of an overflow.
    """
    return _first(_CONTEXT, message)


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    match = next((found for pattern in patterns if (found := pattern.search(message))), None)
    return int(match[match.lastindex or 0].replace(",", "")) if match else None
