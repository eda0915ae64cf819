"""Detects calls that the model only copied; neither loop nor proxy runs them.

*Copied calls.* Anyone who can put text before the model (a person who quotes, a web page in a tool's result, a server's
description) can put a call there, and a model that copies it must not run it. Texts are compared by their skeletons, because
models undo entities and JSON escapes and fold white space. Our own prompt, feedback and reminder do not count, because they are
written to be followed. The server's words that they show do count, including names and values of a schema.

*Values of our example.* Small models also call with the values of the prompt's example, `2.5` or `city value`. Such a call is a
copy if it contains everything that its tool's example invents, and none of that appears in the conversation. Values from the
schema (an enum, a default, a limit) and values that anyone might choose (true, one whole number) are no evidence. A placeholder,
`city value` for the parameter `city`, counts in every call, because models carry the pattern over to other tools.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import regex

from ..dialects import DIALECTS, Body
from ..dialects.write import write
from ..schema.references import nodes
from ..tools.catalog import Catalog
from ..tools.outline import invented_arguments, placeholder
from ..types.calls import MISSING, InvalidCall, Issue, RawCall, Tool, ToolCall
from .skeleton import READINGS, letters, of_keys, readings, skeleton, skeletons, unquoted

_COPIED: Final = "This call repeats text from the conversation."
_EXAMPLE_VALUE: Final = (
    "This value only stood in the example, and nobody said it. Use a value of the request. "
    "If the request needs no tool, answer in plain words."
)

_ENOUGH: Final = 8  # letters of a notation, such as `parameter`
_SHORT: Final = 4
_SIGNS: Final = {Body.PYTHON: "[]()=", Body.LINES: "()=", Body.KEYED: "[]{}:"}  # of notations without words
# Calls in formats of models, which the server reads.
_NATIVE: Final = (
    '"name": "NAME", "arguments": ARGUMENTS',
    '{"arguments": ARGUMENTS, "name": "NAME"',
    "[TOOL_CALLS]NAMEARGUMENTS",
    "<function=NAME>ARGUMENTS",
    "<｜tool▁sep｜>NAME json ARGUMENTS",
)

_NUMBER = regex.compile(r"[0-9]+(?:[.,][0-9]+)?")
_WHOLE = regex.compile(r"[0-9]+")
# Numbers of examples in words, as a person may write them; if the wording differs, the model is only asked once more.
_SPOKEN: Final[Mapping[float, tuple[str, ...]]] = {
    2.5: ("two and a half", "two point five", "两个半", "二点五"),
    3: ("three", "third", "triple", "三"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Texts by others that the model sees.

    Args:
        instructions: from the calling program, which may show calls to be followed.
        offered: the tools that the prompt shows, callable or not; None if they are those that may be called.
        shown: the same texts, joined as the model sees them, because a call may be put together from several.
        known: cache of skeletons and readings of these texts, kept from one reply to the next.
    """

    said: Iterable[str] = ()
    described: Iterable[str] = ()
    instructions: Iterable[str] = ()
    offered: Catalog | None = None
    shown: Iterable[str] = ()
    known: dict[tuple[str | None, str], tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    def have(self, raw: RawCall, catalog: Catalog) -> bool:
        """Say whether people, tools, servers or the schemas of the catalog wrote this call, in whatever spelling."""
        others, bare = self._others(catalog), self._bare(_signs_of(raw))
        written, wordy = _forms(raw, catalog, bare)
        if any(form in text for form in written for text in others):
            return True
        as_written = [skeleton(each.text) for each in raw.arguments if _has_sign(each.text)]
        is_same = all(any(value in text for text in others) for value in as_written)
        return is_same and any(form in text for form in wordy for text in bare)

    def show(self, name: str, dialect: str, catalog: Catalog) -> bool:
        """Say whether others wrote the beginning of a call of this tool."""
        others, bare = self._others(catalog), self._bare("")
        if any(skeleton(sign + name) in text for sign in "<>=" for text in others):
            return True
        begun, found, _ = write([(name, {})], catalog, DIALECTS[dialect]).removeprefix(_block(dialect)).partition(name)
        opener = letters(begun + found)
        return len(opener) - len(letters(name)) >= _ENOUGH and any(opener in text for text in bare)

    def _others(self, catalog: Catalog) -> list[str]:
        """Return the joined skeletons of all texts, because a call may be spread over several results."""
        said = "".join(each for text in self._texts() for each in self._known(text, None))
        return [said, *(_on_offer(each) for each in (catalog, self.offered) if each is not None)]

    def _bare(self, signs: str) -> list[str]:
        """Return the letters of all texts, and these signs, in each reading."""
        texts = self._texts()
        known = [self._known(text, signs) for text in texts]
        return [*("".join(text[at] for text in known) for at in range(READINGS)), *of_keys(texts, signs)]

    def _texts(self) -> tuple[str, ...]:
        return (*self.said, *self.described, *self.shown)

    def _known(self, text: str, signs: str | None) -> tuple[str, ...]:
        if (signs, text) not in self.known:
            self.known[signs, text] = skeletons(text) if signs is None else readings(text, signs)
        return self.known[signs, text]


def _forms(raw: RawCall, catalog: Catalog, bare: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the forms in which a text may contain a call: skeletons, and letters."""
    written = {skeleton(raw.text), skeleton(unquoted(raw.text))} - {""}
    if raw.dialect != "native":
        return written, set(_letters_of(raw))
    # The server parsed this call from the model's text, in a format that it does not report.
    arguments = {each.name: each.text if each.value is MISSING else each.value for each in raw.arguments}
    if catalog.get(raw.name) is None or not all(any(part in text for text in bare) for part in _named(raw)):
        return written, set()
    as_json = json.dumps(arguments, ensure_ascii=False)
    written |= {skeleton(form.replace("NAME", raw.name).replace("ARGUMENTS", as_json)) for form in _NATIVE}
    calls = {key: write([(raw.name, arguments)], catalog, each) for key, each in DIALECTS.items()}
    written.add(skeleton(calls["pythonic"]))
    others = [replace(raw, dialect=key, text=text.removeprefix(_block(key))) for key, text in calls.items()]
    return written, {form for other in others if not _own_signs(other) for form in _letters_of(other)}


def _block(dialect: str) -> str:
    return DIALECTS[dialect].written.get("block_open", "")


def _has_sign(value: str) -> bool:
    """Say whether a value would become another one without its signs: `-5`, `2.5`, `a/b`, `+`."""
    bare = letters(value)
    return bare != value.strip().casefold() and (len(bare) <= _SHORT or bare.isdigit())


def _signs_of(raw: RawCall) -> str:
    """Return the signs to compare; without arguments also `{}`, which distinguishes a call from the tool's description."""
    return _own_signs(raw) or ("" if raw.arguments else "{}")


def _own_signs(raw: RawCall) -> str:
    return _SIGNS.get(DIALECTS[raw.dialect].body, "") if raw.dialect in DIALECTS else ""


def _named(raw: RawCall) -> list[str]:
    return [letters(raw.name), *(letters(part) for each in raw.arguments for part in (each.name, each.text))]


def _letters_of(raw: RawCall) -> Iterator[str]:
    """Yield a call's letters up to its last value, if its notation has enough words to distinguish it from plain text."""
    all_of_it = readings(raw.text, _signs_of(raw))[:2]
    if _own_signs(raw):
        yield from all_of_it
        return
    named = _named(raw)
    enough, last = sum(map(len, named)) + _ENOUGH, next(filter(None, reversed(named)), "-")
    for bare in all_of_it:
        begun, found, _ = bare.rpartition(last)
        up_to_last = begun + found if raw.arguments else bare
        if len(bare) >= enough:
            yield up_to_last if len(up_to_last) >= enough else bare


@functools.lru_cache(maxsize=32)
def _on_offer(catalog: Catalog) -> str:
    """Return the skeleton of the tools' names and schemas, all of which a prompt may show."""
    shown = (json.dumps([tool.name, tool.input_schema], ensure_ascii=False, default=str) for tool in catalog)
    return "".join(part for text in shown for part in skeletons(text))


def echo_of(call: ToolCall | InvalidCall, catalog: Catalog, sources: Sources) -> InvalidCall | None:
    """Return a copied call with issues `echo`, at `$` or at each value of our example; None if it is no copy."""
    if sources.have(call.raw, catalog):
        issues = [Issue(code="echo", message=_COPIED)]
    elif isinstance(call, ToolCall) and (tool := catalog.get(call.name)):
        names = _example_values(call, tool, (*sources.said, *sources.instructions))
        issues = [Issue(code="echo", path=f"$.{name}", message=_EXAMPLE_VALUE) for name in names]
    else:
        return None
    return InvalidCall(id=call.id, name=call.name, issues=tuple(issues), raw=call.raw) if issues else None


def words_of(tool: Tool) -> str:
    """Return a server's words about a tool: its description and all texts of its schema."""
    values = (value for node in nodes(tool.input_schema) for value in node.values())
    return "\n".join([tool.description, *(value for value in values if isinstance(value, str))])


def may_be_placeholder(name: str, text: str) -> bool:
    """Say whether a text that is still being written is a placeholder or may become one."""
    return placeholder(name).startswith(text)


def has_placeholder(name: str, value: Any) -> bool:
    """Say whether a value contains a placeholder of its parameter or of a field in it."""
    return any(_placeholders_in(name, value))


def examples_of(tool: Tool) -> list[dict[str, Any]]:
    """Return the invented values of a tool's example, by parameter; none if they are no evidence."""
    shown = invented_arguments(tool)
    return [{name: value for name, (value, _) in shown.items()}] if _evidence(shown) else []


def _example_values(call: ToolCall, tool: Tool, said: Iterable[str]) -> list[str]:
    shown = invented_arguments(tool)
    is_copy = all(name in call.arguments and call.arguments[name] == value for name, (value, _) in shown.items())
    if is_copy and (invented := _evidence(shown)) and not any(_is_said(value, said) for value in invented):
        return list(shown)
    given = call.arguments.items()
    return [name for name, value in given if not all(_is_said(word, said) for word in _placeholders_in(name, value))]


def _evidence(shown: Mapping[str, tuple[Any, list[str | int | float]]]) -> list[str | int | float]:
    """Return the invented values if a model is unlikely to choose them by chance, as it may choose a single whole number."""
    invented = [value for _, values in shown.values() for value in values]
    return invented if len(invented) > 1 or any(isinstance(value, str | float) for value in invented) else []


def _placeholders_in(name: str, value: Any) -> Iterator[str]:
    """Yield the strings in a value that are placeholders of its parameter or of the field that contains them."""
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
    for text in (each.replace("½", ".5") for each in said):
        # A comma may be a decimal sign or separate two numbers.
        numbers = {float(each.replace(",", ".")) for each in (*_NUMBER.findall(text), *_WHOLE.findall(text))}
        if value in numbers or any(word in text.casefold() for word in _SPOKEN.get(value, ())):
            return True
    return False
