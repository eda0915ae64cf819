"""A call's arguments as JSON text while the model still writes them.

A fragment must never turn out wrong, so only what is certain goes out early: the text of a parameter that is a string and nothing
else by its schema, of a tool and a parameter that are spelled exactly, as it comes; a parameter of another type once it is
complete, typed by the same binding that will type the whole call. What is not certain waits for the end of the call. There
the bound arguments have the last word: if they differ from what was sent, the answer ends in an error.

A call that turns out invalid after its beginning was sent can still be mended: if the next try calls the same tool with all that
was sent, the rest is appended.
"""

import json
from typing import Any, Final

from ..binding import bind
from ..catalog import Catalog
from ..events import ToolArgumentDelta
from ..tool import Tool
from ..types import RawArgument, RawCall, ToolCall

__all__ = ["CallText"]

# Keys of a schema that say nothing about which strings are valid (JSON Schema 2020-12, validation, section 9).
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)


class CallText:
    """The JSON text of one call's arguments, piece by piece.

    Args:
        tool: the one that is called, by its exact name.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._properties = tool.input_schema.get("properties")
        self._sent: dict[str, Any] = {}
        self._open: str | None = None  # the parameter whose text is coming in
        self._text: list[str] = []
        self._plain = False  # the open parameter goes out as it comes
        self._held = False  # something is not certain: nothing more before the end

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._tool.name

    @property
    def begun(self) -> bool:
        """Whether anything was sent."""
        return bool(self._sent) or (self._plain and self._open is not None)

    def add(self, delta: ToolArgumentDelta) -> str:
        """Take a piece of a parameter; return what can be sent."""
        if self._held:
            return ""
        before = ""
        if delta.parameter != self._open:
            before = self._end_parameter() + ("" if delta.is_json else self._begin_parameter(delta.parameter))
            self._held = self._held or delta.is_json
        if self._held:
            return before
        self._text.append(delta.text)
        return before + (_inside(delta.text) if self._plain else "")

    def end_parameter(self) -> str:
        """Note that the open parameter is closed; return what can be sent."""
        return "" if self._held else self._end_parameter()

    def _begin_parameter(self, name: str) -> str:
        schema = self._properties.get(name) if isinstance(self._properties, dict) else None
        self._held = schema is None or name in self._sent
        if self._held:
            return ""
        self._plain = isinstance(schema, dict) and schema.get("type") == "string" and schema.keys() - {"type"} <= _ANNOTATIONS
        self._open, self._text = name, []
        return f'{self._comma()}{json.dumps(name)}: "' if self._plain else ""

    def _end_parameter(self) -> str:
        name, self._open = self._open, None
        if name is None:
            return ""
        text = "".join(self._text)
        if self._plain:
            self._sent[name] = text
            self._plain = False
            return '"'
        value = _typed(self._tool, name, text)
        if value is None:
            self._held = True
            return ""
        comma = self._comma()
        self._sent[name] = value[0]
        return f"{comma}{json.dumps(name)}: {_json(value[0])}"

    def _comma(self) -> str:
        return ", " if self._sent else "{"

    def end(self, call: ToolCall) -> str | None:
        """Return the rest of the text for the call as bound; None if what was sent is not part of it."""
        sent = dict(self._sent)
        rest = ""
        if self._plain and self._open is not None:
            name, text = self._open, "".join(self._text)
            value = call.arguments.get(name)
            if call.name != self._tool.name or not isinstance(value, str) or not value.startswith(text):
                return None
            rest = f'{_inside(value[len(text) :])}"'
            sent[name] = value
        if call.name != self._tool.name or any(not _is(call.arguments, name, value) for name, value in sent.items()):
            return None
        missing = [f"{json.dumps(name)}: {_json(value)}" for name, value in call.arguments.items() if name not in sent]
        joined = ", ".join(missing)
        if not sent:
            return f"{{{joined}}}"
        return f"{rest}, {joined}}}" if joined else f"{rest}}}"


def _is(arguments: dict[str, Any], name: str, value: Any) -> bool:
    return name in arguments and json.dumps(arguments[name], sort_keys=True) == json.dumps(value, sort_keys=True)


def _typed(tool: Tool, name: str, text: str) -> tuple[Any] | None:
    """Read one parameter as binding will; None if it is left out or cannot be read."""
    schema = {key: value for key, value in tool.input_schema.items() if key in ("$defs", "definitions", "properties")}
    alone = Tool(name=tool.name, input_schema={"type": "object", **schema})
    raw = RawCall(index=0, name=tool.name, arguments=(RawArgument(name=name, text=text),))
    call = bind(raw, Catalog([alone]))
    return (call.arguments[name],) if isinstance(call, ToolCall) and name in call.arguments else None


def _inside(text: str) -> str:
    """Write text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
