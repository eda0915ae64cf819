"""Saves pictures, sound and other data of results to files, because a text model cannot see them but the user wants to.

Whatever a server sends, each file gets a name made here and an extension from a fixed table, is readable only by its owner, is
never executed, and has a limited size. A picture goes to a vision model only if its first bytes match its type.
"""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..private_folders import make_private
from ..prompting.results import PICTURES, begins, decoded
from ..types.calls import AudioContent, Content, EmbeddedResource, ImageContent, ToolResult

__all__ = ["kept"]

LARGEST: Final = 20_000_000
"""Bytes of a file."""

MOST: Final = 20
"""Files of one result."""

# Type -> how its data begins, and the file extension. "\0" matches any byte.
_ENDINGS: Final = {
    "audio/wav": (b"RIFF\0\0\0\0WAVE", ".wav"),
    "audio/x-wav": (b"RIFF\0\0\0\0WAVE", ".wav"),
    "audio/mpeg": (b"", ".mp3"),
    "audio/ogg": (b"OggS", ".ogg"),
    "audio/flac": (b"fLaC", ".flac"),
    "application/pdf": (b"%PDF-", ".pdf"),
    **PICTURES,
}


def kept(result: ToolResult, folder: Path | None) -> ToolResult:
    """Write the data of a result to files.

    Args:
        folder: where the files go; created if missing. None to save none.

    Returns:
        The result, whose blocks have the paths of their files; a block that could not be saved has none.
    """
    if folder is None:
        return result
    left, blocks = MOST, list[Content]()
    for block in result.content:
        path = _written(block, folder) if left and _data_of(block) is not None else ""
        left -= bool(path)
        blocks.append(_at(block, path) if path else block)
    return replace(result, content=tuple(blocks))


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
    """Write a block's data to a file; return the path, "" if that fails."""
    data = decoded(_data_of(block) or "", LARGEST)
    if data is None:
        return ""
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}{_ending(getattr(block, 'mime_type', ''), data)}"
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except FileExistsError:  # the same data, because the name is its hash
        return str(path) if path.is_file() else ""
    except OSError:  # for example a full disk, or another user's folder
        return ""
    return str(path)


def _ending(mime_type: str, data: bytes) -> str:
    """Return the extension of a type if the data matches it; else `.bin`, which no program opens by itself."""
    begin, ending = _ENDINGS.get(mime_type, (b"", ".bin"))
    return ending if begins(data, begin) else ".bin"
