"""Calls that the model only copied: they do not run, in loop and proxy alike.

*Somebody's call.* Whoever can put text before the model (a person quoting, a web page in a tool's result, a server's description)
could put a call there; a model that copies it must not run it. The comparison is by skeletons: models undo entities and the
escapes of JSON, and fold white space. Our own prompt, feedback and reminder do not count: they are written to be followed. What
they show of a server's words does, names and values of a schema, too.

*Our example's values.* Small models also call with the values that the prompt's example shows, `2.5` or `city value`. Such a call
is a copy if everything that its tool's example invents is in it, and nobody said any of it. What comes from the schema (an enum,
a default, a limit) or could be anybody's choice (true, one whole number) is no evidence. A text that is a placeholder, `city
value` for the parameter `city`, is one in every call, because models carry the pattern over to other tools.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import regex

from ..schema.references import nodes
from ..tools.catalog import Catalog
from ..tools.outline import invented_arguments, placeholder
from ..types.calls import InvalidCall, Issue, Tool, ToolCall
from .skeleton import skeleton, skeletons, unquoted

__all__ = ["Sources", "echo_of", "examples_of", "has_placeholder", "may_be_placeholder", "words_of"]

_COPIED: Final = "This call repeats text from the conversation."
_EXAMPLE_VALUE: Final = (
    "This value only stood in the example, and nobody said it. Use a value of the request. "
    "If the request needs no tool, answer in plain words."
)

_NUMBER = regex.compile(r"[0-9]+(?:[.,][0-9]+)?")
_WHOLE = regex.compile(r"[0-9]+")
# Numbers of examples as a person may say them; what is said in another way is only asked for once more.
_SPOKEN: Final[Mapping[float, tuple[str, ...]]] = {
    2.5: ("two and a half", "two point five", "两个半", "二点五"),
    3: ("three", "third", "triple", "三"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Texts by others that stand before the model.

    Args:
        said: by people and by tools, in results.
        described: by servers, about their tools.
        instructions: by the program that asks; it may show calls to be followed.
        offered: the tools that the prompt shows, callable or not; None if they are those that may be called.
        shown: what stands before the model of all these as it is shown, where a call may be made of several words.
        known: skeletons of these texts, kept from one reply to the next.
    """

    said: Iterable[str] = ()
    described: Iterable[str] = ()
    instructions: Iterable[str] = ()
    offered: Catalog | None = None
    shown: Iterable[str] = ()
    known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def have(self, written: str, catalog: Catalog) -> bool:
        """Say whether a call stands in what people, tools or servers wrote, in whatever way it is written there.

        Args:
            written: the call.
            catalog: of the tools that may be called: all that their schemas name is shown to the model.
        """
        # One text behind the other, because a call may be spread over results.
        others = ["".join(map(self._skeleton, (*self.said, *self.described, *self.shown)))]
        others += [_on_offer(each) for each in (catalog, self.offered) if each is not None]
        calls = {skeleton(written), skeleton(unquoted(written))} - {""}
        return any(call in text for call in calls for text in others)

    def _skeleton(self, text: str) -> str:
        if text not in self.known:
            self.known[text] = "".join(skeletons(text))
        return self.known[text]


@functools.lru_cache(maxsize=32)
def _on_offer(catalog: Catalog) -> str:
    """Return the skeleton of what tools are called, and of their schemas: a prompt may show all of that."""
    shown = (json.dumps([tool.name, tool.input_schema], ensure_ascii=False, default=str) for tool in catalog)
    return "".join(part for text in shown for part in skeletons(text))


def echo_of(call: ToolCall | InvalidCall, catalog: Catalog, sources: Sources) -> InvalidCall | None:
    """Find a call that the model copied.

    Args:
        call: what it wrote.
        catalog: what was offered.
        sources: what others wrote.

    Returns:
        The call as an InvalidCall with issues `echo`, at `$` if the call was somebody's, else at each value of our example; or
        None.
    """
    if sources.have(call.raw.text, catalog):
        issues = [Issue(code="echo", message=_COPIED)]
    elif isinstance(call, ToolCall) and (tool := catalog.get(call.name)):
        names = _example_values(call, tool, (*sources.said, *sources.instructions))
        issues = [Issue(code="echo", path=f"$.{name}", message=_EXAMPLE_VALUE) for name in names]
    else:
        return None
    return InvalidCall(id=call.id, name=call.name, issues=tuple(issues), raw=call.raw) if issues else None


def words_of(tool: Tool) -> str:
    """Return what a server says in the description of a tool: its own and those of its parameters, from which no call is copied.

    Args:
        tool: as a server lists it.
    """
    values = (value for node in nodes(tool.input_schema) for value in node.values())
    return "\n".join([tool.description, *(value for value in values if isinstance(value, str))])


def may_be_placeholder(name: str, text: str) -> bool:
    """Say whether a text that is still being written can become a placeholder, or is one.

    Args:
        name: of its parameter.
        text: so far.
    """
    return placeholder(name).startswith(text)


def has_placeholder(name: str, value: Any) -> bool:
    """Say whether a value holds a placeholder of its parameter, or of a field in it.

    Args:
        name: of the parameter.
        value: as bound.
    """
    return any(_placeholders_in(name, value))


def examples_of(tool: Tool) -> list[dict[str, Any]]:
    """Return what the example of a tool invents, parameter -> value; none where that is no evidence.

    Args:
        tool: one that was offered.
    """
    shown = invented_arguments(tool)
    return [{name: value for name, (value, _) in shown.items()}] if _is_evidence(_values(shown)) else []


def _example_values(call: ToolCall, tool: Tool, said: Iterable[str]) -> list[str]:
    """Return the parameters whose values were copied from the example."""
    shown = invented_arguments(tool)
    invented = _values(shown)
    is_copy = all(name in call.arguments and call.arguments[name] == value for name, (value, _) in shown.items())
    if is_copy and _is_evidence(invented) and not any(_is_said(value, said) for value in invented):
        return list(shown)
    return [
        name for name, value in call.arguments.items() if any(not _is_said(word, said) for word in _placeholders_in(name, value))
    ]


def _values(shown: Mapping[str, tuple[Any, list[str | int | float]]]) -> list[str | int | float]:
    return [value for _, invented in shown.values() for value in invented]


def _is_evidence(invented: list[str | int | float]) -> bool:
    """Say whether nobody would choose these values by chance: one whole number may well be a choice."""
    return len(invented) > 1 or any(isinstance(value, str | float) for value in invented)


def _placeholders_in(name: str, value: Any) -> Iterator[str]:
    """Yield the strings in a value that are placeholders of its parameter, or of the field that they stand in."""
    open_values = [(name, value)]
    while open_values:
        name, value = open_values.pop()
        if isinstance(value, str) and value == placeholder(name):
            yield value
        elif isinstance(value, dict):
            open_values += value.items()
        elif isinstance(value, list):
            open_values += [(name, item) for item in value]


def _is_said(value: str | int | float, said: Iterable[str]) -> bool:
    if isinstance(value, str):
        return any(value.casefold() in text.casefold() for text in said)
    words = _SPOKEN.get(value, ())
    return any(value in _numbers(text) or any(word in text.casefold() for word in words) for text in said)


def _numbers(text: str) -> set[float]:
    """Return the numbers in a text; a comma may be a decimal one, or part two numbers."""
    text = text.replace("½", ".5")
    return {float(each.replace(",", ".")) for each in (*_NUMBER.findall(text), *_WHOLE.findall(text))}
