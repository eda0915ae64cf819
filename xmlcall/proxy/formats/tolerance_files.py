"""Files, sounds and films in a request: what is text is read, for anything else a note stands in its place (see `tolerance`).

A client sends what it once attached again with every question, so a refusal would end the conversation for good.
"""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final

from .tolerance_history import Body, kind_of, over, text_part

__all__ = ["files"]

_NAMES: Final = ("title", "filename", "name", "source", "file_id", "id")
_CALLED: Final = 100  # characters of a name
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
_READ_SOURCES: Final = {"document": ("text",), "image": ("base64", "url")}


def files(body: Body) -> str:
    """Put text or a note into the place of each file among the parts of messages, items and results."""
    notes: set[str] = set()

    def holder(given: Body, *, is_result: bool = False) -> None:
        for field in ("content", "output"):
            if not is_result:
                over(given, field, lambda part: holder(part, is_result=True) if kind_of(part) == "tool_result" else None)
            if isinstance(parts := given.get(field), list):
                given[field] = [each for part in parts for each in _replaced(part, notes)]

    over(body, "messages", holder)
    over(body, "input", holder)
    return "; ".join(sorted(notes))


def _replaced(part: Any, notes: set[str]) -> list[Any]:
    found = reader(part) if (reader := _READERS.get(kind_of(part))) else None
    if found is None:
        return [part]
    notes.add(f"content: wrote {kind_of(part)} as text")
    return found


def _with_source(part: Body) -> list[Any] | None:
    """Read a document or a picture of Anthropic's; None if it can stay, or has no source at all."""
    source, kind = part.get("source"), kind_of(part)
    if not isinstance(source, dict) or kind_of(source) in ("", *_READ_SOURCES[kind]):
        return None
    title = [text_part(part["title"])] if isinstance(part.get("title"), str) else []
    if kind_of(source) == "content":
        return [*title, *_plain(source.get("content"))]
    media_type = str(source.get("media_type") or "")
    text = _text_of(source.get("data"), media_type)
    return [_note(part, media_type or str(source.get("url") or source.get("file_id") or ""))] if text is None else [*title, text]


def _plain(content: Any) -> list[Any]:
    parts = content if isinstance(content, list) else [content]
    return [part if kind_of(part) == "text" else text_part(part) if isinstance(part, str) else _note(part, "") for part in parts]


def _found(part: Body) -> list[Any]:
    """Read a result of a search of Anthropic's: title, address and texts."""
    heads = [part[name] for name in ("title", "source") if isinstance(part.get(name), str)]
    return [text_part("\n".join(heads)), *_plain(part.get("content") or [])]


def _attached(part: Body) -> list[Any]:
    """Read a file of OpenAI's, whose data is a `data:` address."""
    inner = file if isinstance(file := part.get("file"), dict) else part
    data = inner.get("file_data")
    head, _, packed = data.partition(",") if isinstance(data, str) else ("", "", "")
    media_type = head.removeprefix("data:").partition(";")[0][:_CALLED] if head.startswith("data:") else ""
    text = _text_of(packed, media_type)
    return [_note(inner, media_type, "file")] if text is None else [text]


def _text_of(data: Any, media_type: str) -> Body | None:
    if not isinstance(data, str) or not media_type.lower().startswith(_TEXTS):
        return None
    try:
        return text_part(base64.b64decode("".join(data.split()), validate=True).decode(errors="replace"))
    except (binascii.Error, ValueError):
        return None


def _note(part: Any, what: str, kind: str = "") -> Body:
    names = (part.get(name) for name in _NAMES) if isinstance(part, dict) else ()
    name = next((name for name in names if isinstance(name, str) and name), "")
    called = f" {json.dumps(name[:_CALLED], ensure_ascii=False)}" if name else ""
    of = f" ({what[:_CALLED]})" if what else ""
    return text_part(f"[{kind or kind_of(part) or 'part'}{called}{of} left out: only text and pictures are read here]")


def _noted(part: Body) -> list[Any]:
    return [_note(part, "")]


_READERS: Final[dict[str, Callable[[Body], list[Any] | None]]] = {
    "document": _with_source,
    "image": _with_source,
    "search_result": _found,
    "file": _attached,
    "input_file": _attached,
    **dict.fromkeys(("audio", "audio_url", "input_audio", "input_video", "video", "video_url"), _noted),
}
