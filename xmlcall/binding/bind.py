"""A call as written, and its tool -> a call with typed arguments, or every mistake in it.

Strategy: read each value strictly by the schema (`tools/outline.py`), then validate all arguments with JSON Schema. Only
invalid values are converted (`convert.py`), and every liberty is recorded as a repair. All issues of a call are reported
together, so that a model can correct them at once. No text makes this raise.

A prompt may ask for every parameter of a tool, with a word such as `none` for those that the request does not mention: small
models lose fewer values of the request if they have to give every parameter (docs/decisions/prompt.md). The word then means "not
given", but only if the prompt asked for it, the parameter is optional, and the schema does not list the word itself.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from xml.sax.saxutils import escape

from ..dialects import DIALECTS
from ..loosejson import reader as jsonish
from ..schema.references import MAX_DEPTH, deeper_than, limited, resolve
from ..schema.validation import find_issues, is_valid
from ..schema.words import describe
from ..tools.catalog import Catalog, Tools, match_name
from ..tools.outline import Parameter, is_required, may_be_left_out, parameter_of, read_text, says_nothing
from ..types.calls import MISSING, InvalidCall, Issue, RawArgument, RawCall, Repair, Tool, ToolCall
from .convert import Ambiguous, Fit, Fitter, is_word_for_nothing, wants_zone, zone_of

_NEAREST = 3
_WRAPPERS = frozenset({"arguments", "parameters", "args", "input", "properties"})
# How models state that a tool has no parameters: `<parameter name="none"></parameter>`, after "Parameters: none" in a prompt.
_NONE = frozenset(
    {"none", "null", "nil", "na", "n/a", "void", "empty", "nothing", "无", "無", "无参数", "無參數"}
    | {f"no{word}" for word in ("input", "parameter", "parameters", "params", "argument", "arguments", "args")}
)
_NO_VALUE = _NONE | {"", "{}", "[]"}
_NO_LETTERS = str.maketrans("", "", " \t\r\n_-.")

_TAIL: Final = re.compile(r"(?<=\})(?:\s|\]|<\|\w{1,20}\|>|</\w{1,20}>)+\Z")
_TAIL_LENGTH: Final = 200

_NEVER_AS_WRITTEN: Final = frozenset({"echo", "mentioned-call", "not-said", "truncated-call", "unread-call"})


def bind(raw_call: RawCall, tools: Tools) -> ToolCall | InvalidCall:
    """Check a call against its tool and type its arguments.

    Args:
        raw_call: the call as the parser read it.
        tools: the tools that were offered; if empty, the arguments stay as written.

    Returns:
        A ToolCall whose arguments satisfy the tool's schema, or an InvalidCall with every issue.
    """
    catalog = Catalog.of(tools)
    name = catalog.meant_by(raw_call.name)
    if name is None and len(catalog):
        return _invalid(raw_call, (*raw_call.issues, _unknown(raw_call.name, catalog.names())))
    tool = catalog.get(name) if name else None
    draft = _Draft(tool, raw_call, catalog)
    with limited():
        draft.read()
        if tool is not None and raw_call.complete:
            draft.check()
    issues = (*raw_call.issues, *draft.issues)
    if issues or not raw_call.complete:
        return _invalid(raw_call, issues)
    named = (Repair(code="tool-name", span=raw_call.span),) if tool and tool.name != raw_call.name else ()
    repairs = (*raw_call.repairs, *named, *draft.repairs)
    final = tool.name if tool else raw_call.name
    return ToolCall(id=f"call_{raw_call.index}", name=final, arguments=draft.arguments, repairs=repairs, raw=raw_call)


def bind_argument(argument: RawArgument, tool: Tool, tools: Tools) -> Any:
    """Type one argument by its own schema, as `bind` does in the whole call; MISSING if it is invalid or would be left out."""
    catalog = Catalog.of(tools)
    draft = _Draft(tool, RawCall(index=0, name=tool.name, arguments=(argument,)), catalog)
    with limited():
        draft.read()
        draft.check_alone(argument.name)
    return MISSING if draft.issues else draft.arguments.get(argument.name, MISSING)


def _invalid(raw_call: RawCall, issues: tuple[Issue, ...]) -> InvalidCall:
    return InvalidCall(id=f"call_{raw_call.index}", name=raw_call.name, issues=issues, raw=raw_call)


def _unknown(name: str, known: tuple[str, ...]) -> Issue:
    nearest = difflib.get_close_matches(name, known, n=_NEAREST, cutoff=0.4) or known[:_NEAREST]
    expected = " or ".join(nearest)
    return Issue(code="unknown-tool", expected=expected, got=name, message=f"There is no tool {name!r}. The nearest: {expected}.")


class _Draft:
    """The arguments of one call, as read so far."""

    def __init__(self, tool: Tool | None, raw_call: RawCall, catalog: Catalog) -> None:
        self.arguments: dict[str, Any] = {}
        self.issues: list[Issue] = []
        self.repairs: list[Repair] = []
        self._raw: dict[str, RawArgument] = {}
        self._values: dict[str, list[Any]] = {}  # all values of each parameter, which may be given several times
        self._no_items: set[str] = set()  # parameters with a value that cannot be an item of a list
        self._tool = tool
        self._call = raw_call
        self._catalog = catalog
        self._root: Mapping[str, Any] = tool.input_schema if tool else {}
        self._declared = catalog.parameters(tool.name) if tool else None
        self._arguments, mended = _members(raw_call)
        self.repairs += mended
        self._given = frozenset(each.name for each in self._arguments)

    def read(self) -> None:
        """Read every argument strictly."""
        rules = any(self._root.get(key) for key in ("patternProperties", "required", "minProperties"))
        takes_others = rules or isinstance(self._root.get("additionalProperties"), dict)
        takes_nothing = self._tool is not None and not self._declared and not takes_others
        for argument in self._arguments:
            if takes_nothing and _says_none(argument):
                self._repair("placeholder-argument", argument, argument.name)
                continue
            name = self._name_of(argument)
            if self._tool is not None and self._says_nothing(argument, name, self._tool):
                self._repair("empty-argument", argument, name)
                continue
            value, issue, repairs = self._value_of(argument, name)
            if issue is not None:
                self.issues.append(issue)
            self._values.setdefault(name, []).append(value)
            is_blank_or_list = isinstance(value, list) or (isinstance(value, str) and value.strip()[:1] in ("", "["))
            if argument.value is not MISSING or is_blank_or_list:
                self._no_items.add(name)
            if name in self.arguments:
                self._repeated(argument, name, value)
                continue
            self.repairs += repairs
            if name or argument.value is not MISSING:
                self.arguments[name] = value
                self._raw[name] = argument

    def _says_nothing(self, argument: RawArgument, name: str, tool: Tool) -> bool:
        """Say whether an argument is null although it should be omitted; in JSON, the quoted word `null` is a string."""
        value = argument.text if argument.value is MISSING else argument.value
        is_quoted = isinstance(value, str) and argument.value is not MISSING
        return bool(name) and not is_quoted and says_nothing(value, name, tool, self._catalog)

    def _value_of(self, argument: RawArgument, name: str) -> "Read":
        if argument.value is not MISSING or not name:
            return _typed(argument, name)
        if self._tool is None:
            return argument.text, None, ()
        parameter = parameter_of(self._catalog, self._tool, name)
        if parameter.admits_string:
            if not parameter.is_plain_string and self._has_marks(argument):
                # Servers read it differently: vLLM as an array, llama.cpp as a string.
                readings = "a string that holds tags", "the elements of a list or of an object"
                return argument.text, _several_readings(name, *readings), ()
            return read_text(argument.text, parameter, self._tool, self._catalog), None, ()
        if self._has_marks(argument):
            return self._only_marked(argument), None, ()
        return _json_value(argument, name, parameter, self._root, self._call.complete)

    def _has_marks(self, argument: RawArgument) -> bool:
        row = DIALECTS.get(self._call.dialect)
        return row is not None and row.nests_elements and f"{row.before_tags}<" in self._written(argument)

    def _only_marked(self, argument: RawArgument) -> str:
        """Return a value as XML, in which only the tags that its format marked are tags."""
        mark = DIALECTS[self._call.dialect].before_tags
        parts = [escape(part) for part in self._written(argument).split(f"{mark}<")]
        return "<".join([parts[0], *(part.replace("&gt;", ">", 1) for part in parts[1:])])

    def _written(self, argument: RawArgument) -> str:
        start = self._call.span[0]
        return self._call.text[argument.span[0] - start : argument.span[1] - start]

    def _name_of(self, argument: RawArgument) -> str:
        declared = self._declared
        if declared is None or argument.name in declared:
            return argument.name
        meant = match_name(argument.name, declared, self._given | self.arguments.keys())
        if meant is None:
            return argument.name
        self._repair("parameter-name", argument, meant)
        return meant

    def _repeated(self, argument: RawArgument, name: str, value: Any) -> None:
        is_list = self.arguments[name] is self._values[name]
        if is_list and name not in self._no_items:
            return
        if not is_list and _same(self.arguments[name], value):
            self._repair("repeated-argument", argument, name)
            return
        kinds = parameter_of(self._catalog, self._tool, name).kinds if self._tool else None
        if kinds == frozenset({"array"}) and name not in self._no_items:  # the items of one list, each in an element of its own
            self.arguments[name] = self._values[name]  # later values are appended to the same list
            self._raw[name] = RawArgument(name=name, text="", value=self._values[name], span=argument.span)
            self._drop_issue(name)
            self._repair("xml-elements", argument, name)
            return
        message = f"The parameter {name!r} was given twice with different values."
        self.issues.append(Issue(code="duplicate-argument", path=f"$.{name}", got=_short(argument.text), message=message))

    def _repair(self, code: str, argument: RawArgument, name: str) -> None:
        self.repairs.append(Repair(code=code, span=argument.span, path=f"$.{name}"))

    def check(self) -> None:
        """Validate all arguments together, repair invalid ones, and list those that stay invalid."""
        assert self._tool is not None
        self._unwrap()
        validator = self._catalog.validator(self._tool.name)
        if isinstance(validator, str):
            self.issues.append(Issue(code="invalid-value", message=f"The tool cannot be called: {validator}."))
            return
        self._name_zones(self._tool)
        found = find_issues(validator, self.arguments)
        if found or self.issues:
            self._mend(self._tool, Fitter(validator, self._root))
            found = find_issues(validator, self.arguments)
        found = tuple(issue for issue in found if not self._is_null_by_default(issue.path))
        broken = tuple(issue.path for issue in self.issues)
        inside = tuple(f"{path}{mark}" for path in broken for mark in ".[")
        self.issues += [issue for issue in found if issue.path not in broken and not issue.path.startswith(inside)]

    def _is_null_by_default(self, path: str) -> bool:
        """Say whether a parameter is null and null is its schema's own default, although its type does not admit it."""
        name = path.removeprefix("$.")
        if self._tool is None or self.arguments.get(name, MISSING) is not None:
            return False
        schema = resolve(parameter_of(self._catalog, self._tool, name).schema, self._root)
        return isinstance(schema, Mapping) and schema.get("default", MISSING) is None

    def check_alone(self, name: str) -> None:
        """Validate and repair one argument by its own schema; add an issue if it stays invalid."""
        assert self._tool is not None
        validator = self._catalog.validator(self._tool.name)
        schema = parameter_of(self._catalog, self._tool, name).schema
        self._name_zones(self._tool)
        if not isinstance(validator, str) and name in self.arguments and not is_valid(validator, self.arguments[name], schema):
            self._mend(self._tool, Fitter(validator, self._root))
        valid = name not in self.arguments or is_valid(validator, self.arguments[name], schema)
        if isinstance(validator, str) or not valid:
            self.issues.append(Issue(code="invalid-value", path=f"$.{name}"))

    def _unwrap(self) -> None:
        found = _unwrapped(self._call, self.arguments, self._declared)
        if found is None:
            return
        inner, liberties = found
        argument = self._call.arguments[0]
        self._repair("arguments-wrapper", argument, argument.name)
        self.repairs += [Repair(code=code, span=argument.span, path=f"$.{argument.name}") for code in liberties]
        self.arguments, self.issues = inner, []
        self._raw = {name: RawArgument(name=name, text="", value=value, span=argument.span) for name, value in inner.items()}

    def _mend(self, tool: Tool, fitter: Fitter) -> None:
        for name, value in list(self.arguments.items()):
            parameter, raw = parameter_of(self._catalog, tool, name), self._raw[name]
            is_text = raw.value is MISSING and not parameter.admits_string
            if is_text and not raw.text.strip() and (empty := self._empty(parameter)) is not None:
                self.arguments[name] = empty
                self._drop_issue(name)
                continue
            if is_text and not raw.text.strip() and not is_required(name, tool):
                self._leave_out(name, raw)
                continue
            fit = fitter.fit(value, parameter.schema, f"$.{name}")
            if fit is None and is_text and value is not raw.text:
                value, fit = raw.text, fitter.fit(raw.text, parameter.schema, f"$.{name}")
            if fit is None and may_be_left_out(name, tool, self._catalog) and is_word_for_nothing(value, parameter.kinds):
                self._leave_out(name, raw)
                continue
            self._take(name, fit, raw, quoted=value is not raw.text or raw.value is not MISSING)

    def _name_zones(self, tool: Tool) -> None:
        """Replace a city by the name of its time zone, where such a name is asked for."""
        for name, value in self.arguments.items():
            if isinstance(value, str) and wants_zone(parameter_of(self._catalog, tool, name).schema):
                zone = zone_of(value)
                if zone not in ("", value):
                    self.arguments[name] = zone
                    self._repair("time-zone", self._raw[name], name)

    def _leave_out(self, name: str, raw: RawArgument) -> None:
        del self.arguments[name]
        self._drop_issue(name)
        self._repair("empty-argument", raw, name)

    def _empty(self, parameter: Parameter) -> list[Any] | dict[str, Any] | None:
        """Return the empty list or object that an empty element means, in formats that nest elements; else None."""
        row = DIALECTS.get(self._call.dialect)
        if row is None or not row.nests_elements:
            return None
        return [] if parameter.kinds == frozenset({"array"}) else {} if parameter.kinds == frozenset({"object"}) else None

    def _take(self, name: str, fit: Fit | Ambiguous | None, raw: RawArgument, *, quoted: bool) -> None:
        if isinstance(fit, Ambiguous):
            self._drop_issue(name)
            self.issues.append(_several_readings(name, *(_short(json.dumps(each, ensure_ascii=False)) for each in fit.values)))
        elif fit is not None and fit.liberties:
            self._drop_issue(name)
            self.arguments[name] = fit.value
            for code, path in fit.liberties:
                if code == "quoted-value" and path == f"$.{name}" and not quoted:  # the text is not a JSON string
                    if jsonish.strict(raw.text) is not MISSING:
                        continue
                    code = "number-format"
                self.repairs.append(Repair(code=code, span=raw.span, path=path))

    def _drop_issue(self, name: str) -> None:
        self.issues = [issue for issue in self.issues if issue.path != f"$.{name}" or issue.code == "duplicate-argument"]


