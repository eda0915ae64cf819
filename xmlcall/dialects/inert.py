"""Makes a text inert, so that nothing in it opens a call in any wire format; the rows define what may open one.

Text from tools and servers is untrusted. The marks of results are made inert in it, too, so that a result cannot close its own
frame; so are our own tags and those of reasoning and of chat templates, which servers interpret anywhere in a prompt.

Strategy: replace only the first character of possible call markup by an entity: `<` by `&lt;`, the `&` of a tag that is itself
written with entities by `&amp;`, and the bracket of a possible call without any mark by `&#123;` or `&#91;`. Everything else
stays unchanged, so that a model can read the text and quote from it.

The order matters, because an entity can complete a tag of the format that is written with entities: `<invoke name="f"&gt;` is
one once its `<` is replaced. So these tags are searched again afterwards, and then JSON.

Cost: linear. Each place where markup can begin is checked a few times, and every pattern of a row has a maximum length. The next
characters rule most places out before any pattern of a row is tried.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import regex

from ..tools.catalog import Catalog
from . import BUILT_IN, DIALECTS
from .call_signs import opening_places
from .result_form import OWN_RESULTS, ResultForm
from .tag_patterns import NAMES, SPACE, ZERO_WIDTH, second_characters
from .write import tag_names

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
)
"""What follows the `<` or `</` of control words of chat templates, besides `|`."""

CONTROL_WORDS: Final = (
    *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),  # Mistral
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"),
    *("[MODEL_SETTINGS]", "[/MODEL_SETTINGS]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "[AUDIO]", "[BEGIN_AUDIO]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[TRANSCRIBE]"),
    *("[gMASK]", "[sMASK]", "[MASK]"),  # GLM
    *("[|system|]", "[|user|]", "[|assistant|]", "[|tool|]", "[|endofturn|]"),  # EXAONE
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


_CONTROL: Final = re.compile(rf"<(?=[|\uff5c]|/?{_one_of(CONTROL_TAGS)})|(?={_one_of(CONTROL_WORDS)})[\[\]]")

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
    text = _write_entities(text, _openers(tuple(DIALECTS), names)(text))
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
def _openers(_: tuple[str, ...], names: tuple[str, ...]) -> Callable[[str], list[int]]:
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
