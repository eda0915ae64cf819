"""A conversation as a file: Markdown for people, or JSON for programs, by the suffix."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from ..dialects.replies import replies_of
from ..errors import UsageError
from ..turns.conversation import Conversation
from ..types.calls import Message
from .jsonform import json_text
from .plain import plain

__all__ = ["path_of", "save", "written"]


def written(conversation: Conversation, model: str, suffix: str) -> str:
    """Write a conversation.

    Args:
        suffix: `.md`, with the person's own words, or `.json`, with the messages as they are sent to the model.
    """
    if suffix == ".json":
        return json_text({"model": model, "messages": [_object(message) for message in conversation.messages]}) + "\n"
    if suffix == ".md":
        return "\n\n".join([f"# {plain(model)}", *(_section(message) for message in conversation.as_said())]) + "\n"
    raise UsageError(f"expected a file NAME.md or NAME.json, got the suffix {suffix!r}")


def path_of(name: str) -> Path:
    """Return the path that a person has typed; `~` is their home."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:  # `~nobody`
        raise UsageError(f"expected a file NAME.md or NAME.json, got {name[:200]!r}: {error}") from error


def save(path: Path, text: str, *, replace: bool) -> bool:
    """Write a file whole or not at all; return False if it is there already and is not to be replaced."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            part = Path(file.name)
            try:
                file.write(text)
                file.flush()
                if replace:
                    part.replace(path)
                else:
                    os.link(part, path)
            finally:
                part.unlink(missing_ok=True)
    except FileExistsError:
        return False
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write {str(path)!r}: {reason}") from error
    return True


def _object(message: Message) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    more = {"tool_calls": calls, "tool_call_id": message.tool_call_id, "name": message.name}
    return {"role": message.role, "content": message.content, **{key: value for key, value in more.items() if value}}


def _section(message: Message) -> str:
    """Write a message; what stands in a fence cannot end it, and so cannot pass for another section."""
    title = "result" if replies_of(message) else message.role
    calls = [f"{call.name} {json_text(call.arguments, indent=None)}" for call in message.tool_calls]
    text = plain("\n".join(filter(None, [message.content, *calls])))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"## {title}\n\n{fence}\n{text}\n{fence}"
