"""Pictures in results, for a model that sees: a picture goes to it only if its first bytes are those of its type."""

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from ..types.calls import ImageContent, ToolResult

__all__ = ["PICTURES", "begins", "decoded", "pictures"]

LARGEST_PICTURE: Final = 5_000_000
MOST_PICTURES: Final = 4

# Type -> how its data begins, and the ending of a file. "\0" stands for any byte.
PICTURES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n", ".png"),
    "image/jpeg": (b"\xff\xd8\xff", ".jpg"),
    "image/gif": (b"GIF8", ".gif"),
    "image/webp": (b"RIFF\0\0\0\0WEBP", ".webp"),
}


def pictures(results: Iterable[ToolResult]) -> tuple[str, ...]:
    """Return the pictures of results for a model that sees, as `data:` URLs; those for the person alone are not among them."""
    blocks = [block for result in results for block in result.content if isinstance(block, ImageContent)]
    shown = (block for block in blocks if not block.audience or "assistant" in block.audience)
    urls = [f"data:{block.mime_type};base64,{block.data}" for block in shown if _is_picture(block)]
    return tuple(urls[:MOST_PICTURES])


def _is_picture(block: ImageContent) -> bool:
    data = decoded(block.data, LARGEST_PICTURE) if block.mime_type in PICTURES else None
    return data is not None and begins(data, PICTURES[block.mime_type][0])


def begins(data: bytes, begin: bytes) -> bool:
    """Say whether data begins in a way; in that, a zero stands for any byte."""
    return len(data) >= len(begin) and all(wanted in (0, byte) for wanted, byte in zip(begin, data, strict=False))


def decoded(text: str, largest: int) -> bytes | None:
    """Decode base64; None if it is none, or more than allowed."""
    if not text or len(text) * 3 // 4 > largest + 2:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
