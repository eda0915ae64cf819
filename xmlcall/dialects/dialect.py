"""A wire format as a row of data.

A row that could not be read is refused when it is created; else a reply in that format would silently stay text.

A property may have a name such as `StartTime<` or `a"b`, which the pattern of a format's tags does not match. Each tag of such a
parameter is then known as a whole text (`OddTag`). In a call of its tool, exactly that text means this parameter and nothing
else. So the prompt shows the name unchanged, and a model may copy it. Only declared names have such tags, which are few and of
fixed length, so that a reader never waits for more than that.

A name has no such tag if a part of its tag is the tag of another declared parameter, because the two could not be distinguished.
"""

import enum
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

import regex

from ..errors import UsageError
from ..types.calls import ToolReply, Written

# -- how results are written -------------------------------------------------------------------------------------------
# The form in which a model receives results, as data: a frame around all of them, and marks around each.
#
#     <function_results>
#     <result name="add">
#     3
#     </result>
#     </function_results>
#
# is ours; families that were trained with a form of their own have it in their row. A form is only used if it has an end mark and
# its marks are not everyday words, because one result must not pass for another, nor a person's text for a result. So families
# whose results are a turn with a role of its own, a heading without an end, or one JSON list get our form.
#
# Cost: reading a message is linear.


_TAG: Final = regex.compile(r"([<\[])/?+([/|\uff5c]*+)(\w[\w:\-]*+)")
_LONGEST_NAME_IN_RESULT: Final = 200  # characters

