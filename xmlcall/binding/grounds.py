"""Detects required values that appear nowhere in the conversation. The model is asked to look them up or to ask the person.

Small models never leave a required parameter open. If asked for the weather without a place, they use "Berkeley, CA"; if asked to
write to somebody whose address they lack, they use `sarah@example.com`. Values that a model may choose or work out are fine:

| value | made up |
|---|---|
| is a placeholder, `[email]`, or holds one, `{{result}}`, `your_city`, that the conversation lacks | yes, in any parameter |
| is what the schema says of the parameter, its name ("Song Title") or three words of its description | yes, in any parameter |
| an address of mail or of the web, or an id of letters and digits, that appears nowhere as a whole | yes, in any parameter |
| one of ten words and more that a needed parameter lists (a cuisine, a genre), which was not said | yes |
| of a parameter that may be left out, with another enum, or for words of the model's own (`body`, `query`) | no |
| the schema's default; a limit (`max_results`); true, false, null, empty, 0, 1; "any" and such words | no |
| a text of several lines, or longer than an address | no |
| of a tool that writes, the name of what exists (`path`, `to`, `invoice_id`), that was not said as a whole | yes |
| an id with digits that were not said | yes |
| one of its words or numbers was said, in another spelling, shorter, or as initials; of Chinese two letters together | no |
| a number, where the request or a result of its turn has one that no other argument uses, or a word of time | no, worked out |
| a date or a time, where the request or such a result has a word of time or one of its numbers | no, worked out |
| words for somebody's value ("your flight number", 订单号), which are in no text | yes |
| a name of which only words of the parameter or the tool were said ("Flight 1234") | yes |
| the hour of a moment, but midnight, where nothing implies an hour | yes |
| a time zone; a code of capitals (GBP, NYC), if a word that the tool lacks may be its name | no, another name of what was said |
| a name, where somebody wrote what may be one in another script (巴黎, but nothing of 天气怎么样？) | no, a translation |
| any other | yes |

"Said" means present in the conversation, in results or in the program's instructions. Examples in the tool's own schema do not
count. On BFCL's correct calls, 1 to 2 of 100 values are wrongly treated as made up (docs/decisions/grounds.md).

Cost: linear in the conversation, which is read once for each call with such a parameter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from ..schema.references import nodes
from ..tools.catalog import READING_VERBS, Catalog, may_write, only_reads, words_of_name, writing_verb
from ..tools.outline import is_required, placeholder, property_schema
from ..types.calls import InvalidCall, Issue, Tool, ToolCall, WrittenCall
from .provenance import keys_of_text, number_key_of, values_in
from .spellings import IN_ENGLISH, WORDS, Atom, atoms, has_other_script, may_be_translation, may_have_name, pattern, points_back
from .waiting import IDS, OWN_WORDS, is_addressee, placeholders

_NOT_SAID: Final = "Nobody said this value. Do not make one up."

_LONGEST: Final = 200  # characters; longer values are not checked
_FEWEST_WORDS: Final = 3  # fewest words that count as copied from a description; fewer may be a name that it gives as an example
_SHORTEST: Final = 5  # letters and digits that identify a name without its marks
_WORD_LONG: Final = 4  # letters; codes of languages, units and airports have fewer
_MANY: Final = 10  # alternatives; among so many, the person has to name the choice
_MOST: Final = 0.8  # share of words among the alternatives
_LIMITS: Final = frozenset({"count", "limit", "max", "min", "n", "num", "offset", "page", "per", "size", "top"})
# Parameters of writing tools whose value names something that exists, so that a part of the name is not enough.
_POINTS_AT: Final = frozenset({"account", "file", "filename", "id", "ids", "path", "uuid"})
_IDENTIFIES: Final = frozenset({"id", "ids", "uuid"})
_RECIPIENTS: Final = frozenset({"bcc", "cc", "recipient", "recipients", "to"})
_FILES: Final = frozenset({"file", "filename", "path"})
_CREATES: Final = frozenset(
    {"add", "append", "create", "download", "export", "generate", "make", "new", "save", "upload", "write"}
)
_A_VALUE: Final = 24  # bytes of UTF-8, or eight Chinese characters: a request this short may itself be the requested value
# Verbs of tools that may also look something up or work it out; and verbs that are rarely nouns (unlike `book_search`).
_DO_ANYTHING: Final = frozenset({"add", "create", "execute", "make", "request", "run", "write"})
_ONLY_VERBS: Final = frozenset({"buy", "cancel", "delete", "pay", "purchase", "remove", "rename", "reserve", "send", "upload"})
_ANYTHING: Final = frozenset({"all", "any", "auto", "default", "dontcare", "none", "unknown"})
_FEW: Final = frozenset({"alone", "both", "couple", "first", "no", "once", "one", "pair", "second", "single", "two"})
_CAPITALS: Final = re.compile(r"[A-Z]{2,5}(?:[-.][A-Z]{1,3})?")
_CODE: Final = re.compile(rf"{_CAPITALS.pattern}|[A-Z][a-z]{{2,20}}(?:/[A-Z][A-Za-z_-]{{1,40}}){{1,2}}")
_WHOSE: Final = re.compile(r"(?:your|my|(?:the )?user'?s) [\w -]{1,60}|[您你我]的[\u3400-\u9fff]{1,12}", re.IGNORECASE)
_KIND_IN_CHINESE: Final = re.compile(r"(?=[\u3400-\u9fff])[\u3400-\u9fff]{0,8}(?:名称|编号|号码|单号|[账帐卡]号|航班号| ?ID)")
_OF_KIND: Final = re.compile(r"([a-z]{1,30}) (?:address|id|name|number|title)", re.IGNORECASE)
_MIDNIGHT: Final = re.compile(r"(?:00:00|23:59)")
_NO_NAMES: Final = frozenset(WORDS["no_names"]["english"])
_NUMBER: Final = re.compile(r"#?-?[0-9.]+(?:e[+-]?[0-9]+)?")
_DIGIT_RUN: Final = re.compile(r"[0-9]+")
_DIGITS: Final = re.compile(r"[0-9]{1,4}")
_BETWEEN_MOMENTS: Final = re.compile(r"\s+|(?<=[0-9])T(?=[0-9])")
_TEMPORAL: Final = re.compile(r"[0-9]{1,4}[-/:][0-9]{1,2}")
_PATH: Final = re.compile(r"(?:~|\.{1,2})?/[^\n]+|[A-Za-z]:\\[^\n]+")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_TIME_SAID: Final = pattern("time")
_CLOCK: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?: ?[ap]\.?m\.?)?", re.IGNORECASE)
_CLOCK_SAID: Final = pattern("time_of_day")
_MOMENT: Final = pattern("moment")
_ASKS_TO_FIND: Final = pattern("asks_to_find")
_ASKS_TO_GET: Final = pattern("asks_to_get")
_ASKS_TO_CHANGE: Final = pattern("asks_to_change")
_ASKS_HOW: Final = pattern("asks_how")
_ANEW: Final = pattern("anew")
_SEARCHES: Final = re.compile(r"search|find|look|query|retriev|[搜查找]")
_ASKS_TO_SEARCH: Final = pattern("asks_to_search")
_QUOTED: Final = re.compile(r"[\"'“”‘’「」《》`:：]")
_WORD: Final = re.compile(r"[^\W\d_]{1,64}")
_WHOLE: Final = (
    re.compile(r"[^\s@<>,;]{1,64}@[^\s@<>,;]{1,190}\.[^\W\d_]{2,24}"),
    re.compile(r"(?<=://)[^\s/]{1,190}"),
    re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE),
)


class Said:
    """What was said before a call: texts of people, results, the program and the model itself, before this reply.

    A number, a date or the Latin spelling of a name may be worked out only from `worked_with`, the request and its results. Calls
    that the model made in this turn (`own`) are no evidence of what exists. `of_others` are the texts that are not the model's
    own.
    """

    def __init__(
        self,
        texts: Iterable[str],
        worked_with: Iterable[str] | None = None,
        own: Iterable[str] = (),
        of_others: Iterable[str] | None = None,
    ) -> None:
        self._told = list(texts)
        self._of_others = self._told if of_others is None else list(of_others)
        self._texts = [*self._told, *own]
        self._worked_with = self._texts if worked_with is None else list(worked_with)
        self._named_in = self._of_others if worked_with is None else self._worked_with

    @cached_property
    def told(self) -> str:
        """All texts except the model's own calls, in lower case."""
        return "\n".join(self._told).casefold()

    @cached_property
    def text(self) -> str:
        """All texts, in lower case."""
        return "\n".join(self._texts).casefold()

    @cached_property
    def digits(self) -> frozenset[str]:
        """The numbers written in digits, except those in the model's own calls."""
        return frozenset(_DIGIT_RUN.findall(self.told))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The words, numbers, dates and times of all texts, in all spellings."""
        return frozenset(key for text in self._texts for key in keys_of_text(text))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all texts, unchanged."""
        return frozenset(_WORD.findall(self.text))

    @cached_property
    def worked_words(self) -> frozenset[str]:
        """The words from which others may be worked out, in lower case."""
        return frozenset(word for text in self._worked_with for word in _WORD.findall(text.casefold()))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The first four letters of the longer words."""
        return frozenset(word[:4] for word in self.words if len(word) > 3)

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The numbers from which others may be worked out."""
        return frozenset(number for text in self._worked_with for number in _numbers(text.casefold()))

    @cached_property
    def has_other_script(self) -> bool:
        """Whether any text contains a script other than Latin."""
        return has_other_script(self.text)

    @cached_property
    def may_name_in_other_script(self) -> bool:
        """Whether the texts to work from, without the model's own words, have what may be a name in a script other than Latin.

        Most sentences leave something that may be a name ("能做"), so a conversation would vouch for any name in the end.
        """
        return self.has_other_script and any(map(may_have_name, self._named_in))

    @cached_property
    def speaks_of_time(self) -> bool:
        """Whether the texts to work from contain a word of time."""
        return any(_TIME_SAID.search(text) for text in self._worked_with)

    @cached_property
    def speaks_of_hours(self) -> bool:
        """Whether the texts to work from contain a word that may imply a time of day; a day alone does not."""
        return any(_CLOCK_SAID.search(text) for text in self._worked_with)


