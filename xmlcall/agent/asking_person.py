"""Asks the user before a call runs (MCP 2026-07-28, tools: there SHOULD be a human who can deny it).

All decisions are made here, whatever the user interface. Rules come first. "Always allow" applies to a tool as it was shown to
the user. Arguments that the user edits have to be valid for the tool, as the model's had to. An `Asker` shows the question and
returns the answer: the terminal is one, the page is another.

The user is also shown what the call would change in a text, as a diff: of a file that it writes, or of a passage that it
replaces. The old text of a file comes from a read tool of the same server. That tool runs only if the rules allow exactly this
read without asking, its server declares it read-only, and it takes the same path. Otherwise the old text is what the conversation
has shown of the file, and a row says so. The passages are in the arguments. None of this is trusted: the amount compared and the
rows are limited, and the code that prints them makes them `visible`.
"""

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from ..dialects.write import replies_of
from ..errors import ToolHostError, XmlcallError
from ..prompting.format import PromptFormat
from ..prompting.results import denial, result_text
from ..tools.catalog import Catalog
from ..types.calls import Message, RawCall, Tool, ToolCall, WrittenCall
from .policy import Decision, Policy, Proposal
from .rules import Rule, Rules, Ruling
from .run_call import misfit

_PERSON: Final = "person"  # who decided, for the record

Choice = Literal["yes", "no", "edit", "always", "with", "stop", "late"]
"""`always` allows the tool with any arguments, `with` only with these; `late` means that the user did not answer in time."""


