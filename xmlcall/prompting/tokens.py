"""How many tokens a text has, estimated from its characters: no server's tokenizer is at hand here."""

from typing import Final

__all__ = ["CHARACTERS_A_TOKEN", "tokens_of"]

CHARACTERS_A_TOKEN: Final = 3.2
"""Of ASCII without digits; fewer than of plain English, since code and markup have fewer."""

_DIGITS: Final = b"0123456789"
_NOT_ASCII: Final = bytes(range(128, 256))


def tokens_of(text: str) -> float:
    """Estimate: a digit is a token with most tokenizers, three bytes of anything beyond ASCII (one Han character) are one."""
    data = text.encode("utf-8", "surrogatepass")
    ascii_length = len(data.translate(None, _NOT_ASCII))
    digits = len(data) - len(data.translate(None, _DIGITS))
    return digits + (ascii_length - digits) / CHARACTERS_A_TOKEN + (len(data) - ascii_length) / 3
