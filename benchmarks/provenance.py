"""How well `xmlcall.provenance` tells said values from made up ones: `python benchmarks/provenance.py`.

Over BFCL's questions that need several calls: of the right values behind the first call, how many are found in the request or the
schema; of values drawn from other questions, which nobody said, how many are found all the same; and how many right calls the
rule of `xmlcall/agent/dependent.py` would hold back. With a number, so many of what goes wrong are printed: `--show 40`.
"""

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xmlcall import Catalog
from xmlcall.bench.bfcl import read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.data import bfcl_wheel
from xmlcall.bench.oracle import oracle_calls
from xmlcall.binding.provenance import SaidIndex, values_in
from xmlcall.tools.parameters import property_schema
from xmlcall.types.calls import Tool

CATEGORIES = ("parallel", "parallel_multiple", "live_parallel", "live_parallel_multiple")
FOREIGN = 5  # values of other questions that are tried for each right one


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A right value, and where it stands."""

    case: Case
    call: int
    tool: Tool
    parameter: str
    value: Any

    @property
    def kind(self) -> str:
        """The type that its parameter declares, with a mark where only some values are allowed."""
        schema = property_schema(self.tool.input_schema, self.parameter)
        declared = schema.get("type", "any") if isinstance(schema, dict) else "any"
        return f"{declared} of {type(self.value).__name__}"


def right_values(case: Case) -> Iterator[Value]:
    """Yield the values of the calls of a perfect model, but true, false and empty ones."""
    tools = {tool.name: tool for tool in reversed(case.tools)}
    for number, (name, arguments) in enumerate(oracle_calls(case)):
        for _, parameter, value in values_in(dict(arguments)):
            if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
                yield Value(case=case, call=number, tool=tools[name], parameter=parameter, value=value)


def index_of(case: Case) -> SaidIndex:
    """Read what was said."""
    said = SaidIndex()
    said.add_messages(case.messages)
    return said


def has_only_some(value: Value) -> bool:
    """Say whether a schema lists the values of a parameter, so that those of others are not even tried."""
    return "enum" in str(property_schema(value.tool.input_schema, value.parameter))