class Stopped(XmlcallError):
    """The user ended the run at a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the user about a call."""

    proposal: Proposal
    ruling: Ruling
    definition: str  # the tool's definition, as text
    approved: str | None = None  # the definition for which the user chose "always"; None if they have not
    rules: Rules = field(default_factory=Rules)

    async def changes(self) -> list[str]:
        """Return what the call would change in a text, as rows of a diff; this may run a tool that reads the old text."""
        return passages(self.proposal.call.arguments) or await file_change(self.proposal, self.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAnswer:
    choice: Choice
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


class Asker(Protocol):
    """A user interface that asks the user."""

    @property
    def lang(self) -> str:
        """Language of the reasons that the model receives."""

    def is_there(self) -> bool:
        """Say whether a user can be asked."""

    async def ask(self, question: Question) -> PersonAnswer:
        """Show a question, and wait for the answer."""

    def tell_denied(self, proposal: Proposal, rule: Rule) -> None:
        """Report that a rule denied a call."""

    def tell_nobody(self, proposal: Proposal, ruling: Ruling) -> None:
        """Report that a call was denied because no user could be asked."""


def asking_person_of_repeats(rules: Rules, asker: Asker) -> Policy | None:
    """Make the policy that asks the user about each repeated call that no rule denies; None if no user can be asked."""
    if not asker.is_there():
        return None

    async def ask(proposal: Proposal) -> Decision:
        return await AskingPerson(rules.only(["deny", "ask"]), asker)(proposal)  # a new one, which remembers no earlier answer

    return ask


def read_arguments(text: str, tool: Tool) -> tuple[dict[str, Any], str]:
    """Parse arguments that the user typed; return them, and what is wrong with them."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"expected a JSON object on one line: {error}"
    if not isinstance(arguments, dict):
        return {}, f"expected a JSON object, got {text.strip():.60}"
    return arguments, misfit(arguments, tool.name, Catalog([tool]))


class AskingPerson:
    """The policy of a session: rules decide first, and the user is asked about all other calls.

    It remembers what is always allowed, by name and never as a glob. A server can change the description of a tool at any time;
    the user is then asked again, and sees what is different. With `yes` every question is answered so without being shown, except
    for calls that write made-up values. "Always" covers calls with values from other servers only with `may_flow`, and calls
    whose name or values were guessed by repairs only with `repaired`.
    """

    def __init__(self, rules: Rules, asker: Asker, *, yes: bool = False, may_flow: bool = False, repaired: bool = False) -> None:
        self._rules, self._asker, self._yes = rules, asker, yes
        self._may_flow, self._repaired = may_flow, repaired
        self._always: dict[tuple[str, str, str], str] = {}  # server, tool, arguments ("" for any) -> the tool's definition

    async def __call__(self, proposal: Proposal) -> Decision:
        ruling = self._rules.judge(proposal)
        if ruling.effect != "ask" and ruling.rule is not None:
            if ruling.effect == "deny":
                self._asker.tell_denied(proposal, ruling.rule)
            return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)
        if self._yes and not ruling.unsaid:
            return Decision(allowed=True, by="--yes")
        definition = _definition(proposal.tool)
        approved = self._approved(proposal, ruling)
        if approved == definition:
            return Decision(allowed=True, by=f"{_PERSON}, always")
        if not self._asker.is_there():
            self._asker.tell_nobody(proposal, ruling)
            names = ", ".join(ruling.unsaid)
            reason = denial("unsaid", PromptFormat(lang=self._asker.lang), why=names) if names else ""
            return Decision(allowed=False, reason=reason, by="no person to ask")
        question = Question(proposal=proposal, ruling=ruling, definition=definition, approved=approved, rules=self._rules)
        return await self._asked(question)

    def spares(self, server: str, tool: str) -> bool:
        """Say whether a rule, the option or an earlier answer allows a plain call of a tool."""
        return self._yes or (server, tool, "") in self._always or self._rules.may_allow(server, tool)

    def always_allowed(self) -> set[tuple[str, str]]:
        """Return the server and the name of each tool that the user always allows, if only with some arguments."""
        return {(server, tool) for server, tool, _ in self._always}

    def take_back(self, server: str, tool: str) -> None:
        """Ask about a tool again that the user always allowed."""
        self._always = {key: definition for key, definition in self._always.items() if key[:2] != (server, tool)}

    async def _asked(self, question: Question) -> Decision:
        """Ask; check arguments that the user edits against the rules, and ask again if a rule requires it."""
        answer = await self._asker.ask(question)
        if answer.choice != "edit" or answer.arguments is None:
            return self._decided(answer, question)
        proposal = question.proposal
        edited = replace(proposal, call=replace(proposal.call, arguments=dict(answer.arguments), repairs=()))
        rule = self._rules.stricter(proposal, answer.arguments)
        if rule is None:
            return Decision(allowed=True, arguments=answer.arguments, by=_PERSON)
        if rule.effect == "deny":
            self._asker.tell_denied(edited, rule)
            return Decision(allowed=False, by=rule.name)
        decision = await self._asked(replace(question, proposal=edited, ruling=Ruling(effect="ask", rule=rule)))
        return replace(decision, arguments=decision.arguments or answer.arguments) if decision.allowed else decision

    def _decided(self, answer: PersonAnswer, question: Question) -> Decision:
        proposal, choice = question.proposal, answer.choice
        if choice == "stop":
            raise Stopped(f"stopped before {proposal.target}")
        if choice in ("no", "late"):
            kind = "said_no" if choice == "no" else "no_answer"
            reason = denial(kind, PromptFormat(lang=self._asker.lang), why=answer.reason)
            return Decision(allowed=False, reason=reason, by=_PERSON if choice == "no" else "no answer in time")
        if choice in ("always", "with"):
            self._always[_key(proposal, any_arguments=choice == "always")] = question.definition
        return Decision(allowed=True, by=_PERSON)

    def _approved(self, proposal: Proposal, ruling: Ruling) -> str | None:
        """Return the definition for which a call is always allowed; for odd values, only with exactly these arguments."""
        is_odd = bool(ruling.unsaid) or bool(ruling.foreign and not self._may_flow) or bool(ruling.repairs and not self._repaired)
        found = (self._always.get(_key(proposal, any_arguments=each)) for each in (True, False) if not (each and is_odd))
        return next((definition for definition in found if definition is not None), None)


def _key(proposal: Proposal, *, any_arguments: bool) -> tuple[str, str, str]:
    arguments = "" if any_arguments else json.dumps(proposal.call.arguments, sort_keys=True)
    return proposal.host, proposal.host_tool, arguments


def _definition(tool: Tool) -> str:
    """Format a tool's definition with one line per entry, so that two versions can be compared."""
    said = {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "annotations": dict(tool.annotations or {}),
    }
    return json.dumps(said, ensure_ascii=False, indent=2, sort_keys=True, default=str)


# -- what a call would change in a text ----------------------------------------------------------------------------------
# The conversation has shown a file in the result of an earlier call that read it, or in the text that was written to it. Calls
# are stored beside the model's text, or are known to be in it (`Message.written`). Their results are in the next message, in
# order; some formats leave out the names of the tools. If a call cannot be matched with its result with certainty, its result is
# unknown. Results of native calls do not say whether they are errors, so they count. After a later call with the same path that
# neither reads nor writes a whole text, the file is unknown again. The file itself may have changed since, so whoever shows such
# a text has to say where it comes from.

_READERS: Final = frozenset({"read_file", "read_text_file", "get_file_contents", "view_file", "get_file"})
_WRITES: Final = ("write", "create", "save", "update", "put", "overwrite")  # how the names of tools that write files begin
_PATHS: Final = ("path", "file_path", "filepath", "filename", "file")
_TEXTS: Final = ("content", "contents", "text", "file_text", "data")
_PAIRS: Final = (("oldText", "newText"), ("old_text", "new_text"), ("old_str", "new_str"), ("old_string", "new_string"))
_MOST_LINES: Final = 1000  # of either text; comparing takes quadratic time
_MOST_CHARACTERS: Final = 200_000  # of either text
_ROWS: Final = 60
_ROW_WIDTH: Final = 300  # characters
_SECONDS: Final = 5.0


def difference(old: str, new: str) -> list[str]:
    """Return the rows of a unified diff, limited in number; none if nothing changes."""
    if old == new:
        return []
    if max(len(old), len(new)) > _MOST_CHARACTERS:
        return [f"({len(old):,} characters become {len(new):,}: too many to compare)"]
    before, after = old.split("\n"), new.split("\n")
    if max(len(before), len(after)) > _MOST_LINES:
        return [f"({len(before):,} lines become {len(after):,}: too many to compare)"]
    compared = [*difflib.unified_diff(before, after, lineterm="", n=1)][2:]  # without the header with the file names
    rows = [row if len(row) <= _ROW_WIDTH else f"{row[:_ROW_WIDTH]}... ({len(row):,} characters)" for row in compared]
    return rows if len(rows) <= _ROWS else [*rows[:_ROWS], f"... ({len(rows) - _ROWS} more rows)"]


def passages(arguments: Mapping[str, Any]) -> list[str]:
    """Return the diff of the passages that a call replaces, with pairs of texts in its arguments; none if it replaces none."""
    rows: list[str] = []
    edits = [arguments, *(each for value in arguments.values() for each in (value if isinstance(value, list) else [value]))]
    for edit in edits:
        for old, new in _PAIRS:
            if isinstance(edit, Mapping) and isinstance(edit.get(old), str) and isinstance(edit.get(new), str):
                rows += difference(edit[old], edit[new])
    return rows[:_ROWS]


async def file_change(proposal: Proposal, rules: Rules) -> list[str]:
    """Return the diff of writing a file; none if the call writes no file, or the old text is unknown."""
    arguments = proposal.call.arguments
    path = next((name for name in _PATHS if isinstance(arguments.get(name), str)), None)
    text = next((name for name in _TEXTS if isinstance(arguments.get(name), str)), None)
    if path is None or text is None or not proposal.host_tool.startswith(_WRITES):
        return []
    for name, tool in proposal.beside.items():
        properties = tool.input_schema.get("properties", {})
        given = {key: value for key, value in arguments.items() if key in properties and key != text}
        if name not in _READERS or path not in given or {*tool.input_schema.get("required", ())} - given.keys():
            continue
        raw = RawCall(index=0, name=tool.name)
        call = ToolCall(id=f"{proposal.call.id}_before", name=tool.name, arguments=given, raw=raw)
        ruling = rules.judge(replace(proposal, call=call, tool=tool, host_tool=name))
        if (tool.annotations or {}).get("readOnlyHint") is not True or ruling.effect != "allow" or ruling.rule is None:
            continue
        try:
            result = await proposal.run_beside(call, ruling.rule.name, _SECONDS)
        except ToolHostError:
            return []
        return [] if result.is_error else difference(result_text(result), arguments[text])
    shown = _shown_before(proposal, _READERS, path, text)
    if shown is None:
        return []
    rows = difference(shown.text, arguments[text])
    return rows and [f"(the old text is from an earlier {shown.tool}: the file was not read again)", *rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The text of a file, and the tool call that showed it."""

    tool: str
    text: str


def _shown_before(proposal: Proposal, readers: Collection[str], path: str, text: str) -> _Shown | None:
    """Find the last known text of the file that a call is about to write."""
    wanted, own = proposal.call.arguments[path], {tool.name: name for name, tool in proposal.beside.items()}
    known: _Shown | None = None
    for called, arguments, result in _calls(proposal.conversation):
        name = own.get(called, "")
        if not name or wanted not in arguments.values():
            continue
        if name in readers:
            is_whole = result is not None and list(arguments.values()) == [wanted]
            known = _Shown(tool=name, text=result or "") if is_whole else known
        else:
            is_write = name == proposal.host_tool and result is not None and isinstance(arguments.get(text), str)
            known = _Shown(tool=name, text=arguments[text]) if is_write else None
    return known


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    """Yield name, arguments and result of each call in a conversation; the result is None if it is unknown."""
    for place, message in enumerate(messages):
        if message.tool_calls:
            result_of = {each.tool_call_id: each.content for each in messages[place + 1 :] if each.role == "tool"}
            yield from ((call.name, call.arguments, result_of.get(call.id)) for call in message.tool_calls)
        elif message.role == "assistant" and message.written is not None and message.written.text == message.content:
            calls = message.written.calls
            results = zip(calls, _results(calls, messages[place + 1 : place + 2]), strict=True)
            yield from ((call.name, call.arguments, result) for call, result in results if call.arguments is not None)


def _results(calls: Sequence[WrittenCall], later: Sequence[Message]) -> list[str | None]:
    """Return the result of each call, from the next message; all are None if calls and results do not match."""
    replies = replies_of(later[0]) if later and later[0].role == "user" else ()
    pairs = zip(replies, calls, strict=False)
    if len(replies) != len(calls) or any(not reply.is_ended or reply.name not in ("", call.name) for reply, call in pairs):
        return [None] * len(calls)
    return [None if reply.is_error else reply.text_in(later[0].content) for reply in replies]
