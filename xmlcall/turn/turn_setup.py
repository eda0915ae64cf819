"""The parameters of a turn: generation, tools, limits, the conversation before it, and its first request.

The first reply is requested with the usual reminder, with a request for plain words, or with a call begun for the model. This is
decided once, from the model's own opinion of the user's message (`tool_need`). All requests of the turn extend this first one.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import regex

from ..binding.echo import Sources
from ..binding.grounds import Said, addresses, asks_for_change, groundless, said_before, stands_for_another, stands_on
from ..binding.provenance import SaidIndex, ValueSource, keys_of_text, values_in
from ..binding.spellings import atoms
from ..binding.waiting import stands_for_result
from ..dialects.write import beginning, calls_of
from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..prompting.leaks import Refusal
from ..prompting.results import piece, result_with
from ..prompting.system import ToolPrompt, free_name
from ..prompting.writer import Forms, with_reminder
from ..tools.catalog import Catalog, may_write, only_reads
from ..types.calls import InvalidCall, Message, TextContent, Tool, ToolCall, ToolResult, WrittenCall
from ..types.completion import Capabilities, CompletionRequest
from .asking import Threshold
from .generate import NewId, numbered_ids
from .machine import Script
from .tool_need import DOUBT, ToolNeed, ask_tool_need

# -- our own tools -----------------------------------------------------------------------------------------------------
# Built-in tools that only return information we already have: the turn answers them itself, without asking the policy.
#
# | tool | what it does |
# |---|---|
# | `describe_tools` | describes tools that the prompt shows only in part (`prompting.system`) |
# | `read_more` | returns the rest of a result that was sent only in part (`results`) |
#
# The prompt describes each only once it is useful.


OURS: Final = "xmlcall"
"""The server name that is given for a built-in tool."""

Answering = Callable[[Mapping[str, Any], Sequence[Message]], ToolResult]
"""Answers a call from its arguments and the conversation before it."""


def describing(offered: ToolPrompt) -> dict[str, Answering]:
    """Return the tool that describes others, by its name; empty if the prompt shows all tools in full."""

    def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        return text_result(offered.describe(arguments))

    return {tool.name: answer for tool in offered.describing}


def with_reading_on(catalog: Catalog, format: PromptFormat) -> tuple[Catalog, str]:
    """Return a catalog with the tool that reads the rest of a result, and that tool's name."""
    name = free_name("read_more", catalog)
    properties = {"handle": {"type": "string"}, "start": {"type": "integer", "minimum": 0}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Catalog([*catalog, Tool(name=name, description=words_for("more", format), input_schema=schema)]), name


def reading_on(name: str, format: PromptFormat, tokens: Callable[[], int]) -> Answering:
    """Return what answers that tool, in pieces of so many tokens."""

    def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        text = result_with(arguments["handle"], conversation)
        if text is None:
            return ToolResult.error(words_for("unknown_handle", format))
        start = min(arguments["start"], len(text))
        found = piece(text, start, tokens())
        rest = len(text) - start - len(found)
        note = words_for("rest", format, name=name, handle=arguments["handle"], start=start + len(found), count=rest)
        return text_result(f"{found}\n{note}" if rest else found or words_for("at_end", format))

    return answer


def words_for(part: str, format: PromptFormat, **values: Any) -> str:
    """Render a part of the template of the built-in tools: text that the model reads."""
    return format.render("own_tools", part=part, **values).strip()


def text_result(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))


# -- what a turn is given ----------------------------------------------------------------------------------------------