def said_before(
    texts: Iterable[str], request: str, results: Iterable[str], own: Iterable[str] = (), of_others: Iterable[str] | None = None
) -> Said:
    """Return what was said before a call; the numbers of earlier turns count only if the request refers back."""
    return Said(texts, None if points_back(request) else (request, *results), own, of_others)


def groundless(arguments: Mapping[str, Any], tool: Tool, said: Said) -> tuple[str, ...]:
    """Return the parameters whose values appear nowhere in the conversation, in the order of the call."""
    return tuple(name for name, value in arguments.items() if _is_groundless(name, value, arguments, tool, said))


def stands_on(
    arguments: Mapping[str, Any], tool: Tool, said: Said, request: str, earlier: Iterable[ToolCall | WrittenCall] = ()
) -> bool:
    """Say whether a call's required values come from the conversation, and at least one of them from the request itself.

    This is for calls that were forced although no tool may be needed. A model that is made to call a text analyzer for "Write a
    function" gives it "Hello, world!" or the request itself; for the capital of Germany it asks for the weather in the city of an
    earlier turn. A request that refers back ("read it to me") takes its values from there. Free text (`query`) that repeats the
    request proves nothing, unless the request quotes it and mentions what the tool does.

    A writing tool needs a request to keep, send or change something, not for how that is done. A call that was answered before is
    repeated only if the request asks for that.
    """
    own, again = Said([request]), [each.arguments for each in earlier if each.name == tool.name]
    does = Said([tool.name, (tool.description or "").partition(".")[0]])
    asks_to_change = (asks_for_change(request) or own.stems & does.stems) and not _ASKS_HOW.search(request)
    if (may_write(tool) and not asks_to_change) or (arguments in again and not _ANEW.search(request)):
        return False
    given = [name for name in arguments if is_required(name, tool)]
    open_ = [name for name in arguments if not _has_choice(name, tool)]
    if tool.input_schema.get("required") and not given:  # the model's attempt cannot run
        return may_write(tool) and asks_for_change(request)
    if not all(
        _is_of_words(arguments[name], said, request)
        for name in open_
        if name in given or _must_be_said(name, arguments[name], tool)
    ):
        return False
    names = [name for name in open_ if name in given]
    telling = [name for name in names if OWN_WORDS.isdisjoint(words_of_name(name))]
    if names and not telling:
        return _asks_about(request, own, tool)
    return not names or points_back(request) or any(_is_own(arguments[name], own, said) for name in telling)


