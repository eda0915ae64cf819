"""The fragments of text that identify a format, for text that must not read as a call and for replies that attempt one.

A fragment is a tag as its row's pattern reads it, or the beginning of a tag as the row writes it (`<invoke`, `[TOOL_CALLS]`), so
that a truncated tag is recognized, too. JSON has no tags; a call in JSON is recognized by its two keys.

Cost: linear in the text, because every pattern of a row has a maximum length and only a few of the hundreds are tried at one
place.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import regex

from ..tools.catalog import Catalog
from . import BUILT_IN, DIALECTS
from .dialect import (
    ARGUMENTS,
    NAMES,
    OTHER,
    OWN_RESULTS,
    SPACE,
    ZERO_WIDTH,
    Dialect,
    ResultForm,
    first_characters,
    second_characters,
    with_tools,
)
from .write import tag_names

_FOREIGN = ("<tool>", "<tools>")  # elements that models invent around JSON: part of a pattern, not tags of a row
_HEAD = regex.compile(r"(?:&lt;|[^\w\s{])/?[^\s<>&={}\[\]\"]*")  # a written tag up to the end of its name
_JSON_KEYS = (
    regex.compile(rf'"(?:{"|".join(NAMES)})"\s*:\s*"'),
    regex.compile(rf'"(?:{"|".join((*ARGUMENTS, "tool_input"))})"\s*:'),
)
_PYTHON_LIST = regex.compile(r"(?m)^[ \t]{0,16}\[\s{0,8}[^\W\d][\w.\-]{0,127}\((?:\s{0,8}\w{1,128}\s{0,4}=(?!=)|\*\*\{|\)\])")
_FEW = 4  # fragments that are simply tried in turn
_DEEPEST = 3  # characters that distinguish them
_ANY_NAME = r"[\w.\-]{1,128}"
_NO_SIGN = frozenset({"json_open", "quote", "fence_close", "name_end", "mark"})  # mean nothing alone
# `<arguments>` may be a word of a manual; marks of reasoning and of messages occur in replies without a call.
_EVERYDAY = frozenset({"body_open", "list_close", "reasoning_open", "reasoning_close", "text_open", "message_close", "special"})


def opening_places(dialects: Iterable[Dialect], names: Iterable[str] = ()) -> Callable[[str], list[int]]:
    """Return a function that finds each character that may begin a tag: `<`, the `&` of `&lt;`, or another one of a format.

    To make a text inert, replace these characters, for example by their entities. Bare JSON calls are not found, because they
    begin like any JSON. The names are those of the tools, for formats in which a tool's name is a tag.
    """
    openers = [_openers(part) for part in _parts(tuple(dialects), tuple(names))]
    return lambda text: sorted({at for branches, candidates in openers for at in _places(branches, candidates, text)})


def attempts_call(text: str, dialects: Iterable[Dialect], names: Iterable[str] = ()) -> bool:
    """Say whether a text contains a fragment of a call, whole or broken; it is too loose to run anything because of it."""
    rows = tuple(dialects)
    if any(_compiled(part).search(text) for part in _parts(rows, tuple(names), without=_EVERYDAY)):
        return True
    if any(row.is_python for row in rows) and _PYTHON_LIST.search(text):
        return True
    return any(row.is_json for row in rows) and all(key.search(text) for key in _JSON_KEYS)


def call_marks(dialects: Iterable[Dialect], names: Iterable[str] = ()) -> str:
    """Return a pattern for the marks of formats that certainly mean a call."""
    return "|".join(dict.fromkeys(_fragments(dialects, tuple(names), without=_EVERYDAY)))


def _parts(dialects: tuple[Dialect, ...], names: tuple[str, ...], without: frozenset[str] = frozenset()) -> list[tuple[str, ...]]:
    """Return the fragments, those without a tool's name apart: they are compiled once instead of for each list of tools."""
    fragments = dict.fromkeys(_fragments(dialects, names, without))
    fixed = dict.fromkeys(each for each in _fragments(dialects, (), without) if each in fragments)
    named = tuple(each for each in fragments if each not in fixed)
    return [part for part in (tuple(fixed), named) if part]


