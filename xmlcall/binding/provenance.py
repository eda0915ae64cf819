"""Finds where each value of a call came from: the person, a result, the program's instructions, the tool's schema, or the model.

A conversation is split into words, numbers, dates and times once (`spellings`), and an index maps each of them to its texts. A
value is found in a text that contains its words, whatever is between them; "New York, NY" is found in a text with "New York".
Values that would have to be computed (a sum, "tomorrow", a translation) are not found and count as the model's own. That is no
proof of a mistake, because the model may know them. Of a translation all that can be said is that the request has room for one.

Cost: linear in the conversation, which is read once, and in the value; the index keeps at most 100 texts for each word.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final, Literal

from ..dialects.write import as_message, said_by_whom
from ..schema.references import resolve
from ..tools.catalog import Catalog, Tools
from ..tools.outline import property_schema
from ..types.calls import Message, Role, Tool, ToolCall
from .spellings import Atom, atoms, may_be_translation, may_have_name, number_key, points_back

SourceKind = Literal["person", "result", "system", "schema", "assistant", "trivial", "invented"]

_ENOUGH: Final = 0.8  # share of a value's words, by their length, that a text must have
_PLACES: Final = 100  # most texts kept for each word
_SCHEMA_CHARACTERS: Final = 500_000  # most text of a tool that is read for the parameters of its calls, about half a second
_RANK: Final[Mapping[str, int]] = {kind: rank for rank, kind in enumerate(("person", "result", "system", "schema", "assistant"))}
_ROLES: Final[Mapping[str, SourceKind]] = {"user": "person", "assistant": "assistant"}
_SAYING: Final = ("title", "description", "enum", "const", "default", "examples", "example")  # keywords that name values
_CHOICES: Final = ("enum", "const", "default")  # those whose values a model only has to choose

_PLAIN_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NAMES: Final = re.compile(r"\b[A-Z]\w*(?: (?:(?:of|and|the|for|de) ){0,2}[A-Z]\w*){1,5}")
_ACRONYM: Final = re.compile(r"\b[A-Z]{2,5}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Where a value came from.

    Args:
        kind: `person` (the person's words), `result` (of a call), `system` (the program's instructions), `schema` (enum, default,
            examples or description), `assistant` (an earlier message of the model), `trivial` (true, false, null or empty), or
            `invented`.
        message: index of the message that contains the value, from 0; None if no message does.
        call: number of the call whose result contains the value, counted from 1 in the conversation; None if no result does.
        tool: name of that result's or schema's tool; "" if unknown.
        may_be_translation: whether a value of the kind `schema`, `assistant` or `invented` may translate the person's words,
            because the request has what may be a name in another script (巴黎 for "Paris").
    """

    kind: SourceKind
    message: int | None = None
    call: int | None = None
    tool: str = ""
    may_be_translation: bool = False


_INVENTED: Final = ValueSource(kind="invented")
_TRIVIAL: Final = ValueSource(kind="trivial")


def provenance(call: ToolCall, conversation: Iterable[Message | Mapping[str, Any]], tools: Tools = ()) -> dict[str, ValueSource]:
    """Find where each value of a call came from.

    Letter case, accents, punctuation and plurals do not matter, nor do other spellings of the same number, date, time or unit:
    "five" and 5, "1.5 million" and 1500000, "20%" and 0.2, "March 5th" and 2024-03-05. If several texts contain a value, the
    person's takes priority, then results, instructions, the schema, and the model's earlier messages.

    Args:
        call: the call, as bound.
        conversation: everything before the reply with the call, as messages or as dicts with `role` and `content`. Results are
            messages of role `tool`, or are in messages of role `user` as a `ToolLoop` writes them.
        tools: the tools that were offered; without the call's tool, no value is found in a schema.

    Returns:
        JSON path (`$.to[0].name`) -> source, in order, for each value except objects and lists that are not empty.

    Example:
        `provenance(call, answer.messages, tools)["$.city"].kind` is `"person"`.
    """
    said = SaidIndex()
    said.add_messages(conversation)
    tool = Catalog.of(tools).get(call.name)
    return {path: said.source_of(value, tool, name) for path, name, value in values_in(call.arguments)}