ERROR_WORDS: Final = {"en": "Error:", "zh": "错误："}
"""The word that begins a failed call's text in forms without a mark for errors, by language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultForm:
    """How results are written."""

    result_open: str
    result_close: str
    error_open: str = ""  # the mark before the text of a failed call; "" if a word in the text marks it
    frame_open: str = ""
    frame_close: str = ""

    @property
    def opener(self) -> str:
        """The text that begins a message of results."""
        return self.frame_open.strip() or self.result_opener

    @property
    def result_opener(self) -> str:
        """The text that begins each result, whatever the name of its tool."""
        return self.result_open.partition("{name}")[0].strip()

    @property
    def closer(self) -> str:
        """The text that ends a message of results; without a frame, the text that ends the first result."""
        return self.frame_close.strip() or self.result_close.strip()

    def write(self, items: Iterable[tuple[str, str, bool]]) -> Written:
        """Write results: each is a tool's name, a text without the form's marks, and whether the call failed."""
        parts, replies, is_named = [self.frame_open.lstrip()], list[ToolReply](), "{name}" in self.result_open
        size = len(parts[0])
        for name, text, failed in items:
            opened = (self.error_open if failed and self.error_open else self.result_open).replace("{name}", name)
            opened = opened if size else opened.lstrip()
            start = size + len(opened)
            replies.append(ToolReply(name=name, start=start, end=start + len(text), is_error=failed, is_named=is_named))
            parts += [opened, text, self.result_close]
            size = start + len(text) + len(self.result_close)
        return Written(text="".join([*parts, self.frame_close]).strip(), replies=tuple(replies))

    def places(self, text: str) -> Iterator[ToolReply]:
        """Yield the places of the results in a text that xmlcall did not write, in order."""
        openers = list(_opening(self).finditer(text))
        for found, following in zip_longest(openers, openers[1:]):
            start, limit = found.end(), following.start() if following else len(text)
            closer = text.find(self.result_close.strip(), start, limit)
            end = closer if closer >= 0 else limit
            failed = bool(found["failed"])
            yield ToolReply(
                name=(found["failed_name"] if failed else found["name"]) or "",
                start=start,
                end=end - (end > start and text[end - 1] == "\n"),  # the newline before a closing mark is markup
                is_error=failed or (not self.error_open and text.startswith(tuple(ERROR_WORDS.values()), start)),
                is_ended=closer >= 0,
            )

    def tag_words(self, bracket: str = "") -> frozenset[str]:
        """Return the names of the marks: all, or those directly after a bracket (`<` or `[`) or its slash."""
        written = f"{self.frame_open} {self.result_open} {self.error_open} {self.result_close} {self.frame_close}"
        return frozenset(name for begin, bar, name in _TAG.findall(written) if not bracket or (begin == bracket and not bar))


@functools.cache
def _opening(form: ResultForm) -> "regex.Pattern[str]":
    """Return a pattern for the opener of a result; models may omit the quotation marks around the name."""
    error = _name_pattern(form.error_open, "failed_name") if form.error_open else "(?!)(?P<failed_name>)"
    return regex.compile(rf"(?:(?P<failed>{error})|{_name_pattern(form.result_open, 'name')})\n?")


def _name_pattern(written: str, group: str) -> str:
    head, named, tail = (
        regex.escape(part, literal_spaces=True).replace('"', '"?') for part in written.strip().partition("{name}")
    )
    name = rf'(?P<{group}>[^\n<>"{{}}]{{0,{_LONGEST_NAME_IN_RESULT}}}+)' if named else f"(?P<{group}>)"
    return f"{head}{name}{tail}"


OWN_RESULTS: Final = ResultForm(
    frame_open="<function_results>\n",
    result_open='<result name="{name}">\n',
    error_open='<result name="{name}" error="true">\n',
    result_close="\n</result>\n",
    frame_close="</function_results>",
)

TOOL_RESPONSES: Final = ResultForm(result_open="<tool_response>\n", result_close="\n</tool_response>\n")
"""The form of Hermes and Qwen, in a turn of role `user`, and of GLM."""

BRACKETS: Final = ResultForm(result_open="[TOOL_RESULTS]", result_close="[/TOOL_RESULTS]")
"""The form of Mistral."""


# -- patterns of tags --------------------------------------------------------------------------------------------------
# Pieces of the patterns that recognize tags.
#
# Every quantifier is bounded, so that a tag has a maximum length: the same rule rejects finished and unfinished tags, and the
# result does not depend on how the stream was cut. Patterns have no groups. The characters that may begin a match are found by
# partial matching with the pattern itself, so that they need not be stated a second time.


ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"  # characters of no width; they come from the web pages that models learnt from
_Z = rf"[{ZERO_WIDTH}]?"
_S = rf"[\s{ZERO_WIDTH}]"
SPACE = rf"{_S}{{0,16}}"

# Name, then a value in double, single, curly or full-width quotes, or bare.
_QUOTES = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\uff02", "\uff02"), ("\u201d", "\u201d"))
_QUOTED = "|".join(f"{opening}[^{closing}<>]{{0,256}}{closing}" for opening, closing in _QUOTES)
_BARE = r"[^\s\"'<>=/\u2018\u2019\u201c\u201d\uff02]{1,256}"
_ATTRIBUTE = rf"{_S}{{1,16}}[A-Za-z_:][\w:.\-]{{0,31}}{_S}{{0,4}}={_S}{{0,4}}(?:{_QUOTED}|{_BARE})"
ATTRIBUTES = rf"(?:{_ATTRIBUTE}){{1,6}}{SPACE}"

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]*\}|.", re.DOTALL)  # a piece of a pattern

# The keys that models use in calls as JSON.
NAMES = ("name", "tool", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters", "args", "input")


def tag(pattern: str, rest: str = SPACE, end: str = ">") -> str:
    """Return the pattern of a tag such as `</invoke`: any case, zero-width characters allowed around its parts."""
    start = "</" if pattern.startswith("</") else "<"
    name = pattern[len(start) :]
    return f"(?i:{start[0]}{_Z}{start[1:]}{_Z}{name}{_Z}){rest}{end}"


def element(names: str, closing: bool = False) -> str:
    """Return the pattern of an element without attributes; `names` is an alternation of its names."""
    return f"</{SPACE}(?:{names}){SPACE}>" if closing else f"<(?:{names}){SPACE}/?>"


def bare_json(wrappers: tuple[str, ...]) -> str:
    """Return the pattern for the beginning of a JSON call, or an array of them, up to its name, which is checked next.

    The name comes first, or after `id` and `type`, or in `function` (OpenAI's form). Arguments may come first, too; the name is
    then known only at the end.
    """
    quote = r"[\"']"
    string = r"(?:\"[^\"\\<>]{1,128}\"|'[^'\\<>]{1,128}')"
    colon = rf"{quote}\s{{0,4}}:\s{{0,16}}"
    wrapper = rf"(?:<(?i:{'|'.join(wrappers)})>\s{{0,32}})?"
    before = rf"(?:{quote}(?:id|type){colon}{string}\s{{0,16}},\s{{0,32}}){{0,2}}"
    named = rf"(?:{quote}function{colon}\{{\s{{0,32}})?{quote}(?:{'|'.join(NAMES)}){colon}{string}"
    arguments = rf"{quote}(?:{'|'.join(ARGUMENTS)}){colon}\{{"
    listed = rf"(?:{quote}tool_calls{colon}\[\s{{0,32}}\{{\s{{0,32}})?"
    return rf"{wrapper}(?:\[\s{{0,32}})?\{{\s{{0,32}}{listed}{before}(?:{named}|{arguments})"


PYTHON_LIST = r"\[\s{0,8}[^\W\d][\w.\-]{0,127}\("
"""The beginning of a list of Python calls, up to the bracket after the first name."""

_ENTITY = r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
_ESCAPED = regex.compile(rf"[^&<>]*+(?:{_ENTITY}[^&<>]*+)++")


def is_escaped(text: str) -> bool:
    """Say whether a text contains entities but none of the characters that they mean."""
    return _ESCAPED.fullmatch(text) is not None


_READ_ATTRIBUTE = regex.compile(
    r"""\s([\w:.\-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|[\u201c\u201d]([^\u201d]*)\u201d|\u2018([^\u2019]*)\u2019"""
    r"""|\uff02([^\uff02]*)\uff02|([^\s"'<>=/\u2018\u2019\u201c\u201d\uff02]+))"""
)


def attributes_of(tag: str, name_in_tag: str) -> dict[str, str]:
    """Return the attributes of an opener, with keys in lower case; of a repeated attribute, the first value."""
    found: dict[str, str] = {}
    if name_in_tag:
        name = regex.search(name_in_tag, tag)
        if name is None:
            return {}
        found["name"] = name.group(1)
    for key, *values in _READ_ATTRIBUTE.findall(tag):
        found.setdefault(key.lower(), "".join(values))  # one of them matched
    return found


OTHER = ""  # in sets of characters: those beyond ASCII that the pattern does not name
EXOTIC = ("\u00e9", "\u0416", "\u4e2d", "\ue000", "\U0001f600")  # samples of these
WHITE = "".join(each for each in map(chr, range(0x3001)) if each.isspace())
_ASCII = "".join(map(chr, range(128)))
_CODE = regex.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")


@functools.lru_cache(maxsize=512)
def first_characters(source: str) -> list[str]:
    """Return the characters that may begin a match of a pattern, sorted.

    Characters beyond ASCII are found only if the pattern names them.
    """
    pattern = regex.compile(source)
    return [each for each in _known(source) if pattern.match(each, partial=True)]


def second_characters(source: str, first: str) -> frozenset[str]:
    """Return the characters that may follow the first ones of a match; `OTHER` stands for those that it does not name."""
    pattern = regex.compile(source)
    found = {each for each in _known(source) if pattern.match(first + each, partial=True)}
    return frozenset(found | {OTHER} if any(pattern.match(first + each, partial=True) for each in EXOTIC) else found)


@functools.lru_cache(maxsize=512)
def _known(source: str) -> tuple[str, ...]:
    coded = (chr(int("".join(digits), 16)) for digits in _CODE.findall(source) if int("".join(digits), 16) <= 0x10FFFF)
    return tuple(sorted({*_ASCII, *WHITE, *source, *coded} - {*EXOTIC}))


_SAMPLES = (" ", "\n", "\x1f", "0", "a", "Z", "_", "-", "~", *EXOTIC)  # one or more of each class of characters


@functools.lru_cache(maxsize=2048)
def going_on(source: str, start: str, more: int) -> str:
    """Return a pattern for what may follow the first letters of a match, or the end of the text so far.

    Everyday words begin with such letters, too, so more than one letter has to be checked: `more`, unless any character may
    follow.
    """
    pattern = regex.compile(source)
    known = {*source, *source.swapcase()}
    following = {each for each in (*known, *_SAMPLES) if pattern.match(start + each, partial=True)}
    if not more or not following or following - known:
        return ""
    parts = [regex.escape(each) + going_on(source, start + each, more - 1) for each in sorted(following)]
    return rf"(?:{'|'.join(parts)}|\Z)"


def certain_part(source: str) -> str:
    """Return the longest text that every match contains, judging by the pattern's outermost level; "" if there is none."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(source):
        depth += (token == "(") - (token == ")")
        is_literal = not depth and token not in "()" and (len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()))
        if token == "|" and not depth:
            return ""
        if token[0] in "?*+{":
            parts[-1] = parts[-1][:-1]
        parts[-1:] = [parts[-1] + token[-1]] if is_literal and token not in "?*+" else [parts[-1], ""]
    return max(parts, key=len)


def alternation(names: Iterable[str]) -> str:
    return "|".join(regex.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))


# -- rows --------------------------------------------------------------------------------------------------------------


_ORDINARY_NAME = regex.compile(r"[\w.\-]{1,64}")  # every format can read the tags of these
_LONGEST_NAME = 256
_MOST_ODD = 64  # most odd names of one tool
_LINE_END = regex.escape("\n")


class Body(enum.StrEnum):
    """The notation of the content of a wrapper or a call."""

    TAGS = "a tag for each call and parameter"
    JSON = "calls as JSON objects with name and arguments, one or a list, in a wrapper"
    KEYED = "calls as JSON objects whose one key is the tool's name, in a wrapper"
    PYTHON = "a list of Python calls, in a wrapper"
    LINES = "a Python call a line, in a wrapper"
    OBJECT = "the arguments as one JSON object after the tag that names the tool"
    GEMMA = "the same, with strings between marks and keys without quotes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeMark:
    """How a parameter's opener states the type of its value."""

    written: str
    attribute: str
    value: str
    also: tuple[str, ...] = ()

    def is_on(self, attributes: Mapping[str, str]) -> bool:
        """Say whether an opener carries the mark."""
        return attributes.get(self.attribute) in (self.value, *self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A wire format: a wrapper, and in it calls with parameters as tags, or calls in another notation.

    The kinds of tags:

    | kind | place or meaning |
    |---|---|
    | `block_open`, `block_close` | around the calls |
    | `call_open`, `call_close` | around a call |
    | `name_end` | after the tool's name, if that is text |
    | `parameter_open`, `parameter_close` | around a value |
    | `list_close` | after the last parameter |
    | `body_open` | before all arguments as one JSON object |
    | `json_open` | the beginning of a call without any tag |
    | `lost_open` | the beginning of a call whose mark a server removed; for offered tools only |
    | `quote` | at both ends of a string in a body |
    | `fence_close` | back-ticks at the end of a body |
    | `reasoning_open`, `reasoning_close` | around reasoning |
    | `text_open` | where text for the person begins |
    | `message_close` | where reasoning, text or a call ends |
    | `mark` | a mark without meaning; left out once markup of the row was read |
    | `special` | the same, but left out everywhere |

    Raises:
        UsageError: the row's tags could not be read, or what it writes could not be read back.
    """

    name: str  # that people type, as in `--ask dialect=NAME`
    tags: dict[str, str]  # token kind -> regular expression for the whole tag, without groups
    written: dict[str, str]  # token kind -> the tag as it is written; `{name}` is the name of the tool or parameter
    name_in_tag: str = ""  # regular expression whose group is the name in an opener; empty if the attribute `name` has it
    json_mark: TypeMark | None = None  # how a value is marked as JSON although the schema admits a string
    string_mark: TypeMark | None = None  # how a string is marked that would be read as another type
    fence: str = ""  # the language of the Markdown fence that is the wrapper
    # Whether every character of a value is data (of a marked value, if there is a mark); else a newline at either end is markup.
    is_exact: bool = False
    one_block: bool = False  # whether all calls of a reply are in one wrapper, so that calls in a second one are not meant
    name_after: str = ""  # regular expression for the opener that the tool's name follows as text; such calls have no wrapper
    lost_mark: str = ""  # the pattern of `lost_open` that contains the tool's name; `{tools}` is replaced by the offered names
    body: Body = Body.TAGS  # the notation of the content
    keys: tuple[str, str] = ("name", "arguments")  # the keys for name and arguments in JSON calls
    one_list: bool = False  # whether all calls are one list, in one wrapper if there is one
    joint: str = "\n"  # the text between written tags
    json_body: bool = False  # whether the arguments of a call are one JSON object between its tags
    tool_elements: bool = False  # whether a call is an element with the tool's name
    parameter_elements: bool = False  # whether a parameter is an element with its name
    before_tags: str = ""  # the text before every tag, including tags of elements in values
    entities: bool = False  # whether markup and values are written with entities such as `&lt;`
    # Whether readers of the format disagree if `&lt;` in a value is `<`. If so, a value that contains entities, but none of the
    # characters that they mean, has two readings; in a CDATA section it has one.
    open_entities: bool = False
    results: ResultForm = OWN_RESULTS

    @property
    def is_json(self) -> bool:
        """Whether calls are JSON objects that name the tool."""
        return self.body in (Body.JSON, Body.KEYED)

    @property
    def is_python(self) -> bool:
        return self.body in (Body.PYTHON, Body.LINES)

    @property
    def names_in_body(self) -> bool:
        """Whether the tool's name is in the body, so that a call is certain only when the body has ended."""
        return self.is_json or self.is_python

    def __hash__(self) -> int:  # a row is a key of the caches of compiled patterns
        return hash(self.name)

    @property
    def has_object(self) -> bool:
        """Whether the arguments are one object after the tag that names the tool."""
        return self.body in (Body.OBJECT, Body.GEMMA)

    @property
    def nests_elements(self) -> bool:
        """Whether lists and objects are elements, too; each tag has a mark, so text of a value is never treated as one."""
        return bool(self.before_tags)

    def __post_init__(self) -> None:
        problem = next((problem for check in _CHECKS for problem in check(self)), "")
        if problem:
            raise UsageError(f"the format {self.name!r} cannot be read: {problem}")


def pairs(**tags: str | tuple[str, str]) -> dict[str, str]:
    """Return tags by kind: `call=("<a>", "</a>")` gives `call_open` and `call_close`. An empty tag is left out."""
    found: dict[str, str] = {}
    for kind, tag in tags.items():
        found |= {kind: tag} if isinstance(tag, str) else {f"{kind}_open": tag[0], f"{kind}_close": tag[1]}
    return {kind: tag for kind, tag in found.items() if tag}


# Names that are never elements of a tool or parameter: structural tags, and for tools also common HTML.
_STRUCTURE = frozenset(
    """think thinking reasoning invoke parameter param parameters function function_calls function_call
    tool_calls tool_call tool_use""".split()  # noqa: SIM905
)
_HTML = frozenset(
    "a b br code details div em h1 h2 h3 i li ol p pre small span strong sub summary sup table td th tr u ul".split()  # noqa: SIM905
)


def element_tags(names: Iterable[str], before: str = "") -> tuple[tuple[str, str], ...]:
    """Return the token kinds and patterns for parameters that are elements."""
    pattern = alternation(_usable(names, _STRUCTURE))
    if not pattern:
        return ()
    mark = re.escape(before)
    return (("element_open", mark + element(pattern)), ("element_close", mark + element(pattern, closing=True)))


def with_tools(dialect: Dialect, names: Iterable[str]) -> Dialect:
    """Return the dialect with the tags that contain the names of these tools.

    The scanner tries elements with names first: a finished `<name>` is read at once, even if a longer tag begins like it.
    """
    is_first = dialect.lost_mark.startswith("{tools}")  # all text is searched for its first letter, which is fast for ASCII
    if dialect.lost_mark and (named := alternation(name for name in names if not is_first or name[:1].isascii())):
        return replace(dialect, tags={**dialect.tags, "lost_open": dialect.lost_mark.replace("{tools}", f"(?:{named})")})
    if not dialect.tool_elements:
        return dialect
    pattern = alternation(_usable(names, _STRUCTURE | _HTML))
    if not pattern:
        return replace(dialect, tags={})
    return replace(dialect, tags={"call_open": element(pattern), "call_close": element(pattern, closing=True)})


def _usable(names: Iterable[str], reserved: frozenset[str]) -> list[str]:
    return [name for name in names if name.lower() not in reserved and 0 < len(name) <= 128 and not set(name) & set("<>/")]


# Requirements for a row. Each check yields what was expected, what was found and what to do. Only the first problem is reported.

_KINDS = frozenset(
    """block_open block_close call_open call_close parameter_open parameter_close list_close body_open json_open lost_open
    quote fence_close name_end reasoning_open reasoning_close text_open message_close mark special""".split()  # noqa: SIM905
)
_NAMED = ("call_open", "parameter_open")
_SAMPLE = "read_file"  # a name that any format should be able to carry
# Unbounded repetitions, outside escapes and classes; and patterns that call themselves.
_UNBOUNDED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<found>[*+]|\{\d*,\}|\(\?[R0]\))", re.DOTALL)


def _name_problems(row: Dialect) -> Iterator[str]:
    if not (row.name.isidentifier() and row.name.isascii()) or row.name == "auto":
        yield f"expected a name of letters, digits and underscores, other than 'auto', got {row.name!r}; choose another name"


def _kind_problems(row: Dialect) -> Iterator[str]:
    for part, given, verb in (("tags", row.tags, "read"), ("written", row.written, "written")):
        if unknown := sorted(given.keys() - _KINDS):
            yield f"expected kinds of {', '.join(sorted(_KINDS))} in {part}, got {unknown[0]!r}; correct its name"
        if missing := sorted(_needed(row, part) - given.keys()):
            got = ", ".join(given) or "nothing"
            yield f"expected {' and '.join(missing)} in {part}, got {got}; add how such a tag is {verb}"


def _needed(row: Dialect, part: str) -> set[str]:
    if row.names_in_body:
        given = row.tags if part == "tags" else row.written
        is_fenced = row.fence and part == "tags"
        return set() if is_fenced or ("json_open" in row.tags and "block_open" not in given) else {"block_open"}
    if row.has_object:
        return set() if row.lost_mark and part == "tags" else {"call_open"}
    needed = {"call_open", "call_close", "parameter_close", "body_open" if row.json_body else "parameter_open"}
    if part == "written":
        return needed
    if row.tool_elements:  # its tags come with the tools
        return set()
    needed -= {"parameter_open", "parameter_close"} if row.parameter_elements else set()
    return needed - {"call_open"} | {"block_open"} if row.name_after else needed


def _pattern_problems(row: Dialect) -> Iterator[str]:
    more = {"name_after": row.name_after, "lost_mark": row.lost_mark.replace("{tools}", _SAMPLE)}
    patterns = {**row.tags, **{field: pattern for field, pattern in more.items() if pattern}}
    for kind, source in patterns.items() if not row.tool_elements else ():
        yield from (f"{problem} in the pattern of {kind!r}: {source}" for problem in _problems_of(source))
    if row.name_in_tag and (problem := _compile_problem(row.name_in_tag, groups=1)):
        yield f"{problem} in name_in_tag: {row.name_in_tag}"


@functools.lru_cache(maxsize=1024)  # a row is created again for each set of tools
def _problems_of(source: str) -> tuple[str, ...]:
    first = next(_found_problems(source), "")  # only the first is reported: later checks need a sound pattern
    return (first,) if first else ()


def _found_problems(source: str) -> Iterator[str]:
    if problem := _compile_problem(source, groups=0):
        yield problem
    found = next((match["found"] for match in _UNBOUNDED.finditer(source) if match["found"]), "")
    if found:
        yield f"expected bounds such as {{0,16}}, by which a tag has a greatest length, got {found!r}; write a bound"
    if regex.fullmatch(source, ""):
        yield "expected a tag of at least one character, got a pattern that matches an empty text; require a character"
    for what, characters in (("any character", EXOTIC), ("white space", WHITE)):
        if any(regex.match(source, each, partial=True) for each in characters):
            yield f"expected a tag to begin with certain characters, got one that may begin with {what}; begin with a literal one"


def _compile_problem(source: str, groups: int) -> str:
    try:
        found = regex.compile(source).groups
    except regex.error as error:
        return f"expected a regular expression, got {error}; correct it"
    asked = "without groups" if not groups else "with one group"
    return "" if found == groups else f"expected a pattern {asked}, got {found} groups; write (?:...) for what is no name"


def _written_problems(row: Dialect) -> Iterator[str]:
    """Yield problems of the written tags: each must be read back as its own kind, with its name."""
    for kind, text in row.written.items():
        got = attributes_of(_fill(text), row.name_in_tag).get("name") if kind in _NAMED else _SAMPLE
        if kind in _NAMED and "{name}" not in text:
            yield f"expected {{name}} in what is written for {kind!r}, got {text!r}; put it where the name belongs"
        elif kind in row.tags and not row.tool_elements and kind not in _kinds_in(row, _fill(text)):
            yield f"expected that the tags of the row read {_fill(text)!r} as {kind!r}, got none that does; correct the pattern"
        elif kind in row.tags and not row.tool_elements and got != _SAMPLE:
            yield f"expected the name {_SAMPLE!r} in {_fill(text)!r}, got {got!r}; correct name_in_tag or the attribute name"
    if row.name_after and not regex.fullmatch(row.name_after, row.written["call_open"].partition("{name}")[0]):
        yield f"expected that name_after reads the beginning of {row.written['call_open']!r}, got none; correct name_after"


def _mark_problems(row: Dialect) -> Iterator[str]:
    for name, mark in (("json_mark", row.json_mark), ("string_mark", row.string_mark)):
        if mark is None:
            continue
        text = _fill(mark.written)
        if "parameter_open" not in _kinds_in(row, text):
            yield f"expected that parameter_open reads what {name} writes, got {mark.written!r}; correct one of them"
        elif attributes_of(text, row.name_in_tag).get(mark.attribute) != mark.value:
            yield f'expected {mark.attribute}="{mark.value}" in what {name} writes, got {mark.written!r}; write it there'


def _result_problems(row: Dialect) -> Iterator[str]:
    form = row.results
    if not form.closer or not form.result_close.strip():
        yield "expected a mark at the end of each result, got none; a result must not pass for the next one"
    if not any(form.opener.startswith(bracket) for bracket in "<["):
        yield f"expected that results begin with a mark in brackets, got {form.opener!r}; a person's words may begin so"


def length_of_tag(pattern: str, text: str) -> int:
    """Return the length of the tag at the beginning of a text; its pattern may look ahead at the value that follows."""
    matches = (regex.match(pattern, text + after) for after in ("", "{", "[", "<"))
    return next((match.end() for match in matches if match and 0 < match.end() <= len(text)), 0)


def _fill(text: str) -> str:
    return text.replace("{name}", _SAMPLE)


def _kinds_in(row: Dialect, text: str) -> set[str]:
    """Return the kinds of the tags in a text, read in the order of the row; none if the text contains anything else."""
    found = set()
    while text := text.lstrip():
        kind, end = next(((kind, end) for kind, tag in row.tags.items() if (end := length_of_tag(tag, text))), ("", 0))
        if not end:
            return set()
        found.add(kind)
        text = text[end:]
    return found


_CHECKS = (_name_problems, _kind_problems, _pattern_problems, _written_problems, _mark_problems, _result_problems)


@dataclass(frozen=True, slots=True)
class OddTag:
    """A tag of a parameter with an odd name: the pattern of its text, its kind, and the attributes and pair of its token."""

    pattern: str
    kind: str
    attributes: Mapping[str, str]
    pair: str


def odd_tags(row: Dialect, names: Iterable[str]) -> tuple[OddTag, ...]:
    """Return tags for the names that a format's own patterns do not match."""
    if row.body is not Body.TAGS or row.json_body:
        return ()
    declared = frozenset(names)
    odd = sorted(name for name in declared if not _ORDINARY_NAME.fullmatch(name) and 0 < len(name) <= _LONGEST_NAME)
    unread = itertools.islice((name for name in odd if not _reads(row, name)), _MOST_ODD)
    found = [tag for name in unread for tag in _tags_of(row, name)]
    texts = [tag.attributes["name"] for tag in found]
    others = declared.difference(texts)
    return tuple(tag for tag in found if not _hides(row, tag.attributes["name"], texts, others))


def _tags_of(row: Dialect, name: str) -> Iterator[OddTag]:
    if row.parameter_elements:
        for kind in ("parameter_open", "parameter_close"):
            yield OddTag(_pattern(row.written[kind], name), kind, {"name": name}, f"parameter {name}")
        return
    marked = [(mark.written, {mark.attribute: mark.value}) for mark in (row.json_mark, row.string_mark) if mark]
    for written, attributes in [*marked, (row.written["parameter_open"], {})]:
        yield OddTag(_pattern(written, name), "parameter_open", {"name": name, **attributes}, "parameter")


def _pattern(written: str, name: str) -> str:
    """Return a pattern for what a row writes with this name; models may omit its line ends."""
    return regex.escape(name).join(regex.escape(part).replace(_LINE_END, r"\s{0,16}") for part in written.split("{name}"))


def _reads(row: Dialect, name: str) -> bool:
    if set(name) & set(ZERO_WIDTH):
        return False
    if row.parameter_elements:
        return bool(element_tags([name]))
    tag = row.written["parameter_open"].replace("{name}", name)
    found = regex.match(row.tags["parameter_open"], tag)
    return found is not None and found.end() == len(tag) and attributes_of(tag, row.name_in_tag).get("name") == name


def _hides(row: Dialect, name: str, odd: list[str], others: frozenset[str]) -> bool:
    """Say whether the beginning of a name's tag is the whole tag of another parameter."""
    before, _, after = row.written["parameter_open"].partition("{name}")
    ends = (end for end in range(1, len(name)) if name.startswith(after.strip() or after, end))
    beginnings = {name[:end] for end in ends}
    return bool(beginnings & (others | set(odd))) or (before.endswith("<") and name.startswith("/"))