READ_AGAIN: Final = 8000  # characters: up to this length a conversation is read once more without the tool prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """How the first reply is requested."""

    request: CompletionRequest
    begun: str = ""  # the given beginning of the reply; "" if the model begins it
    # The conversation for a server that refuses such a beginning; None if there is none.
    otherwise: CompletionRequest | None = None
    # The conversation without text of ours, to ask for plain words if a call that we began is baseless; None if we begin none.
    bare: CompletionRequest | None = None
    # The conversation without the tool prompt, for a message that needs no tool, or a model that gives no answer with that
    # prompt; None if the need was not in question, or it is too long to be read again.
    unoffered: CompletionRequest | None = None
    # The conversation with the tools, if the request leaves them out or asks for plain words.
    offered: CompletionRequest | None = None
    # Whether the reply may call one tool only: a small model calls each of several that are described after the message.
    one_tool: bool = False
    # How the reply is requested once more, with a call begun, if the answer says that the model has no access; None if not.
    called: "FirstRequest | None" = None
    need: ToolNeed | None = None

    def changed(self, change: Callable[[CompletionRequest], CompletionRequest]) -> "FirstRequest":
        names = ("otherwise", "bare", "unoffered", "offered")
        forms: dict[str, Any] = {name: change(form) for name in names if (form := getattr(self, name))}
        return replace(self, request=change(self.request), called=self.called and self.called.changed(change), **forms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How replies are generated and read."""

    server: Capabilities
    format: PromptFormat
    is_native: bool = False
    reads_text: bool = True  # in native mode, whether calls that the server left in the text count
    # In native mode, whether calls at the end of the reasoning count, if the reply has nothing else.
    reads_reasoning: bool = False
    # Whether a caller keeps the conversation and limits its tokens. A reply that is cut at that limit then ends the turn; else it
    # is continued, and the model is notified of a call that was cut.
    is_for_caller: bool = False
    new_id: NewId = field(default_factory=numbered_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    catalog: Catalog
    of_caller: frozenset[str] = frozenset()  # names of the tools that the caller runs itself: their calls end the turn
    own: Mapping[str, Answering] = field(default_factory=dict)  # built-in tools that the turn answers itself, by name
    is_required: bool = False
    required_name: str = ""
    in_text: "Callable[[], InText] | None" = None  # in native mode: how the tools are offered in the prompt instead
    natively: ToolPrompt | None = None  # how the server's own function calling gets the tools, if it gets only some
    chosen: frozenset[str] = frozenset()  # the names of these
    found_before: Sequence[str] = ()  # further ones that the same request led to before this turn

    def found(self, call: ToolCall) -> tuple[str, ...]:
        """Return the tools that a call found, to be sent from the next request on."""
        return self.natively.found(call.arguments) if self.natively and call.name == self.natively.own else ()

    def sent(self, found: Sequence[str]) -> tuple[Tool, ...]:
        """Return the tools to send to the server's own function calling; those that calls of the turn found come last."""
        if self.natively is None:
            return tuple(self.catalog)
        chosen = (tool for tool in self.catalog if tool.name in self.chosen or tool.name in self.own)
        return (*chosen, *self.natively.latest_found((*self.found_before, *found), self.chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class InText:
    """The tools in the prompt, for a turn whose native reply came to nothing."""

    offer: Offer
    request: CompletionRequest  # the conversation before the turn, with the tool prompt
    # The tools as the prompt lists them (`ToolPrompt.listed`): others' words, from which a call must not be copied.
    listed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The conversation before the turn."""

    request: str
    sources: Sources
    # The messages as the caller sent them, without text that we or a server appended to the user's.
    conversation: Sequence[Message] = ()
    # Returns the messages to continue the conversation with, given the first request; None to keep `conversation`.
    kept: Callable[[FirstRequest], Sequence[Message]] | None = None
    # Calls that the caller ran for the same request before this turn, with their results.
    made: Sequence[tuple[ToolCall, str]] = ()


def decide(
    threshold: Threshold | None, server: Capabilities, catalog: Catalog, format: PromptFormat, forms: Forms, *, lang: str
) -> Script[FirstRequest]:
    """Ask the model whether the user's message needs a tool, and prepare the first request accordingly.

    A message that needs no tool is answered as if there were no tools: after the tool prompt a small model explains a function
    instead of writing it, and answers in the language of the prompt. A long conversation keeps the tool prompt, because the
    server would have to read it again. If that answer is that the model has no access, we begin a call after all.
    """
    bare, shown = forms.bare, forms.shown
    alone = forms.unoffered
    if alone is not None and sum(len(message.content) for message in alone.messages) > READ_AGAIN:
        alone = None
    ask = partial(FirstRequest, unoffered=alone)
    if threshold is None or bare is None:
        return ask(request=forms.reminded)
    need = yield from ask_tool_need(threshold, server, bare, catalog, format, shown=shown)
    if need is None or not need.is_sure or (need.needs_tool and not need.begun):
        return ask(request=forms.reminded, need=need)
    if need.begun:
        request = shown or bare
        one_tool = bool(need.tool) and request.messages != bare.messages
        return ask(request=request, begun=need.begun, otherwise=forms.reminded, bare=bare, one_tool=one_tool, need=need)
    plain = partial(FirstRequest, offered=forms.reminded, need=need)
    if need.fits and (need.number or 0.0) > 0.0 and server.continues:  # the model has named a tool itself
        doubtful = replace(need, threshold=need.score - DOUBT / 2)
        called = ask(request=shown or bare, begun=beginning(format.row), otherwise=forms.reminded, bare=bare, need=doubtful)
        plain = partial(plain, called=called)
    if alone is not None:
        return plain(request=alone)
    aside = prompt.reminder(catalog, format.speaking(lang), needs_tool=False)
    return plain(request=replace(bare, messages=with_reminder(aside, bare.messages)))


# -- what was said -----------------------------------------------------------------------------------------------------
# Tracks what was said in a turn, to find values that appear nowhere in the conversation and answers without a basis.
#
# The model is asked once about a call with such a value (`binding.grounds`), and once about such an answer; it may know better.
# A small model whose tool failed states a price all the same, and after a calculator returned -27 it repeats "I like music."
# from the beginning of the conversation. Such an answer is asked for again, once in a turn; the second answer stays, whatever
# it says.
#
# | the turn's calls | an answer that | is asked for again |
# |---|---|---|
# | all failed or returned nothing | has a number, date, address or full name that appears nowhere in the conversation | yes |
# | only read, although the request asks for a change | claims the change ("has been deleted") | yes |
# | none, although the request, no question, asks for a change, and no earlier call wrote | is such a claim, in one line | yes |
# | none: no tool was shown, but the model had named one | begins by saying that it has no access | yes, with a call begun |
# | gave a new result | repeats an earlier answer word for word, and contains nothing of the result | yes |
# | any other | | no |
#
# A single-word name ("Canberra") is not checked, because a model may know it. `binding.grounds` defines what counts as said; the
# numbers of a list do not count as values. The cost is linear in the length of the conversation.


_CODE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_NUMBER: Final = re.compile(r"(?<![\w/.:-])[0-9]+(?:\.[0-9]+)?(?![\w/.:-])")  # not part of a path, a time or a version

_LIST_NUMBER: Final = re.compile(r"^[ \t>*#-]{0,9}[0-9]{1,3}[.)、](?=\s)", re.MULTILINE)
_NAME: Final = re.compile(r"(?<![\w'])[A-Z][a-z]{1,30}(?: [A-Z][a-z]{1,30}){1,3}\b")
_NOTHING: Final = re.compile(
    r"(?:no|not|nothing|none|0)\b.{0,60}\b(?:found|results?|match(?:es)?|data)\b.{0,60}|(?:未|没有|无).{0,30}(?:找到|结果|数据).{0,30}",
    re.IGNORECASE,
)
_DEED: Final = re.compile(
    r"\b(?:I(?:['’]ve| have)?|(?:has|have) (?:now |just )?been|was|were)(?: successfully| just| now)? (?P<done>sent|mailed"
    r"|e-?mailed|delivered|deleted|removed|moved|renamed|copied|paid|settled|booked|reserved|ordered|purchased|bought|created|saved|stored"
    r"|added|updated|changed|scheduled|rescheduled|cancell?ed|transferred|posted|published|shared|recorded|written)\b"
    r"|已(?:经)?(?:成功)?(?:为您|帮您|帮你|为你)?"
    r"(?:[将把][^。！？，\n]{1,40}?)?(?P<zh>发送|寄出|删除|移动|移到|修改|改|支付|付|预订|预约|创建|保存|添加|更新|安排|取消|写入|记录|转)",
    re.IGNORECASE,
)
_QUESTION_OR_TEXT: Final = re.compile(r"[?？:：\"“”「」《》\n]|[吗呢]\s*$")  # a text to be changed is often quoted
_PERFECT: Final = re.compile(r"\b(?:have|has)\b|['’]ve\b|已")
_NOT_DONE: Final = re.compile(
    r"\b(?:not|n['’]t|nothing|none|no|cannot|unable|could|would|if|once|after|before)\b|没|未|无法|不能|如果", re.IGNORECASE
)
# How a model answers that was shown no tools and has no access to what it is asked for. A refusal for another reason is none.
_NO_ACCESS: Final = regex.compile(
    r"\s*(?:(?:(?:i(?:['’]m| am) (?:so |very )?)?sorry|(?:my )?apologies|i apologi[sz]e|unfortunately)[,.;!]?\s+(?:but\s+)?)?"
    r"(?:as an? [^.!?\n]{1,80},\s+|i(?:['’]m| am) (?:just |only )?an? [^.!?,\n]{1,60}[,.]?\s+(?:and |so )?(?=i\b))?"
    r"(?:i (?:currently |actually )?(?:do not|don['’]t) (?:currently |actually )?have (?:[\w'’-]+ ){0,4}?"
    r"(?:access|the ability|the capability|real[ -]time|live|personal memor|memor(?:y|ies)|up[ -]to[ -]date)"
    r"|i(?: can(?:not| not|['’]t)|(?:['’]m| am) (?:currently )?(?:unable|not able) to) (?:directly |currently )?"
    r"(?:(?:access|browse|check|retrieve|fetch|look up|open|read|view|search|remember|recall|send)\b"
    r"|(?:provide|give|tell|show) [^.!?\n]{0,30}?(?:real[ -]time|current|live|up[ -]to[ -]date|latest)))"
    r"|\s*(?:(?:很|非常|十分)?(?:抱歉|对不起|不好意思|遗憾)[，,。！!]?\s*(?:但是?)?)?"
    r"(?:作为[^，。！？\n]{1,30}[，,]\s*|我(?:只)?是[^，。！？\n]{1,30}[，,]\s*)?我?(?:目前|暂时|现在|并|也)?(?:没有|不具备|无法|不能|没法)"
    r"(?:直接|实时|任何|个人|访问|获取|查询|查看|联网|记忆|记住|读取|打开|发送|浏览|搜索|能力|权限)",
    regex.IGNORECASE,
)
_LONGEST_CLAIM: Final = 160  # characters; a longer answer may contain what was asked for, such as a text that was changed
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]{1,500}")
_MOST: Final = 5  # values that the feedback names


class SaidSoFar:
    """What people, results and the model have said in a turn."""

    def __init__(self, history: History, *, asks: bool) -> None:
        self.results: list[str] = []  # of tools
        self.heard = Said(())  # everything said before the current reply
        self._history = history
        self._asks = asks
        self._own: Sequence[str] = ()  # what the model said in earlier turns
        self._ran: list[str] = []  # the calls that ran, as written
        self._outcomes: list[str | None] = []  # result texts of the calls that could run; None for a failure
        self._found_nothing = False
        self._asked_to_check: set[tuple[str, str]] = set()  # (tool, parameter) pairs that the model was asked to check
        self._new: set[tuple[str, str]] = set()  # pairs from the current reply, not reported yet
        self._bound: list[str] = []  # tools of the calls in the current reply
        self._has_only_read = True  # the calls that ran
        self._change: tuple[Any, bool] = (None, False)  # whether a change is due, and of what that was found
        self._has_doubted = False  # whether an answer was asked for again

    def begin_reply(self, own: Sequence[str]) -> None:
        """Note that the model begins its next reply; `own` are its earlier replies in the prompt."""
        # Numbers in code that the model wrote do not count: `sum([1, 2, 3])` does not mention 3.
        self._own = [_CODE.sub(lambda code: _NUMBER.sub("", code[0]), text) for text in own]
        self._bound, self._asked_to_check = [], self._asked_to_check | self._new
        others = self._of_others()
        self.heard = said_before([*others, *self._own], self._history.request, self.results, self._ran, others)

    def note_call(self, call: ToolCall, result: str, tool: Tool | None) -> None:
        """Note that a call of a tool ran; the tool is None if it is no longer offered."""
        self._has_only_read = self._has_only_read and tool is not None and only_reads(tool)
        self._ran.append(call.raw.text)
        self.results.append(result)

    def note_outcomes(self, outcomes: Sequence[str | None]) -> None:
        """Note the outcomes of a reply's calls, except calls of built-in tools."""
        self._outcomes += outcomes
        self._found_nothing = found_nothing(self._outcomes)

    def _of_others(self) -> list[str]:
        return [*self._history.sources.said, *self._history.sources.instructions, *self.results]

    def index(self) -> SaidIndex:
        """Return an index of all texts that a value may come from: those of others, and the model's own earlier replies."""
        index = SaidIndex()
        for text in (*self._of_others(), *self._own, *self._ran, *self._history.sources.described):
            index.add(text, ValueSource(kind="system"))
        return index

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def groundless(self, call: ToolCall, offer: Offer) -> tuple[str, ...]:
        """Return the parameters of a call whose values appear nowhere in the conversation."""
        tool = offer.catalog.get(call.name)
        if tool is None or not self._asks or call.name in offer.own:
            return ()
        return groundless(call.arguments, tool, self.heard)

    def held_back_for(self, call: ToolCall, offer: Offer, *, is_last: bool) -> tuple[str, ...]:
        """Return the parameters for which a call is held back, once each: a model that insists may know better."""
        is_after_another = any(each != call.name for each in self._bound)  # its result may contain the values (`waiting`)
        self._bound.append(call.name)
        tool, names = offer.catalog.get(call.name), self.groundless(call, offer)
        if tool is None or not names:
            return ()
        new = {(call.name, name) for name in names} - self._asked_to_check
        asks_to_check = bool(new) and not is_last and not is_after_another
        self._new |= new if asks_to_check else set()
        is_unseen = tool.name in offer.of_caller and may_write(tool)  # no person may see the call before it runs
        must_not_run = is_unseen or _hold_results(call.arguments[name] for name in names)
        return names if asks_to_check or must_not_run else ()

    def stand_ins(self, call: InvalidCall, offer: Offer) -> list[str]:
        """Return the parameters of an invalid call whose value is a placeholder, or is copied from the schema's description."""
        tool = offer.catalog.get(offer.catalog.meant_by(call.name) or "")
        if tool is None or not self._asks:
            return []
        return [each.name for each in call.raw.arguments if stands_for_another(each.text.strip(), each.name, tool, self.heard)]

    def is_ground_for(self, call: ToolCall, tool: Tool) -> bool:
        """Say whether the values of a call that may not be needed come from the conversation."""
        return stands_on(call.arguments, tool, self.heard, self._history.request, self._earlier_calls())

    def _earlier_calls(self) -> Iterator[ToolCall | WrittenCall]:
        return chain.from_iterable(map(calls_of, self._history.conversation))

    # -- answers ---------------------------------------------------------------------------------------------------------------

    @property
    def may_doubt(self) -> bool:
        """Whether an answer may be asked for again because of its content."""
        return self._asks and bool(self._outcomes) and not self._has_doubted

    @property
    def is_empty_handed(self) -> bool:
        """Whether no call found anything, so that an answer may state only values from the conversation."""
        return self.may_doubt and self._found_nothing

    def may_claim(self, offer: Offer) -> bool:
        """Say whether an answer may claim an action that no call did: the request asks for a change, but no call made one."""
        if not self._asks or self._has_doubted or not self._has_only_read:
            return False
        key = (offer.catalog, bool(self._outcomes))
        if key != self._change[0]:  # asked for each piece of a reply
            self._change = (key, self._is_change_due(offer))
        return self._change[1]

    def _is_change_due(self, offer: Offer) -> bool:
        if not asks_for_change(self._history.request) or not any(map(may_write, offer.catalog)):
            return False
        if self._outcomes or self._history.made or _QUESTION_OR_TEXT.search(self._history.request):
            return bool(self._outcomes)
        tools = (offer.catalog.get(call.name) for call in self._earlier_calls())
        return not any(tool is None or may_write(tool) for tool in tools)

    @property
    def found_one_thing(self) -> bool:
        """Whether the last call found exactly one thing, so that nothing has to be chosen: its result is one line."""
        text = self._outcomes[-1] if self._outcomes else None
        return text is not None and not _is_empty(text) and "\n" not in text.strip() and text.count("{") < 2

    def may_be_refused(self, text: str, offer: Offer) -> bool:
        """Say whether an unfinished answer may turn out to be asked for again: in some cases up to its end."""
        if not self._outcomes:
            return _may_be_alone(text) and self.may_claim(offer)
        if self.is_empty_handed or self.may_claim(offer):
            return True
        begun = " ".join(text.split())
        return self.may_doubt and any(" ".join(each.split()).startswith(begun) for each in self._earlier_answers())

    def doubts(self, text: str, offer: Offer) -> tuple[Refusal, tuple[str, ...]]:
        """Return why an answer is asked for again ("" if it is not), and its values that appear nowhere in the conversation."""
        why: Refusal = ""
        if values := unfounded(text, self.heard) if self.is_empty_handed else ():
            why = "unfounded"
        elif self.may_claim(offer) and self._is_claim(text):
            why = "undone"
        elif self.may_doubt and repeats(text, self._earlier_answers(), self.results):
            why = "repeated_answer"
        self._has_doubted = self._has_doubted or bool(why)
        return why, values

    def _is_claim(self, text: str) -> bool:
        is_due = self._outcomes or (_may_be_alone(text) and _PERFECT.search(text))
        return bool(is_due) and claims_a_deed(text, self.results)

    def _earlier_answers(self) -> list[str]:
        return [message.content for message in self._history.conversation if message.role == "assistant" and message.content]


def _hold_results(values: Iterable[Any]) -> bool:
    """Say whether a value has a placeholder for a result: it never is what a tool should get, however often it is written."""
    texts = (part for value in values for _, _, part in values_in({"": value}) if isinstance(part, str))
    return any(map(stands_for_result, texts))


def found_nothing(outcomes: Sequence[str | None]) -> bool:
    """Say whether calls were made, but none returned anything useful; the outcome of a failed call is None."""
    return bool(outcomes) and all(text is None or _is_empty(text) for text in outcomes)


def unfounded(text: str, said: Said) -> tuple[str, ...]:
    """Return the first few values of an answer that appear nowhere in the conversation."""
    read = _LIST_NUMBER.sub("", text)
    named = [match[0] for match in _NAME.finditer(read) if len({*match[0].casefold().split()} - said.words) > 1]
    named += [address for address in addresses(read) if address.casefold() not in said.text]
    numbers = [
        atom.text
        for atom in atoms(read)
        if any(letter.isdigit() for letter in atom.text) and not {atom.key, *atom.others} & said.keys
    ]
    return tuple(dict.fromkeys((*numbers, *named)))[:_MOST]


def _may_be_alone(text: str) -> bool:
    return len(text) <= _LONGEST_CLAIM and "\n" not in text.strip()


def claims_a_deed(text: str, results: Iterable[str]) -> bool:
    """Say whether an answer claims that something was sent, changed or deleted, although no result mentions it."""
    joined = "\n".join(results).casefold()
    sentences = [match[0] for match in _SENTENCE.finditer(text) if not _NOT_DONE.search(match[0])]
    deeds = (match["done"] or match["zh"] for sentence in sentences for match in _DEED.finditer(sentence))
    return any(deed.casefold() not in joined for deed in deeds)


def says_no_access(text: str, *, partial: bool = False) -> bool:
    """Say whether an answer begins by saying that the model has no access, or, of an unfinished answer, whether it may yet."""
    return _NO_ACCESS.match(text, partial=partial) is not None


def repeats(text: str, earlier: Iterable[str], results: Sequence[str]) -> bool:
    """Say whether an answer repeats an earlier one word for word, although there is a new result that it says nothing about."""
    words = text.split()
    if not results or not words or all(each.split() != words for each in earlier):
        return False
    keys = frozenset(key for result in results for key in keys_of_text(result))
    return bool(keys) and not keys & frozenset(keys_of_text(text))


def _is_empty(text: str) -> bool:
    """Say whether a result is empty: no text, JSON without values, or a statement that nothing was found."""
    if not text.strip() or _NOTHING.fullmatch(text.strip()):
        return True
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return value is None or (isinstance(value, dict | list | str) and not _has_value(value))


def _has_value(value: Any) -> bool:
    """Say whether a part of a JSON value says something; 0 does not, because it may be the length of an empty list."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return value not in (None, "", 0) if parts is None else any(map(_has_value, parts))