def _says_none(argument: RawArgument) -> bool:
    """Say whether an argument only states that there is none, by its name or as the value of `parameters`."""
    name, text = (each.casefold().translate(_NO_LETTERS) for each in (argument.name, argument.text))
    return (name in _NONE or name in _WRAPPERS) and (text in _NO_VALUE or text == name)


def _same(one: Any, other: Any) -> bool:
    """Compare two JSON values, distinguishing 1 from true, which are equal in Python."""
    if isinstance(one, (bool, list, dict)) or isinstance(other, bool):
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    return bool(one == other)


def _several_readings(name: str, *readings: str) -> Issue:
    message = f"The value of {name!r} can be read as {' or as '.join(readings)}. Write it as JSON."
    return Issue(code="ambiguous", path=f"$.{name}", message=message, readings=readings)


def _unwrapped(
    raw_call: RawCall, arguments: dict[str, Any], declared: frozenset[str] | None
) -> tuple[dict[str, Any], list[str]] | None:
    """Return the members of a sole argument (`arguments`) of which the tool declares all but itself, and the codes of repairs."""
    if declared is None or len(raw_call.arguments) != 1:
        return None
    name = raw_call.arguments[0].name
    if name not in _WRAPPERS or name in declared:
        return None
    value, liberties = arguments.get(name), []
    if isinstance(value, str) and isinstance(read := jsonish.read(value, kinds={"object"}, complete=True), jsonish.JsonReading):
        value, liberties = read.value, [*read.codes]
    return (value, liberties) if isinstance(value, dict) and value and value.keys() <= declared else None