def values_in(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield path, parameter and value, for each item and field separately, in order; a list or object only if it is empty."""
    stack = [(member_path("$", name), name, value) for name, value in reversed([*arguments.items()])]
    while stack:
        path, name, value = stack.pop()
        if isinstance(value, dict) and value:
            stack += [(member_path(path, key), name, each) for key, each in reversed([*value.items()])]
        elif isinstance(value, list) and value:
            stack += [(f"{path}[{place}]", name, value[place]) for place in reversed(range(len(value)))]
        else:
            yield path, name, value


def member_path(path: str, name: str) -> str:
    """Return the JSON path of a member, in the form that issues use."""
    return f"{path}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{path}['{name}']"


class SaidIndex:
    """An index of what was said, by words, numbers, dates and times."""

    def __init__(self) -> None:
        self._sources: list[ValueSource] = []
        self._places: dict[str, list[int]] = {}
        self._declared: dict[str, _Declared] = {}
        self._calls = 0
        self._earlier: list[str] = []  # the person's words before the request
        self._request: list[str] = []  # the person's last words, and why they allowed no call after them
        self._may_have_name: bool | None = None  # None if not looked for since the person's last words

    def add(self, text: str, source: ValueSource) -> None:
        place = len(self._sources)
        self._sources.append(source)
        for key in keys_of_text(text):
            places = self._places.setdefault(key, [])
            if len(places) < _PLACES:
                places.append(place)

    def add_messages(self, conversation: Iterable[Message | Mapping[str, Any]]) -> None:
        for place, role, tool, text in said_by_whom(map(as_message, conversation)):
            self.add_said(place, role, tool, text)

    def add_said(self, place: int, role: Role, tool: str | None, text: str) -> None:
        """Add one item of `said_by_whom`; call this in the order of the conversation."""
        self._calls += tool is not None
        if tool is not None and role == "system":
            return  # why a call could not run, in words of ours that quote the model's own values
        if role == "tool":
            self.add(text, ValueSource(kind="result", message=place, call=self._calls, tool=tool or ""))
        else:
            self.add(text, ValueSource(kind=_ROLES.get(role, "system"), message=place))
        if role == "user":
            self._add_request(text, is_new=tool is None)

    def _add_request(self, text: str, *, is_new: bool) -> None:
        if is_new:
            self._earlier += self._request
            self._request = []
        self._request.append(text)
        self._may_have_name = None

    def source_of(self, value: Any, tool: Tool | None = None, parameter: str = "") -> ValueSource:
        """Find where a JSON value came from, other than an object or list that is not empty."""
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return _TRIVIAL
        found = self.find(value)
        if found is not None and _RANK[found.kind] < _RANK["schema"]:
            return found
        declared = self._declared_by(tool) if tool is not None else None
        source = (declared.about(parameter).find(value) if declared else None) or found or _INVENTED
        if not isinstance(value, str) or not may_be_translation(value) or not self._request_may_have_name():
            return source
        is_choice = declared is not None and value in declared.choices(parameter)
        return source if is_choice else replace(source, may_be_translation=True)

    def _declared_by(self, tool: Tool) -> "_Declared":
        if (declared := self._declared.get(tool.name)) is None or declared.tool is not tool:
            declared = self._declared[tool.name] = _Declared(tool)
        return declared

    def _request_may_have_name(self) -> bool:
        """Say whether the request has what may be a name in another script; also earlier words, if it points back to them."""
        if self._may_have_name is None:
            texts = [*self._earlier, *self._request] if any(map(points_back, self._request)) else self._request
            self._may_have_name = any(map(may_have_name, texts))
        return self._may_have_name

    def find(self, value: Any) -> ValueSource | None:
        """Return the source of a value; None if no text contains enough of it."""
        if isinstance(value, int | float):
            return self._first(self._places.get(number_key_of(value), ()))
        parts = atoms(value) if isinstance(value, str) else []
        head = value.partition(",")[0] if isinstance(value, str) else ""
        return self._all_of(parts) or (self._all_of(atoms(head), 1.0) if len(head) < len(value) else None)

    def _first(self, places: Iterable[int]) -> ValueSource | None:
        return min((self._sources[place] for place in places), key=lambda source: _RANK[source.kind], default=None)

    def _all_of(self, parts: Sequence[Atom], enough: float = _ENOUGH) -> ValueSource | None:
        """Return the source that contains most of these words, if it or all texts together contain enough of them."""
        telling = [part for part in parts if part.weight] or [replace(part, weight=len(part.text)) for part in parts]
        wanted = enough * sum(part.weight for part in telling)
        counts: Counter[int] = Counter()
        anywhere = 0
        for places, part in zip(self._places_of(telling), telling, strict=True):
            counts.update(dict.fromkeys(places, part.weight))
            anywhere += part.weight if places else 0
        short = self._places.get("short:" + "".join(part.text[:1] for part in telling), ()) if len(telling) > 1 else ()
        counts.update(dict.fromkeys(short, sum(part.weight for part in telling)))
        if not counts or max(anywhere, max(counts.values())) < wanted:
            return None
        most = max(counts.values())
        return self._first(place for place in sorted(counts) if counts[place] == most)

    def _places_of(self, parts: Sequence[Atom]) -> list[set[int]]:
        """Return, for each word, the texts that contain it: as written, as initials, or joined with its neighbour."""
        found = [{*self._places.get(part.key, ()), *self._places.get(f"initials:{part.text}", ())} for part in parts]
        for place, (one, other) in enumerate(pairwise(parts)):
            together = self._places.get(one.text + other.text, ())
            found[place].update(together)
            found[place + 1].update(together)
        return found


class _Declared:
    """The words of a tool about its parameters. Each parameter may have the whole schema in common, so all have one limit."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._indexes: dict[str, SaidIndex] = {}
        self._choices: dict[str, frozenset[str]] = {}
        self._left = _SCHEMA_CHARACTERS

    def about(self, parameter: str) -> SaidIndex:
        """Return the index of the words about a parameter."""
        if parameter not in self._indexes:
            self._indexes[parameter] = index = SaidIndex()
            text = _joined(chain([self.tool.description], _named(self.tool, parameter)), self._left)
            self._left -= len(text)
            index.add(text, ValueSource(kind="schema", tool=self.tool.name))
        return self._indexes[parameter]

    def choices(self, parameter: str) -> frozenset[str]:
        """Return the values of a parameter that its schema lists, and its default."""
        if parameter not in self._choices:
            self._choices[parameter] = frozenset(_named(self.tool, parameter, _CHOICES))
        return self._choices[parameter]


def _joined(parts: Iterable[str], most: int) -> str:
    taken: list[str] = []
    for part in parts:
        most -= len(part) + 1
        if most < 0:
            break
        taken.append(part)
    return "\n".join(taken)


def number_key_of(value: float) -> str:
    """Return the key of a JSON number; "" for an integer too large for a float."""
    try:
        return number_key(float(value))
    except OverflowError:
        return ""


def keys_of_text(text: str) -> set[str]:
    """Return all keys under which values may be found in a text."""
    keys: set[str] = set()
    before = ""
    for atom in atoms(text):
        keys.update((atom.key, before + atom.text, *atom.others))
        before = atom.text
    keys.update(f"short:{acronym.lower()}" for acronym in _ACRONYM.findall(text))
    for name in _NAMES.findall(text):
        letters = "".join(word[0] for word in name.split() if word[0].isupper()).lower()
        keys.update(f"initials:{letters[at : at + size]}" for size in (2, 3, 4) for at in range(len(letters) - size + 1))
    return keys


def _named(tool: Tool, parameter: str, keywords: Iterable[str] = _SAYING) -> Iterator[str]:
    """Yield the texts and values that a schema gives for a parameter and for its fields."""
    root = tool.input_schema
    stack, followed = [property_schema(root, parameter)], set[str]()
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, Mapping):
            if isinstance(reference := node.get("$ref"), str) and reference not in followed:
                followed.add(reference)
                stack.append(resolve(node, root))
            scalars = (each for key in keywords for _, _, each in values_in({"": node.get(key)}))
            yield from (str(each) for each in scalars if isinstance(each, str | int | float) and not isinstance(each, bool))
            stack += [each for key, each in node.items() if key not in _SAYING]
