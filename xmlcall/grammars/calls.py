"""The grammar of the calls in a reply, from a catalog and a wire format's row; what is left of it once a call has begun.

A text of the grammar is read by our parser, and binds without an issue: tools and parameters of the catalog, required ones once
each and in the declared order, values that their schemas admit. What a grammar cannot hold of a schema is loosened, and told.

The grammar of the whole block is built once and cut to what may follow the text that stands already (`expressions.after`). After
the calls nothing follows, so a model under the grammar ends its reply there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import regex

from ..dialects import Body, Dialect, element_tags, select, with_tools
from ..dialects.dialect import length_of_tag
from ..dialects.odd_names import odd_tags
from ..dialects.tag_patterns import attributes_of
from ..dialects.write import filled
from ..errors import UsageError
from ..tools.catalog import Catalog, Tools
from ..types.tool import Tool
from .branches import Loosened, branches
from .expressions import NOTHING, Expression, Rules, after, choice, optional, repeat, sequence
from .gbnf import rendered
from .json_schema import calls_schema
from .parameters import Parameters
from .values import SPACE, Values, properties_of

__all__ = ["CallGrammar", "grammar", "loosened"]


class CallGrammar:
    """A grammar of calls, built once for a catalog.

    Args:
        tools: what may be called.
        dialect: the wire format.
        tool: the only one that may be called; "" for any.
        parallel: whether several calls may follow each other.

    Attributes:
        loosened: what a text of the grammar may break all the same, such as `get_weather.days: multipleOf`, and the tools that
            cannot be called in this format.

    Raises:
        UsageError: there is no such tool or format, or none that can be called.
    """

    def __init__(self, tools: Tools, *, dialect: str | Dialect = "function_calls", tool: str = "", parallel: bool = True) -> None:
        self._catalog = Catalog.of(tools)
        self._row = select(dialect)[0]
        if self._row.body not in _EXPRESSIONS:
            raise UsageError(f"expected a format whose values are JSON or text, got {self._row.name!r}: it has no grammar")
        self._rules = Rules()
        self._space = self._rules.define("space", SPACE)
        self._notes = Loosened()
        if tool and tool not in self._catalog:
            raise UsageError(f"expected one of {', '.join(self._catalog.names()) or 'no tools'}, got the tool {tool!r}")
        callable_ones = [self._call(each) for each in self._catalog if each.name == (tool or each.name)]
        self._root = self._calls(choice(*callable_ones), parallel=parallel)
        self.loosened = tuple(self._notes.found)
        if self._root == NOTHING:
            raise UsageError(f"expected a tool that can be called in the format {self._row.name!r}, got none")

    @property
    def expressions(self) -> tuple[Expression, Mapping[str, Expression]]:
        """The whole, and the rules that it refers to."""
        return self._root, self._rules.expressions

    def after(self, begun: str) -> str:
        """Write what may follow a text, as GBNF.

        Args:
            begun: how the calls begin, from their first character on.

        Raises:
            UsageError: no calls begin like that, or the grammar is too large for a model server.
        """
        rest = after(self._root, begun, self._rules.expressions)
        if rest == NOTHING:
            raise UsageError(
                f"expected the beginning of a call of these tools in the format {self._row.name!r}, got {begun!r:.80}"
            )
        return rendered(rest, self._rules.expressions)

    def _calls(self, call: Expression, *, parallel: bool) -> Expression:
        """Return the calls with the wrapper around them, or each with its own."""
        row = self._row
        opener, closer = row.written.get("block_open", ""), row.written.get("block_close", "")
        if row.is_json and not row.one_list:
            one = sequence(opener, call, closer)
            return sequence(one, repeat(sequence("\n", one))) if parallel else one
        between = sequence(", ") if row.one_list else self._space if opener else sequence(row.joint)
        several = sequence(call, repeat(sequence(between, call))) if parallel else call
        if row.one_list:
            return sequence(opener, "[", several, "]", closer)
        return sequence(opener, self._space, several, self._space, closer) if opener else several

    def _call(self, tool: Tool) -> Expression:
        if not self._can_be_called(tool):
            self._notes.note(tool.name, f"it cannot be called in the format {self._row.name}")
            return NOTHING
        values = Values(tool, self._catalog, self._row, self._rules, self._notes)
        return self._rules.define("call", _EXPRESSIONS[self._row.body](self, tool, values))

    def _can_be_called(self, tool: Tool) -> bool:
        is_usable = not isinstance(self._catalog.validator(tool.name), str)
        return is_usable and (self._row.is_json or _carries(self._row, "call_open", tool.name))

    def _as_json(self, tool: Tool, values: Values) -> Expression:
        name, arguments = self._row.keys
        named = sequence(f'{{"{name}": ', values.text(tool.name), f', "{arguments}":')
        return sequence(named, self._space, self._arguments(tool, values), "}")

    def _as_key(self, tool: Tool, values: Values) -> Expression:
        return sequence("{", values.text(tool.name), ":", self._space, self._arguments(tool, values), "}")

    def _as_object(self, tool: Tool, values: Values) -> Expression:
        written = self._row.written
        return sequence(filled(written["call_open"], tool.name), self._arguments(tool, values), written.get("call_close", ""))

    def _arguments(self, tool: Tool, values: Values) -> Expression:
        takes_nothing = not self._catalog.parameters(tool.name) and not tool.input_schema.get("additionalProperties")
        return sequence("{", self._space, "}") if takes_nothing else values.of(tool.input_schema, tool.name)

    def _as_tags(self, tool: Tool, values: Values) -> Expression:
        row = self._row
        if row.json_body:
            body = sequence(row.written["body_open"], self._arguments(tool, values), row.written["parameter_close"], self._space)
        else:
            body = self._in_order(tool, Parameters(tool, self._catalog, row, values, self._rules, self._notes))
        lead = sequence(row.joint) if row.name_after or not row.joint else self._space
        return sequence(filled(row.written["call_open"], tool.name), lead, body, filled(row.written["call_close"], tool.name))

    def _in_order(self, tool: Tool, parameters: Parameters) -> Expression:
        """Return the parameters in the declared order, for each of the schema's alternatives."""
        found = branches(tool.input_schema, tool.input_schema, tool.name, self._notes)
        return choice(*(self._of_object(tool, schema, parameters) for _, schema in found))

    def _of_object(self, tool: Tool, schema: Mapping[str, Any], parameters: Parameters) -> Expression:
        parts = []
        for name, each, is_required in properties_of(schema):
            can_be_given = _carries(self._row, "parameter_open", name)
            if not can_be_given:
                self._notes.note(f"{tool.name}.{name}", f"it cannot be given in the format {self._row.name}")
            one = parameters.one(name, each) if can_be_given else NOTHING
            part = self._rules.define("parameter", sequence(one, self._space))
            parts.append(part if is_required else optional(part))
        return sequence(*parts)