def _fragments(dialects: Iterable[Dialect], names: tuple[str, ...], without: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield patterns: first the beginnings of tags, which are fast to find, then whole tags."""
    rows = tuple(with_tools(row, names) for row in dialects)
    heads = {
        match[0]
        for row in rows
        for kind, tag in row.written.items()
        if kind not in without | _NO_SIGN and (match := _HEAD.match(tag))
    }
    yield from (rf"(?i:{regex.escape(head)})(?![\w\-])" for head in sorted(heads) if any(map(str.isalnum, head)))
    yield from map(regex.escape, _FOREIGN)
    yield from (tag for row in rows for kind, tag in row.tags.items() if kind not in without | _NO_SIGN)
    lost = (row.lost_mark for row in rows if row.lost_mark and "call_open" not in row.tags)
    # A name before the mark is omitted, because any word may be one and the mark alone is as certain.
    yield from (mark.removeprefix("{tools}").replace("{tools}", _ANY_NAME) for mark in lost)


@functools.lru_cache(maxsize=1024)
def _compiled(fragments: tuple[str, ...]) -> "regex.Pattern[str]":
    return regex.compile("|".join(dict.fromkeys(fragments)))


# In a text of nothing but `<`, each of the hundreds of fragments would be tried at each place. So their first three characters
# distinguish them, and only the few that remain are tried.


@dataclass(frozen=True)
class _Branch:
    """Fragments with the same first characters, split by the next one if there are many; `others` if no fragment names it."""

    fragments: tuple[str, ...]
    following: Mapping[str, "_Branch"]
    others: "_Branch | None" = None

    @functools.cached_property
    def pattern(self) -> "regex.Pattern[str]":
        """A pattern for any of the fragments, compiled on first use."""
        return _compiled(self.fragments)


@functools.lru_cache(maxsize=64)
def _openers(fragments: tuple[str, ...]) -> tuple[Mapping[str, _Branch], re.Pattern[str]]:
    """Return fragments by their first character, and a pattern for the places where one may begin."""
    groups: dict[str, list[str]] = {}
    for each in fragments:
        for first in first_characters(each):
            groups.setdefault(first, []).append(each)
    branches = {first: _branch(tuple(group), first) for first, group in groups.items()}
    return branches, re.compile("|".join(re.escape(first) + _ahead(branch) for first, branch in branches.items()))


def _branch(fragments: tuple[str, ...], start: str) -> _Branch:
    """Split fragments by what may follow their first characters; anything may follow a fragment that may end there."""
    if len(start) > 1 and (len(fragments) <= _FEW or len(start) >= _DEEPEST):
        return _Branch(fragments, {})
    seconds = {each: second_characters(each, start) for each in fragments}
    whole = {each for each in fragments if _compiled((each,)).match(start)}
    following = {}
    for char in frozenset().union(*seconds.values()) - {OTHER}:
        group = tuple(each for each in fragments if each in whole or _compiled((each,)).match(start + char, partial=True))
        following[char] = _branch(group, start + char)
    others = tuple(each for each in fragments if each in whole or OTHER in seconds[each])
    return _Branch(fragments, following, _Branch(others, {}) if others else None)


def _ahead(branch: _Branch) -> str:
    """Return a lookahead for the distinguishing characters that may follow; "" if anything may."""
    if branch.others or not branch.following:
        return ""
    alike: dict[str, str] = {}
    for char, below in sorted(branch.following.items()):
        ahead = _ahead(below)
        alike[ahead] = alike.get(ahead, "") + re.escape(char)
    return f"(?={'|'.join(f'[{each}]{ahead}' for ahead, each in alike.items())})"


def _places(branches: Mapping[str, _Branch], candidates: re.Pattern[str], text: str) -> Iterator[int]:
    for found in candidates.finditer(text):
        at, depth = found.start(), 1
        branch: _Branch | None = branches[text[at]]
        while branch and branch.following:
            branch, depth = branch.following.get(text[at + depth : at + depth + 1], branch.others), depth + 1
        if branch and branch.pattern.match(text, at):
            yield at


# -- making fragments inert --------------------------------------------------------------------------------------------
# Makes a text inert, so that nothing in it opens a call in any wire format; the rows define what may open one.
#
# Text from tools and servers is untrusted. The marks of results are made inert in it, too, so that a result cannot close its own
# frame; so are our own tags and those of reasoning and of chat templates, which servers interpret anywhere in a prompt.
#
# Strategy: replace only the first character of possible call markup by an entity: `<` by `&lt;`, the `&` of a tag that is itself
# written with entities by `&amp;`, and the bracket of a possible call without any mark by `&#123;` or `&#91;`. Everything else
# stays unchanged, so that a model can read the text and quote from it.
#
# The order matters, because an entity can complete a tag of the format that is written with entities: `<invoke name="f"&gt;` is
# one once its `<` is replaced. So these tags are searched again afterwards, and then JSON.
#
# Cost: linear. Each place where markup can begin is checked a few times, and every pattern of a row has a maximum length. The
# next characters rule most places out before any pattern of a row is tried.


FRAME_TAGS: Final = OWN_RESULTS.tag_words()

_FORMS: Final = tuple(dict.fromkeys([OWN_RESULTS, *(row.results for row in DIALECTS.values())]))

INERT_WORDS: Final = frozenset(
    {*(word for form in _FORMS for word in form.tag_words("<")), *tag_names(DIALECTS["function_calls"])}
    | {"think", "thinking", "reasoning"}
)
"""Names of the tags that are made inert in untrusted text, besides those of chat templates."""

CONTROL_TAGS: Final = (
    *("s>", "bos>", "eos>", "pad>", "unk>", "bos_token>", "eos_token>"),
    *("BOS_TOKEN>", "EOS_TOKEN>", "PAD_TOKEN>", "EOP_TOKEN>", "MASK_TOKEN>"),  # Command
    *("start_of_turn>", "end_of_turn>", "start_of_image>", "end_of_image>", "image_soft_token>"),  # Gemma
    *("turn|>", "channel|>", "tool|>", "tool_call|>", "tool_response|>", "think|>", "image|>", "audio|>", "video|>"),  # Gemma 4
    *("start_function_", "end_function_", "escape>"),  # FunctionGemma
    *("seed:", "[begin", "[end", "[PAD"),  # Seed
    *("role>SYSTEM", "role>HUMAN", "role>USER", "role>ASSISTANT", "role>OBSERVATION", "role>TOOL"),  # Ling
    *("<SYS>>", "</SYS>>"),  # Llama 2
    *("SPECIAL_", "extra_id_"),  # Nemotron
    *("sop>", "eop>", "eod>", "eoh>", "eoa>"),  # GLM, InternLM
    *("longcat_", "ifm|", "mm:", "reserved_", "fim_", "file_sep>"),  # LongCat, K2 Horizon, MiniMax M3, Baichuan, StarCoder
    *("\u7528\u6237>", "AI>", "_user>", "_bot>", "_end>", "_system>"),  # MiniCPM, TeleChat2
    *("end_of_utterance>", "mask>", "BOS>", "EOS>", "repo_name>"),  # SmolVLM, Gemma, others
)
"""What follows the `<` or `</` of control words of chat templates, besides `|`."""

CONTROL_WORDS: Final = (
    *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),  # Mistral
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"),
    *("[MODEL_SETTINGS]", "[/MODEL_SETTINGS]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "[AUDIO]", "[BEGIN_AUDIO]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[TRANSCRIBE]"),
    *("[gMASK]", "[sMASK]", "[MASK]"),  # GLM
    *("[|system|]", "[|user|]", "[|assistant|]", "[|tool|]", "[|endofturn|]"),  # EXAONE
    *("[BOS]", "[EOS]", "[PAD]", "[SEP]", "[CLS]"),
    *("]~b]", "]~!b[", "[e~[", "]<]"),  # MiniMax
)
"""Other control words of chat templates, as written."""

_GAP: Final = rf"[\s{ZERO_WIDTH}]{{0,8}}"
_END: Final = r"(?:\s{0,8}>|\s{1,8}\w{1,32}\s{0,8}=\s{0,8}[\"'])"  # the end of an opener, which `if (a < result)` lacks


def _one_of(words: Iterable[str]) -> str:
    """Return a pattern for words, grouped by first character, so that only a few of hundreds are tried at one place."""
    rests: dict[str, list[str]] = {}
    for word in sorted({*words}):
        rests.setdefault(re.escape(word[0]), []).append(re.escape(word[1:]))
    groups = (f"{first}(?:{'|'.join(each)})" for first, each in rests.items())
    return f"(?=[{''.join(rests)}])(?:{'|'.join(groups)})" if rests else "(?!)"


_NUMBERED: Final = r"(?:unused|control_|ctrl|UNUSED_TOKEN_)\d"  # reserved places of vocabularies
_CONTROL: Final = re.compile(
    rf"<(?=[|\uff5c]|/?{_one_of(CONTROL_TAGS)}|{_NUMBERED})|(?={_one_of(CONTROL_WORDS)})[\[\]]|\[(?={_NUMBERED})"
)

_TOOL_TAG: Final = re.compile(rf"<(?=[^<>]{{1,240}}>)(?=/?{SPACE}([^<>]{{1,200}}?){SPACE}/?>)")

_ENTITIES: Final = {"<": "&lt;", "&": "&amp;"}
_VALUE: Final = regex.compile(r":\s{0,32}([\"'])([^\"'\s]{1,200}+)\1")
_NAME_AT_END: Final = regex.compile(rf"(?:[\"'](?:{'|'.join(NAMES)})[\"']\s*:\s*(?:\"([^\"]*)\"|'([^']*)')|\[\s*([\w.\-]+)\()\Z")


def inert_frame(text: str, form: ResultForm = OWN_RESULTS) -> str:
    """Make the tags of our own prompt, the marks of results and those of chat templates inert in untrusted text."""
    return _frames(form).sub(_entity, _CONTROL.sub(_entity, text))


def inert_text(text: str, catalog: Catalog, form: ResultForm = OWN_RESULTS, *, is_whole: bool = False) -> str:
    """Make everything inert that could be read as a call in any wire format, and what `inert_frame` makes inert.

    A JSON schema of `arguments` stays unchanged if no other untrusted text follows in which a call could continue (`is_whole`).
    """
    # Formats of other packages may use the tools' names in any mark. Our own use them only in tags, which `_TOOL_TAG` finds
    # however many tools there are, and in marks that are inert anyway.
    names = catalog.names() if DIALECTS.keys() > BUILT_IN else ()
    text = _write_entities(text, _openers_of(tuple(DIALECTS), names)(text))
    text = _completing_entity().sub("&amp;lt;", text)
    text = _TOOL_TAG.sub(lambda found: "&lt;" if found[1] in catalog else "<", text)

    def declared(name: str) -> bool:
        return not len(catalog) or catalog.meant_by(name) is not None

    return inert_frame(_write_entities(text, _bare_calls(text, declared, is_whole=is_whole)), form)


@functools.lru_cache(maxsize=64)
def _frames(form: ResultForm) -> re.Pattern[str]:
    """Return a pattern for possible tags of a frame, in any letter case and with gaps, because a model may accept these, too."""
    words = {*INERT_WORDS, *form.tag_words("<")}
    tags = _one_of(words)
    marks = _one_of(word for each in (*_FORMS, form) for word in each.tag_words("["))
    opener = rf"[{ZERO_WIDTH}]{{0,4}}{tags}\b|{_GAP}{tags}(?={_END})"
    firsts = re.escape("".join(sorted({word[0] for word in words})))
    begin = rf"[<\uff1c](?={_GAP}[/{firsts}])"  # most are refused by what follows them
    return re.compile(rf"(?i){begin}(?={_GAP}/{_GAP}{tags}\b|{opener})|\[(?={_GAP}/?{_GAP}{marks}\b)")


@functools.lru_cache(maxsize=64)
def _openers_of(_: tuple[str, ...], names: tuple[str, ...]) -> Callable[[str], list[int]]:
    return opening_places(DIALECTS.values(), names)


def _write_entities(text: str, places: Iterable[int]) -> str:
    parts, done = [], 0
    for at in places:
        parts += [text[done:at], _ENTITIES.get(text[at], f"&#{ord(text[at])};")]
        done = at + 1
    return "".join([*parts, text[done:]])


def _entity(found: re.Match[str]) -> str:
    return _ENTITIES.get(found[0], f"&#{ord(found[0])};")


@functools.cache
def _completing_entity() -> "regex.Pattern[str]":
    """Return a pattern for the entity that begins a whole tag, in the formats that are written with entities."""
    tags = [tag for row in DIALECTS.values() if row.entities for tag in row.tags.values()]
    return regex.compile(rf"(?=(?:{'|'.join(tags)}))&lt;")


def _bare_calls(text: str, declared: Callable[[str], bool], *, is_whole: bool) -> Iterator[int]:
    """Yield the place of the bracket of each possible call without a mark; if arguments come first, its name is unknown."""
    last = None if is_whole else len(text)
    brackets, openers = _bare_openers()
    for bracket in brackets.finditer(text):
        at = bracket.start()
        if not (opener := openers.match(text, at)):
            continue
        if name := _NAME_AT_END.search(opener[0]):
            is_call = declared(name[1] or name[2] or name[3])
        else:
            if last is None:  # the last value that may be a tool's name
                values = ((found.start(), found[2]) for found in _VALUE.finditer(text))
                last = max((start for start, value in values if "\\" in value or declared(value)), default=-1)
            is_call = at < last
        if is_call:
            yield at


@functools.cache
def _bare_openers() -> tuple[re.Pattern[str], "regex.Pattern[str]"]:
    """Return patterns for a bracket with a possible next character, and for the beginning of a call without any mark."""
    openers = "|".join(row.tags["json_open"] for row in DIALECTS.values() if "json_open" in row.tags)
    never = {each: {*map(chr, range(128))} - second_characters(openers, each) for each in "{["}
    brackets = "|".join(rf"{re.escape(each)}(?![{re.escape(''.join(sorted(others)))}])" for each, others in never.items())
    return re.compile(brackets), regex.compile(openers)
