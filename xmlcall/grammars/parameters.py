"""Parameters as tags: the opener, a text that stands for a value of the schema, the closer.

What a text stands for is the strict reading of `tools/strict.py`:

| the schema admits | texts |
|---|---|
| listed values | as `write` writes them |
| no string | JSON |
| a string and nothing else | any text without the beginning of a tag, or CDATA; or what a pattern or a length admits |
| a string and something else | both; and each with the mark of its type, where the format has one |
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..dialects import Dialect
from ..dialects.write import filled, marks_all, parameter_parts
from ..tools.catalog import Catalog
from ..tools.parameters import parameter_of
from ..types.tool import Tool
from .branches import ANYTHING, ENUMERATED, Branch, Loosened, branches
from .expressions import (
    ANY,
    EMPTY,
    NOTHING,
    Expression,
    Rules,
    characters,
    choice,
    complement,
    optional,
    repeat,
    sequence,
    without,
)
from .markup import beginnings_of_tags, text_without
from .values import Values, patterned, string_limits

__all__ = ["Parameters"]

_NEWLINES: Final = characters("\n\r")
_ENTITIES: Final = choice("&amp;", "&#60;", "&#62;")
_END: Final = "]]>"


class Parameters:
    """The parameters of one tool.

    Args:
        tool: one of the catalog's.
        catalog: that it is in; its schema is usable.
        row: a wire format with a tag for each parameter.
        values: JSON values of the tool.
        rules: where rules are kept.
        loosened: what is not held is noted there.
    """

    def __init__(self, tool: Tool, catalog: Catalog, row: Dialect, values: Values, rules: Rules, loosened: Loosened) -> None:
        self._tool = tool
        self._catalog = catalog
        self._row = row
        self._values = values
        self._rules = rules
        self._loosened = loosened
        self._pad = EMPTY if row.is_exact else optional("\n")
        self._bounded = complement(characters("<>&" if row.entities else "<&" if row.open_entities else "<"))
        self._plain = self._bounded if row.entities else ANY

    def one(self, name: str, schema: Any) -> Expression:
        """Return one parameter.

        Args:
            name: of the parameter.
            schema: of its value.
        """
        path = f"{self._tool.name}.{name}"
        found = branches(schema, self._tool.input_schema, path, self._loosened)
        listed = [part for kind, each in found if kind == ENUMERATED for part in self._listed(name, each)]
        others = [branch for branch in found if branch[0] != ENUMERATED]
        if parameter_of(self._catalog, self._tool, name).admits_string:
            return choice(*listed, *self._texts(name, others, path))
        json = choice(*(self._values.of_kind(kind, each, path) for kind, each in others))
        return choice(*listed, self._tagged(name, self._opener_of_json, self._pad, json, self._pad))

    @property
    def _opener(self) -> str:
        return self._row.written["parameter_open"]

    @property
    def _opener_of_json(self) -> str:
        return self._row.json_mark.written if self._row.json_mark and marks_all(self._row) else self._opener

    def _tagged(self, name: str, opener: str, *value: Expression) -> Expression:
        return sequence(filled(opener, name), *value, filled(self._row.written["parameter_close"], name))

    def _listed(self, name: str, schema: Mapping[str, Any]) -> Iterator[Expression]:
        for value in self._values.enumerated(schema):
            opener, text, closer = parameter_parts(name, value, self._tool, self._catalog, self._row)
            pad = self._pad if text == text.strip("\r\n") else EMPTY
            yield sequence(opener, pad, text, pad, closer)

    def _texts(self, name: str, found: list[Branch], path: str) -> Iterator[Expression]:
        """Yield a parameter that has room for a string."""
        text = choice(*(self._string(schema, path) for kind, schema in found if kind in ("string", ANYTHING)))
        json = choice(*(self._values.of_kind(kind, schema, path) for kind, schema in found if kind != "string"))
        row = self._row
        yield self._tagged(name, self._opener, text)
        if json == NOTHING:
            return
        yield self._tagged(name, self._opener_of_json, self._pad, json, self._pad)
        for mark, value in ((row.json_mark, json), (row.string_mark, text)):
            if mark is not None:
                yield self._tagged(name, mark.written, value)

    def _string(self, schema: Mapping[str, Any], path: str) -> Expression:
        """Return the texts of a string, with the white space around it that is markup."""
        held = patterned(schema, without(self._bounded, _NEWLINES), path, self._loosened)
        if held is not None:
            return sequence(self._pad, held, self._pad)
        least, most = string_limits(schema, path, self._loosened)
        if (least, most) != (0, None):
            section = self._cdata(repeat(complement(characters("]")), least, most), 1)
            return choice(sequence(self._pad, self._counted(least, most), self._pad), section)
        free = text_without(
            beginnings_of_tags(self._row), self._rules, plain=self._plain, others=_ENTITIES if self._row.entities else NOTHING
        )
        return choice(free, self._cdata(text_without(frozenset({_END}), self._rules), None))

    def _counted(self, least: int, most: int | None) -> Expression:
        """Return texts of some characters, with none at the ends that would be markup."""
        edge = without(self._bounded, _NEWLINES)
        longer = sequence(edge, repeat(self._bounded, max(least - 2, 0), None if most is None else most - 2), edge)
        return choice(
            EMPTY if not least else NOTHING,
            edge if least <= 1 and most != 0 else NOTHING,
            longer if most is None or most >= 2 else NOTHING,
        )

    def _cdata(self, section: Expression, most: int | None) -> Expression:
        """Return CDATA sections, where the format has them; a text with `]]>` needs several."""
        sections = repeat(sequence("<![CDATA[", section, _END), 1, most)
        return NOTHING if self._row.entities else sequence(self._pad, sections, self._pad)