# A value, its issue if it has one, and the liberties taken to read it.
Read = tuple[Any, Issue | None, tuple[Repair, ...]]


def _members(call: RawCall) -> tuple[Sequence[RawArgument], list[Repair]]:
    """Return a call's arguments and the repairs; broken JSON of a native call is repaired if only one reading is possible."""
    if len(call.arguments) != 1 or call.arguments[0].name or call.arguments[0].value is not MISSING:
        return call.arguments, []
    [whole] = call.arguments
    read, dropped = jsonish.read(whole.text, kinds={"object"}, complete=call.complete), tuple[str, ...]()
    if isinstance(read, jsonish.Unreadable) and call.complete and (tail := _tail_of(whole.text)):
        read = jsonish.read(whole.text[: -len(tail)], kinds={"object"}, complete=True)
        dropped = tuple(code for mark, code in (("<", "stray-tag"), ("]", "json-extra-closer")) if mark in tail)
    if isinstance(read, jsonish.Unreadable) or not isinstance(read.value, dict):
        return call.arguments, []
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in read.value.items()
    }
    members = [RawArgument(name=name, text=text, value=read.value[name], span=whole.span) for name, text in texts.items()]
    return members, [Repair(code=code, span=whole.span, path="$") for code in (*read.codes, *dropped)]