def speaks_of(request: str, tool: Tool) -> bool:
    """Say whether a request shares a word other than the verb with the name of a reading tool: "What is the weather?"."""
    words = [word for word in words_of_name(tool.name) if word not in READING_VERBS]
    asked = Said([request, *(english for chinese, english in IN_ENGLISH.items() if chinese in request)])
    return only_reads(tool) and not asked.stems.isdisjoint(Said([" ".join(words)]).stems)


def asks_for_change(request: str) -> bool:
    """Say whether a request contains a word for keeping, sending or changing something."""
    return bool(_ASKS_TO_CHANGE.search(request))


def only_asks_to_find(request: str, tool: Tool) -> bool:
    """Say whether a request only asks for information but the tool writes: buying tickets for "Find out if there are events"."""
    verb = writing_verb(tool)
    if not verb or verb in _DO_ANYTHING or not _ASKS_TO_FIND.search(request):
        return False
    if verb not in _ONLY_VERBS and not (tool.description or "").casefold().startswith(verb):
        return False
    return not (asks_for_change(request) or _ASKS_TO_GET.search(request) or verb[:4] in Said([request]).stems)


def _must_be_said(name: str, value: Any, tool: Tool) -> bool:
    """Say whether an optional value must come from the conversation: a date must, a number of lines need not."""
    schema = property_schema(tool.input_schema, name)
    is_default = isinstance(schema, Mapping) and "default" in schema and schema["default"] == value
    return isinstance(value, str) and not is_default and (OWN_WORDS | _LIMITS).isdisjoint(words_of_name(name))


