"""Pictures, sound and other data of results, written to files, because a text model cannot see them and a person wants to.

Whatever a server sends, a file has a name that is made here and an ending from a fixed table, is readable by its owner alone, is
never run, and is not larger than allowed. A picture goes to a model that sees only if its first bytes are those of its type.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..types.calls import AudioContent, Content, EmbeddedResource, ImageContent, ToolResult

__all__ = ["kept", "pictures"]

LARGEST: Final = 20_000_000
"""Bytes of a file."""

MOST: Final = 20
"""Files of one result."""

LARGEST_PICTURE: Final = 5_000_000
MOST_PICTURES: Final = 4

# Type -> how its data begins, and the ending of a file. "\0" stands for any byte.
_PICTURES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n", ".png"),
    "image/jpeg": (b"\xff\xd8\xff", ".jpg"),
    "image/gif": (b"GIF8", ".gif"),
    "image/webp": (b"RIFF\0\0\0\0WEBP", ".webp"),
}
_ENDINGS: Final = {
    "audio/wav": (b"RIFF\0\0\0\0WAVE", ".wav"),
    "audio/x-wav": (b"RIFF\0\0\0\0WAVE", ".wav"),
    "audio/mpeg": (b"", ".mp3"),
    "audio/ogg": (b"OggS", ".ogg"),
    "audio/flac": (b"fLaC", ".flac"),
    "application/pdf": (b"%PDF-", ".pdf"),
    **_PICTURES,
}


def kept(result: ToolResult, folder: Path | None) -> ToolResult:
    """Write the data of a result to files.

    Args:
        result: of a tool.
        folder: for the files; it is made if it is missing. None to write none.

    Returns:
        The result, whose blocks tell where their data is; one that cannot be written tells nothing.
    """
    if folder is None:
        return result
    left, blocks = MOST, list[Content]()
    for block in result.content:
        path = _written(block, folder) if left and _data_of(block) is not None else ""
        left -= bool(path)
        blocks.append(_at(block, path) if path else block)
    return replace(result, content=tuple(blocks))


def pictures(results: Iterable[ToolResult]) -> tuple[str, ...]:
    """Return the pictures of results for a model that sees, as `data:` URLs; those for the person alone are not among them.

    Args:
        results: of tools.
    """
    blocks = [block for result in results for block in result.content if isinstance(block, ImageContent)]
    shown = (block for block in blocks if not block.audience or "assistant" in block.audience)
    urls = [f"data:{block.mime_type};base64,{block.data}" for block in shown if _is_picture(block)]
    return tuple(urls[:MOST_PICTURES])


def _is_picture(block: ImageContent) -> bool:
    data = _bytes(block.data, LARGEST_PICTURE) if block.mime_type in _PICTURES else None
    return data is not None and _begins(data, _PICTURES[block.mime_type][0])


def _at(block: Content, path: str) -> Content:
    return replace(block, path=path) if isinstance(block, ImageContent | AudioContent | EmbeddedResource) else block


def _data_of(block: Content) -> str | None:
    match block:
        case ImageContent(data=data) | AudioContent(data=data):
            return data
        case EmbeddedResource(text=None, blob=blob):
            return blob
    return None


def _written(block: Content, folder: Path) -> str:
    """Write a block's data; return the path, "" if it cannot be."""
    data = _bytes(_data_of(block) or "", LARGEST)
    if data is None:
        return ""
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}{_ending(getattr(block, 'mime_type', ''), data)}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except FileExistsError:  # the same data: the name is made of it
        return str(path) if path.is_file() else ""
    except OSError:  # a full disk, a folder of somebody else's
        return ""
    return str(path)


def _ending(mime_type: str, data: bytes) -> str:
    """Return the ending for a type that the data has; any other data has one that no program opens by itself."""
    begin, ending = _ENDINGS.get(mime_type, (b"", ".bin"))
    return ending if _begins(data, begin) else ".bin"


def _begins(data: bytes, begin: bytes) -> bool:
    return len(data) >= len(begin) and all(wanted in (0, byte) for wanted, byte in zip(begin, data, strict=False))


def _bytes(text: str, largest: int) -> bytes | None:
    """Decode base64; None if it is none, or more than allowed."""
    if not text or len(text) * 3 // 4 > largest + 2:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