def _tail_of(text: str) -> str:
    """Return what a server left after the object of a native call's arguments: tokens that end a call, or an array's end."""
    tail = _TAIL.search(text[-_TAIL_LENGTH:])
    return tail[0] if tail else ""


def _typed(argument: RawArgument, name: str) -> Read:
    """Return a value that its format has typed; if there is none, the arguments of a native call are not a JSON object."""
    if argument.value is MISSING:
        return None, _malformed("$", "a JSON object with the arguments", argument.text, "it is not one"), ()
    if deeper_than(MAX_DEPTH, argument.value):
        return None, _malformed(f"$.{name}", "JSON", argument.text, f"it is nested deeper than {MAX_DEPTH} levels"), ()
    return argument.value, None, ()


def _json_value(argument: RawArgument, name: str, parameter: Parameter, root: Mapping[str, Any], complete: bool) -> Read:
    """Read JSON, repairing it if it is broken; text that is neither JSON nor an array or object is left to the validator."""
    read = jsonish.read(argument.text, kinds=parameter.kinds, complete=complete)
    path = f"$.{name}"
    if isinstance(read, jsonish.JsonReading):
        return read.value, None, tuple(Repair(code=code, span=argument.span, path=path) for code in read.codes)
    if not argument.text.lstrip().startswith(("[", "{")):
        return argument.text, None, ()
    reason = f"at character {read.position} {read.expected} was expected, {read.got} came"
    return argument.text, _malformed(path, describe(parameter.schema, root), argument.text, reason, read.code), ()