def _asks_about(request: str, own: Said, tool: Tool) -> bool:
    """Say whether a request is for this tool: both search, or the request quotes a text and shares a word with the tool."""
    does = Said([tool.name, tool.description or ""])
    if _SEARCHES.search(does.text):
        return bool(_ASKS_TO_SEARCH.search(request))
    return bool(_QUOTED.search(request)) and bool(own.has_other_script or own.stems & does.stems)


def _is_own(value: Any, own: Said, said: Said) -> bool:
    """Say whether a part of a value comes from the request; a part found verbatim elsewhere was not translated from it."""
    for _, _, part in values_in({"": value}):
        if not _counts(part) or not _is_said(part, own, False) or _is_guess(part, own):
            continue
        is_translated = isinstance(part, str) and _may_be_translated(part, own) and part.casefold().strip() not in own.text
        if not is_translated or part.casefold().strip() not in said.text:
            return True
    return False


def _is_guess(part: Any, own: Said) -> bool:
    """Say whether a number, code or time has no basis in the request. `_is_said` accepts any, because it may be worked out."""
    if not isinstance(part, str):
        return not own.speaks_of_hours and own.keys.isdisjoint({number_key_of(part), number_key_of(abs(part))})
    if _CODE.fullmatch(part.strip()):
        return part.casefold() == "utc" or not (own.has_other_script or any(_names(word, part) for word in own.words))
    if not _TEMPORAL.search(part):
        return False
    return own.keys.isdisjoint(key for atom in atoms(part) for key in _keys(atom)) and not _MOMENT.search(own.text)


def _names(word: str, code: str) -> bool:
    """Say whether a code may stand for a word: AAPL for Apple, Europe/Oslo for Oslo."""
    name = code.rpartition("/")[2].casefold()
    if "/" in code:
        return word in name.split("_")
    letters = set(name) - {"-", "."}
    return len(word) > 2 and word[0] == name[0] and 2 * len(letters & set(word)) >= len(letters)


def _is_of_words(value: Any, said: Said, request: str) -> bool:
    parts = [part for _, _, part in values_in({"": value}) if _counts(part)]
    is_long = len(request.encode()) > _A_VALUE
    for text in (part for part in parts if isinstance(part, str)):
        if is_long and _fold(text) == _fold(request):
            return False
        # Models join new names to the folder of an earlier turn.
        if _PATH.fullmatch(text) and re.split(r"[/\\]", text.rstrip("/\\"))[-1].casefold() not in said.text:
            return False
    return not parts or any(_is_said(part, said, False) for part in parts)


