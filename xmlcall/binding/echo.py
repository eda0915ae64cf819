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
from urllib.parse import unquote

import regex

from ..dialects import DIALECTS, Body
from ..dialects.write import write
from ..schema.references import nodes
from ..text_forms import normalized, unescaped
from ..tools.catalog import Catalog
from ..tools.outline import invented_arguments, placeholder
from ..types.calls import MISSING, InvalidCall, Issue, RawCall, Tool, ToolCall

# -- two texts compared in whatever way they are written ---------------------------------------------------------------
# A model that repeats a text may undo entities and the escapes of JSON, Python and URLs, fold white space, join lines or the
# strings of a list, omit invisible characters, and replace full-width characters. Both texts are stripped of all that, of
# quotation marks, and of marks on letters, because a model may omit a mark, and a mark after a bracket would change that
# character.
#
# The original may also have been interspersed with text that a copy lacks: numbers, names or marks before lines (a listing, a
# search, a comment, a diff), JSON keys, HTML formatting tags, terminal colours. So a text has several readings, and a call is
# compared with each of them by its letters and digits, in lower case, with look-alikes replaced by the letters they resemble.
# A request in plain words must not look like a call. So the call's notation must contain enough words (`invoke`, `parameter`,
# `arguments`), or its brackets are compared, too (`[add(a=1)]`).
#
# Cost: linear in the text.


_ROUNDS: Final = 6  # JSON in JSON in an attribute; one pass undoes any number of backslashes, and of `&amp;`
_AMPERSANDS: Final = regex.compile(r"&(?:amp;|#0{0,8}38;|#[xX]0{0,8}26;)+")
_HALVES: Final = regex.compile(r"&#(?:[xX]0{0,8}([dD][89A-Fa-f][0-9A-Fa-f]{2})|0{0,8}(5[5-7][0-9]{3}));?")
_HEX: Final = "[0-9A-Fa-f]"
_ESCAPE: Final = regex.compile(
    rf"\\++(?:u({_HEX}{{4}})|x({_HEX}{{2}})|u\{{0{{0,8}}({_HEX}{{1,5}})\}}|U000({_HEX}{{5}})"
    r"|N\{[A-Z][-A-Z0-9 ]{0,80}\}|([nrtbf])|(0?[4-7][0-7]|1[0-7]{2}))?"
)
_PAIRS: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]")  # JSON may write a character beyond U+FFFF as two halves
_MARKS: Final = regex.compile(r"[\p{M}\p{DI}\p{Cs}]++")  # removed before normalizing: long runs of marks take long to sort
_DROPPED: Final = regex.compile(r"[\s\p{C}\p{M}\p{DI}\"'`\u201c\u201d\u2018\u2019]++")  # invisible, and quotation marks
_QUOTED: Final = regex.compile(r"(?m)^[ \t]{0,8}>(?:[ \t]?>)*+")  # lines of a quotation in Markdown
_BETWEEN: Final = regex.compile(
    r'(?<!\\)\\*+"\s*+,\s*+(?:\\*+"[^"\\\n]{0,200}\\*+"\s*+:\s*+)?\\*+"'
)  # from a string in JSON to the next

_LOOKALIKES: Final = {
    **dict(zip(map(ord, "аеорсухіјѕһԁԛԝοανρικυχ"), "aeopcyxijshdqwoavpikux", strict=True)),
    **{start + at: chr(ord("a") + at) for start in (0x1F150, 0x1F170, 0x1F1E6) for at in range(26)},
}
_LINE_START: Final = regex.compile(
    r"(?m)^[^\p{L}\p{N}\n]{0,40}(?:(?:[\w./-]{1,100}:)?\d{1,6}(?:/\d{1,6})?(?:[:.)|\t\]-]|[ ]{2})|[\w-]{1,40}:[ \t])"
)
_INSIDE: Final = regex.compile(
    r"\x1b\[[0-9;]{0,20}[A-Za-z]|<!--|-->"
    r"|</?(?:a|abbr|b|big|br|cite|code|del|div|em|font|i|ins|kbd|li|mark|p|pre|q|s|samp|small|span|strong|sub|sup|td|tr|tt|u|var|wbr)"
    r"(?:[ ][^<>\n]{0,200})?/?>|=(?:3D)*(?:[23][A-F]|[57][B-F])"  # the last one: punctuation in quoted-printable mail
)
_STRINGS: Final = {
    quote: regex.compile(
        rf"(?s){quote}((?:[^{quote}\\]++|\\.)*+)(?:{quote}|\\?\Z)"
        r"(\s*+:\s*+(?:-?[0-9][0-9.eE+-]{0,30}|true\b|false\b|null\b|True\b|False\b|None\b)?)?"
    )
    for quote in "\"'"
}
_QUOTE: Final = regex.compile(r"\\([\"'\\/])")
_DEPTH: Final = 3  # JSON in a string in JSON

READINGS: Final = 6
"""Number of readings that a text has."""


def skeleton(text: str) -> str:
    """Return a text without its escapes, white space, quotation marks and invisible characters."""
    return _without(_DROPPED, _plain(text))


def _plain(text: str) -> str:
    """Undo all escapes of a text, and remove marks on letters and invisible characters."""
    for _ in range(_ROUNDS):
        before = text
        if "\\" in text:
            text = _ESCAPE.sub(_unescape, text)
        if "&" in text:
            text = unescaped(_HALVES.sub(_half, _AMPERSANDS.sub("&", text)))
        if "%" in text:
            text = unquote(text)
        if text == before:  # not earlier, because a backslash and a full-width character are not an escape
            text = _narrow(text)
        if text == before:
            break
    return _narrow(text)