def _malformed(path: str, expected: str, text: str, reason: str, code: str = "malformed-value") -> Issue:
    message = f"Expected JSON for {expected}, got text that cannot be read as JSON: {reason}."
    return Issue(code=code, path=path, expected=expected, got=_short(text), message=message)


def _short(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def as_written(call: InvalidCall, catalog: Catalog) -> ToolCall | None:
    """Return a call that violates its schema, with arguments as written; None if it must never run (unknown, unread, copied)."""
    tool = catalog.get(catalog.meant_by(call.name) or "")
    codes = {issue.code for issue in call.issues}
    if (
        tool is None
        or not call.raw.complete
        or codes & _NEVER_AS_WRITTEN
        or not (call.raw.arguments or codes == {"missing-argument"})
    ):
        return None
    arguments = {}
    for each in call.raw.arguments:
        value = bind_argument(each, tool, catalog) if each.value is MISSING else each.value
        arguments[each.name] = each.text if value is MISSING else value
    return ToolCall(id=call.id, name=tool.name, arguments=arguments, raw=call.raw)


def without_unsaid(raw_call: RawCall, catalog: Catalog, word: str) -> RawCall:
    """Return a call without the optional arguments whose value is the word for "not given"."""
    name = catalog.meant_by(raw_call.name) if word else None
    tool = catalog.get(name) if name else None
    if tool is None:
        return raw_call
    kept = tuple(each for each in raw_call.arguments if not _is_unsaid(each, word, tool, catalog))
    return raw_call if len(kept) == len(raw_call.arguments) else replace(raw_call, arguments=kept)


def _is_unsaid(argument: RawArgument, word: str, tool: Tool, catalog: Catalog) -> bool:
    """Say whether an optional value is the word, or null in a format with types, and the schema does not list the word."""
    value = argument.text if argument.value is MISSING else argument.value
    if not (value is None or (isinstance(value, str) and value.strip().casefold() == word)):
        return False
    return not is_required(argument.name, tool) and not _lists(parameter_of(catalog, tool, argument.name).schema, word, tool)


def _lists(schema: Any, word: str, tool: Tool) -> bool:
    found = resolve(schema, tool.input_schema)
    if not isinstance(found, dict):
        return False
    enum = found.get("enum")
    own = [*(enum if isinstance(enum, list) else ()), found.get("const"), found.get("default")]
    return any(isinstance(value, str) and value.casefold() == word for value in own)