def _fold(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def addresses(text: str) -> list[str]:
    """Return the mail addresses, web hosts and UUIDs in a text, which must have been said as a whole."""
    return [match[0] for pattern in _WHOLE for match in pattern.finditer(text)]


def _may_be_groundless(text: str) -> bool:
    return len(text) <= _LONGEST and "\n" not in text


def tools_that_may_tell(names: Iterable[str], called: Iterable[Tool], catalog: Catalog) -> tuple[str, ...]:
    """Return the reading tools that may supply a missing address or id: those that share most words with the called tools.

    For example, `find_contact`, "the mail address of a person", shares words with `send_mail`, "a mail to an address".
    """
    if not any(is_addressee(name) or not IDS.isdisjoint(words_of_name(name)) for name in names):
        return ()
    used = [*called]
    stems = _stems_of(used)
    shared = {tool.name: len(_stems_of([tool]) & stems) for tool in catalog if tool not in used and not may_write(tool)}
    most = max(shared.values(), default=0)
    return tuple(name for name, count in shared.items() if count == most) if most else ()


def names_somebody(request: str, values: Iterable[str]) -> bool:
    """Say whether a value contains a name from the request: a capitalized word there other than the first ("Tell Tom")."""
    names = {word.casefold() for word in _WORD.findall(request)[1:] if word[0].isupper() and len(word) > 1}
    words = {word.casefold() for value in values for word in _WORD.findall(value)}
    return not names.isdisjoint(words)


def _stems_of(tools: Iterable[Tool]) -> frozenset[str]:
    """Return five letters of what tools are about: a status is at no station, and every other tool gets, too."""
    words = Said(f"{' '.join(words_of_name(tool.name))} {tool.description or ''}" for tool in tools).words
    return frozenset(word.rstrip("s")[:5] for word in words - _NO_NAMES - READING_VERBS if len(word) > 3)


def groundless_call(call: ToolCall, names: Iterable[str]) -> InvalidCall:
    """Return the call as an InvalidCall, because these values were never said."""
    values = {name: repr(call.arguments[name])[:80] for name in names}
    issues = [Issue(code="not-said", path=f"$.{name}", got=got, message=_NOT_SAID) for name, got in values.items()]
    return InvalidCall(id=call.id, name=call.name, issues=tuple(issues), raw=call.raw)


def stands_for_another(text: str, name: str, tool: Tool, said: Said) -> bool:
    """Say whether a text is no real value: a placeholder, an address or id that was never said, or words of the schema."""
    if not _may_be_groundless(text):
        return False
    found = [*placeholders(text), *addresses(text)]
    return any(each.casefold() not in said.text for each in found) or _is_of_schema(text, name, tool, said)


def _is_groundless(name: str, value: Any, arguments: Mapping[str, Any], tool: Tool, said: Said) -> bool:
    parts = [part for _, _, part in values_in({name: value}) if _counts(part)]
    texts = [part for part in parts if isinstance(part, str)]
    if any(stands_for_another(text, name, tool, said) for text in texts):
        return True
    if not parts or not all(map(_may_be_groundless, texts)) or not _is_asked_for(name, value, tool):
        return False
    if any(_is_example(text, name, tool, said) for text in texts) or (isinstance(value, str) and _is_whose(value, said)):
        return True
    has_code = any(map(_CAPITALS.fullmatch, texts))
    if (has_code and not _codes_without_name(arguments, tool, said).isdisjoint(texts)) or _has_unsaid_clock(texts, said):
        return True
    if _points_at(name, tool) and not all(_is_named_whole(text, name, tool, said) for text in texts):
        return True
    is_id = not _IDENTIFIES.isdisjoint(words_of_name(name))  # one cannot be worked out
    if is_id and not all(said.digits.issuperset(_DIGIT_RUN.findall(str(part))) for part in parts):
        return True
    used = (number for _, _, part in values_in(arguments) if _counts(part) for number in _numbers(part))
    has_free_number = bool(said.numbers.difference(used))
    return not any(_is_said(part, said, has_free_number, _names_of(name, tool)) for part in parts)


def _names_of(name: str, tool: Tool) -> frozenset[str]:
    return frozenset((*words_of_name(name), *words_of_name(tool.name)))


def _points_at(name: str, tool: Tool) -> bool:
    """Say whether a parameter names what a writing tool acts on: a file to delete, an invoice to pay, a recipient."""
    words, verbs = {*words_of_name(name)}, {*words_of_name(tool.name)}
    is_new = bool(words & _FILES) and not verbs.isdisjoint(_CREATES)
    return may_write(tool) and (_is_of_mail(words, tool) or (not words.isdisjoint(_POINTS_AT) and not is_new))


def _is_of_mail(words: set[str], tool: Tool) -> bool:
    """Say whether a parameter takes mail addresses: `to` does in a tool with "mail" in its name, but not in one for flights."""
    return bool(words & {"email", "emails", "mail"} or (words & _RECIPIENTS and "mail" in tool.name.casefold()))


def _is_named_whole(text: str, name: str, tool: Tool, said: Said) -> bool:
    """Say whether the name of something that exists was said as a whole: each part of a path, the whole mail address."""
    if _is_of_mail({*words_of_name(name)}, tool):
        return bool(addresses(text)) and all(each.casefold() in said.told for each in addresses(text))
    if text.strip() == ".":
        return True  # the tool's own working folder
    path = text.casefold().strip().rstrip("/\\")
    *folder, name = re.split(r"[/\\](?=[^/\\]+\Z)", path, maxsplit=1)
    if not name.strip(" .~"):
        return False
    is_known_folder = all(each in (".", "~") or _is_said_whole(each, said) for each in folder)
    return _is_said_whole(path, said) or (_is_said_whole(name, said) and is_known_folder)


def _is_said_whole(name: str, said: Said) -> bool:
    """Say whether a name was said as whole words; if it has digits, other separators are allowed (INV-7781, "INV 7781")."""
    if re.search(rf"(?<![0-9a-z/\\]){re.escape(name)}(?![0-9a-z/\\])", said.told):
        return True
    letters = _fold(name)
    has_digits = any(map(str.isdigit, letters)) and not re.search(r"[/\\]", name)
    return has_digits and len(letters) >= _SHORTEST and letters in _fold(said.told)


def _counts(part: Any) -> bool:
    """Say whether a value is so specific that it must appear in the conversation."""
    return not isinstance(part, bool) and part not in (None, "", 0, 1, [], {}) and str(part).casefold().strip() not in _ANYTHING


def _is_of_schema(text: str, name: str, tool: Tool, said: Said) -> bool:
    """Say whether a text only repeats the schema: the parameter's name, its description, or a part of that."""
    words, kind = _fold(text), _OF_KIND.fullmatch(text.strip())
    if words == _fold(placeholder(name)) or (kind and kind[1].casefold() in _names_of(name, tool)):
        return text.casefold() not in said.text
    if not words or _has_choice(name, tool) or _is_said(text, said, False):
        return False
    if words == _fold(name):
        return True
    few = len(_WORD.findall(text)) < _FEWEST_WORDS
    return not few and any(words in _fold(about) for about in _descriptions(property_schema(tool.input_schema, name)))


def _is_example(text: str, name: str, tool: Tool, said: Said) -> bool:
    """Say whether a date or time is the example in the parameter's description and was not said elsewhere."""
    moments = [piece for piece in _BETWEEN_MOMENTS.split(text) if _TEMPORAL.search(piece) and piece.casefold() not in said.text]
    unsaid = [piece for piece in moments if said.numbers.isdisjoint(_numbers_of(piece))]
    return any(piece in about for about in _descriptions(property_schema(tool.input_schema, name)) for piece in unsaid)


def _is_whose(text: str, said: Said) -> bool:
    """Say whether a text names a value by its owner ("your flight number") or its kind (订单号), in words that are in no text."""
    words = text.strip()
    return bool(_WHOSE.fullmatch(words) or _KIND_IN_CHINESE.fullmatch(words)) and words.casefold() not in said.told


def _codes_without_name(arguments: Mapping[str, Any], tool: Tool, said: Said) -> frozenset[str]:
    """Return the codes of capitals that were not said, if there are more than words that may have been names for them.

    "The price of Apple" names AAPL, and "50 dollars" one currency but not two; "the stock price" names none. A word of the tool
    is no name.
    """
    parts = (part for _, _, part in values_in(arguments) if isinstance(part, str))
    codes = [part for part in parts if _CAPITALS.fullmatch(part) and part.casefold() not in said.words]
    if not codes or said.may_name_in_other_script:
        return frozenset()
    of_tool = Said([*words_of_name(tool.name), tool.description or "", *arguments])
    words = {word for word in said.worked_words - _NO_NAMES - of_tool.words if len(word) > 2 and not has_other_script(word)}
    return frozenset(codes[sum(word[:4] not in of_tool.stems for word in words) :])


def _has_unsaid_clock(texts: Iterable[str], said: Said) -> bool:
    """Say whether a moment has a time of day although nothing implies one; midnight may stand for a whole day."""
    pieces = (piece for text in texts for piece in _BETWEEN_MOMENTS.split(text)[1:])
    clocks = [piece for piece in pieces if _CLOCK.match(piece) and not _MIDNIGHT.match(piece)]
    return not said.speaks_of_hours and any(said.numbers.isdisjoint(_numbers_of(clock)) for clock in clocks)


def _descriptions(schema: Any) -> Iterator[str]:
    found = (node.get("description") for node in nodes(schema))
    return (about for about in found if isinstance(about, str))


def _is_asked_for(name: str, value: Any, tool: Tool) -> bool:
    """Say whether a parameter's value must come from the conversation."""
    schema = property_schema(tool.input_schema, name)
    if not is_required(name, tool) or not isinstance(schema, Mapping):
        return False
    if (_has_choice(name, tool) and not _lists_many_words(schema)) or ("default" in schema and schema["default"] == value):
        return False
    return (OWN_WORDS | _LIMITS).isdisjoint(words_of_name(name))


def _has_choice(name: str, tool: Tool) -> bool:
    schema = property_schema(tool.input_schema, name)
    return isinstance(schema, Mapping) and any("enum" in node or "const" in node for node in nodes(schema))


def _lists_many_words(schema: Mapping[str, Any]) -> bool:
    """Say whether a schema lists so many words that the person must choose; a few are modes (`add`), and short ones are codes."""
    listed = schema.get("enum")
    if not isinstance(listed, list):
        return False
    words = [each for each in listed if isinstance(each, str) and len(each) >= _WORD_LONG]
    return len(words) >= _MANY and len(words) >= len(listed) * _MOST


def _is_said(part: Any, said: Said, has_free_number: bool, names: frozenset[str] = frozenset()) -> bool:
    """Say whether a value was said; as a part of one, `names` are no evidence: "Flight 1234" for a flight's number."""
    if not isinstance(part, str):
        return bool({number_key_of(part), number_key_of(abs(part))} & said.keys) or has_free_number or said.speaks_of_time
    text = part.casefold().strip()
    if text in said.text or _CODE.fullmatch(part.strip()) or _may_be_translated(part, said):
        return True
    speaks_of_it = said.speaks_of_hours if _CLOCK.fullmatch(part.strip()) else said.speaks_of_time
    if _TEMPORAL.search(part) and (speaks_of_it or (has_free_number and not said.numbers.isdisjoint(_numbers_of(part)))):
        return True
    keys = {key for atom in atoms(part) if atom.weight for key in _keys(atom) if not _HAN.fullmatch(key)}  # not "the"
    runs = _HAN.findall(text)
    pairs = {"".join(pair) for run in runs for pair in (pairwise(run) if len(run) > 1 else [run])}  # one character is too little
    if not (keys or pairs) or not (keys - names).isdisjoint(said.keys) or any(pair in said.text for pair in pairs):
        return True
    return _is_shortened(text, said, names)


def _numbers_of(moment: str) -> Iterator[str]:
    return (number.lstrip("0") for number in _DIGITS.findall(moment))


def _may_be_translated(part: str, said: Said) -> bool:
    return may_be_translation(part) and said.may_name_in_other_script


def _is_shortened(text: str, said: Said, names: frozenset[str]) -> bool:
    """Say whether a name's initials or first letters were said ("LA", "NYC", "Philly"), or another form of one of its words."""
    initials = "".join(word[0] for word in _WORD.findall(text.partition(",")[0]))
    if len(initials) > 1 and any(len(word) <= 4 and word.startswith(initials) for word in said.words):
        return True
    return any(word[:4] in said.stems for word in _WORD.findall(text) if len(word) > 3 and word not in names)


def _keys(atom: Atom) -> Iterator[str]:
    yield atom.key
    yield from atom.others


def _numbers(value: str | float) -> Iterator[str]:
    """Yield the numbers of a text, or a number, without their signs; words such as "two", which count things, do not count."""
    if not isinstance(value, str):
        yield number_key_of(value).lstrip("#-")
        return
    for atom in atoms(value):
        if atom.text.casefold() not in _FEW:
            yield from (key.lstrip("#-") for key in _keys(atom) if _NUMBER.fullmatch(key))
