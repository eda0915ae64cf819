"""Which repairs of a call leave open whether it is the call that was written.

The codes are those of `errors.REPAIRS`. Where only the marks around a value were mended, name and value stand in the reply as
they run. Where a name, a value, or the place where a value ends was made out, a person may want to see it first.
"""

from typing import Final

from ..types.calls import ToolCall

__all__ = ["MADE_OUT", "ONLY_MARKS", "made_out"]


def _codes(words: str) -> frozenset[str]:
    return frozenset(words.split())


ONLY_MARKS: Final = _codes(
    """
    missing-block unclosed-block unclosed-call wrong-closer stray-tag repeated-block text-in-block code-fence leaked-call
    attribute-style tag-style parameter-element tool-element json-body arguments-wrapper repeated-argument placeholder-argument
    quoted-value to-string repeated-call own-words results-frame byte-order-mark
    json-single-quotes json-curly-quotes json-control-character json-python-literal json-tuple json-trailing-comma
    json-unquoted-key json-comment json-byte-order-mark json-white-space json-code-fence
    """
)
"""Codes of repairs that leave name and value as they were written."""

MADE_OUT: Final = _codes(
    """
    unclosed-parameter positional-argument bare-string xml-elements tool-name parameter-name empty-argument number-format
    boolean-word null-word enum-spelling single-item comma-list line-list
    json-inner-quote json-invalid-escape json-escaped-apostrophe json-equals-sign json-missing-comma json-missing-closer
    json-extra-closer json-double-encoding
    """
)
"""Codes of repairs by which a name, a value or its end was made out."""


def made_out(call: ToolCall) -> tuple[str, ...]:
    """Return the codes of a call's repairs that made out a name, a value or its end; each once, in order."""
    return tuple(dict.fromkeys(repair.code for repair in call.repairs if repair.code not in ONLY_MARKS))