def _narrow(text: str) -> str:
    if text.isascii():
        return text
    return _MARKS.sub("", normalized("NFKD", _MARKS.sub("", _PAIRS.sub(_join, text))))


def skeletons(text: str) -> tuple[str, ...]:
    """Return the skeletons of a text: unchanged, with adjacent JSON strings joined, and without the marks of quoted lines."""
    return tuple(map(skeleton, dict.fromkeys((text, _BETWEEN.sub("", text), unquoted(text)))))


def unquoted(text: str) -> str:
    """Return a text without the marks of quoted lines, with which prompts show a server's instructions."""
    return _QUOTED.sub("", text)


def _unescape(found: "regex.Match[str]") -> str:
    code = found[1] or found[2] or found[3] or found[4]
    if code:
        return chr(int(code, 16))
    if found[6]:
        return chr(int(found[6], 8))
    return {"": "", "t": "\t"}.get(found[5] or "", "\n")


def _half(found: "regex.Match[str]") -> str:
    code = int(found[1], 16) if found[1] else int(found[2])
    return chr(code) if 0xD800 <= code < 0xE000 else found[0]


def _join(found: "regex.Match[str]") -> str:
    high, low = map(ord, found[0])
    return chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)


def letters(text: str, signs: str = "") -> str:
    return _bare(_plain(text), signs)


def readings(text: str, signs: str = "") -> tuple[str, ...]:
    """Return the letters of a text in each reading: of all of it; without line prefixes and tags in words; without JSON keys."""
    undone = _plain(text)
    as_it_is, tidy = _bare(undone, signs), _bare(_INSIDE.sub("", _LINE_START.sub("", undone)), signs)
    keyless = [letters(_without_keys(text, quote), signs) if _has_keys(text, quote) else as_it_is for quote in _STRINGS]
    # The first half of a JSON call may be in a text and its second half in a value.
    return as_it_is, tidy, *keyless, *(keyless if _is_json(text) else [as_it_is] * len(keyless))


@functools.lru_cache(maxsize=2)
def of_keys(texts: tuple[str, ...], signs: str = "") -> tuple[str, ...]:
    """Return, for each JSON key (and for none), the letters of all strings under it, joined."""
    found: dict[tuple[int, str, str], list[str]] = {}
    for text in texts:
        for quote in _STRINGS:
            if _has_keys(text, quote) or f"{quote}," in text:
                _collect(text, quote, found)
    return tuple(letters("".join(strings), signs) for strings in found.values() if len(strings) > 1)


def _bare(text: str, signs: str) -> str:
    text = text.translate(_LOOKALIKES) if not text.isascii() else text
    return _without(_others(signs), text.casefold())


def _without(dropped: "regex.Pattern[str]", text: str) -> str:
    """Delete the characters that a pattern of single characters matches; ASCII by a table, 40 times as fast for a page."""
    return text.encode().translate(None, _ascii_in(dropped)).decode() if text.isascii() else dropped.sub("", text)


@functools.cache
def _ascii_in(pattern: "regex.Pattern[str]") -> bytes:
    return bytes(code for code in range(128) if pattern.match(chr(code)))


@functools.cache
def _others(signs: str) -> "regex.Pattern[str]":
    return regex.compile(rf"[^\p{{L}}\p{{N}}{regex.escape(signs)}]++|[\p{{DI}}\U00013441\U00013442]++")


def _has_keys(text: str, quote: str) -> bool:
    return f"{quote}:" in text or f"{quote} :" in text


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")


def _without_keys(text: str, quote: str, depth: int = _DEPTH) -> str:
    def kept(found: "regex.Match[str]") -> str:
        if found[2]:
            return ""
        inside: str = found[1]
        if depth and "\\" + quote in inside and _is_json(inside):
            inside = _without_keys(_QUOTE.sub(r"\1", inside), quote, depth - 1)
        return quote + inside + quote

    return _STRINGS[quote].sub(kept, text)


def _collect(text: str, quote: str, found: dict[tuple[int, str, str], list[str]], depth: int = _DEPTH) -> None:
    key = ""
    for each in _STRINGS[quote].finditer(text):
        if each[2]:
            key = each[1]
        else:
            found.setdefault((depth, quote, key), []).append(each[1])
            if depth and "\\" + quote in each[1]:
                _collect(_QUOTE.sub(r"\1", each[1]), quote, found, depth - 1)


# -- calls that were only copied ---------------------------------------------------------------------------------------


_COPIED: Final = "This call repeats text from the conversation."
_EXAMPLE_VALUE: Final = (
    "This value only stood in the example, and nobody said it. Use a value of the request. "
    "If the request needs no tool, answer in plain words."
)

_ENOUGH: Final = 8  # letters of a notation, such as `parameter`
_SHORT: Final = 4
_SIGNS: Final = {Body.PYTHON: "[]()=", Body.LINES: "()=", Body.KEYED: "[]{}:"}  # the brackets of notations without words
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
    """Texts by others that the model sees."""

    said: Iterable[str] = ()
    described: Iterable[str] = ()
    instructions: Iterable[str] = ()  # from the calling program, which may show calls to be followed
    offered: Catalog | None = None  # the tools that the prompt shows, callable or not; None if they are those that may be called
    shown: Iterable[str] = ()  # the same texts, joined as the model sees them, because a call may be put together from several
    # Cache of skeletons and readings of these texts, kept from one reply to the next.
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
    blocks = {key: each.written.get("block_open", "") for key, each in DIALECTS.items()}
    others = [replace(raw, dialect=key, text=text.removeprefix(blocks[key])) for key, text in calls.items()]
    return written, {form for other in others if not _own_signs(other) for form in _letters_of(other)}


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
    """Return a copied call with issues `echo`, at `$` or at each value of our example; None if it is not a copy."""
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