_EXPRESSIONS: Final[Mapping[Body, Callable[[CallGrammar, Tool, Values], Expression]]] = {
    Body.TAGS: CallGrammar._as_tags,
    Body.JSON: CallGrammar._as_json,
    Body.KEYED: CallGrammar._as_key,
    Body.OBJECT: CallGrammar._as_object,
}
"""What a call is in each notation. Values of Python and of Gemma are no JSON: no grammar holds them."""


def _carries(row: Dialect, kind: str, name: str) -> bool:
    """Say whether an opener with a name is read as one of that name."""
    tag = filled(row.written[kind], name)
    if row.tool_elements and kind == "call_open":
        return "call_open" in with_tools(row, [name]).tags
    if kind == "parameter_open" and odd_tags(row, [name]):
        return True
    if row.parameter_elements and kind == "parameter_open":
        return bool(element_tags([name]))
    pattern = row.tags.get(kind)
    if pattern is None:  # the name follows the tag
        return regex.fullmatch(r"[^\W\d][\w.\-]{0,127}", name) is not None
    if before := length_of_tag(row.tags.get("list_close", "(?!)"), tag):  # an element around the name and the value
        tag = tag[before:]
    return length_of_tag(pattern, tag) == len(tag) and attributes_of(tag, row.name_in_tag).get("name") == name


def grammar(
    tools: Tools,
    *,
    target: Literal["gbnf", "json_schema"] = "gbnf",
    dialect: str | Dialect = "function_calls",
    tool: str | None = None,
    begun: str = "",
    parallel: bool = True,
) -> str | dict[str, Any]:
    """Return the grammar of the rest of a reply, once a call has begun.

    Args:
        tools: what may be called.
        target: `gbnf`, for llama.cpp's field `grammar`; or `json_schema`, for servers that constrain a whole reply to JSON.
        dialect: the wire format of the calls; with `json_schema` calls are JSON objects.
        tool: the only one that may be called; None for any.
        begun: how the calls begin, from their first character on; only with `gbnf`.
        parallel: whether several calls may follow each other.

    Returns:
        The text of a GBNF grammar. Or a JSON Schema: of a tool's arguments if one is named, else of the call, or of a list of
        calls. What a text of it may break all the same, `loosened` tells.

    Raises:
        UsageError: no calls begin like that, there is no such tool or format, or the grammar is too large for a model server.
    """
    if target == "gbnf":
        return CallGrammar(tools, dialect=dialect, tool=tool or "", parallel=parallel).after(begun)
    if target != "json_schema":
        raise UsageError(f"target must be 'gbnf' or 'json_schema', got {target!r}")
    if begun:
        raise UsageError("a JSON Schema is of a whole reply: `begun` goes with the target 'gbnf' only")
    catalog = Catalog.of(tools)
    named = catalog.get(tool) if tool else None
    if (tool and named is None) or not len(catalog):
        raise UsageError(f"expected one of {', '.join(catalog.names()) or 'no tools'}, got the tool {tool!r}")
    return dict(named.input_schema) if named else calls_schema(catalog, parallel=parallel)


def loosened(tools: Tools, *, dialect: str | Dialect = "function_calls", tool: str | None = None) -> tuple[str, ...]:
    """Return what the GBNF grammar of these tools does not hold.

    Args:
        tools: what may be called.
        dialect: the wire format of the calls.
        tool: the only one that may be called; None for any.

    Returns:
        Places and keywords, such as `get_weather.days: multipleOf`; tools and parameters that the format cannot carry.

    Raises:
        UsageError: there is no such tool or format, or none that can be called.
    """
    return CallGrammar(tools, dialect=dialect, tool=tool or "").loosened
