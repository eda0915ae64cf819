"""BFCL's own answers, written as calls and read back: `python benchmarks/bfcl_ground_truth.py WHEEL`.

For each expected call of the AST categories the first accepted value of each parameter is taken, the call is written in the
format of the prompt with the case's tools, parsed and bound. Right: one ToolCall of that name whose values are these, where an
integer stands for a number, too. What differs is printed with its reason; some answers contradict their own schema.
"""

import collections
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xmlcall import Catalog, Tool, ToolCall, parse
from xmlcall.bench.bfcl import AST_CATEGORIES, read_cases
from xmlcall.dialects import DIALECTS
from xmlcall.reply import write


def first(alternatives: Any) -> Any:
    """Return the first accepted value; a dict holds a list of them for each of its keys."""
    values = [value for value in alternatives if value != ""]
    return concrete(values[0]) if values else ""


def chosen(values: Mapping[str, Any], tool: Tool | None) -> dict[str, Any]:
    """Return one accepted value a parameter; what is not required is left out if that is named first."""
    required = tool.input_schema.get("required", ()) if tool else ()
    wanted = {name: each for name, each in values.items() if each[:1] != [""] or (name in required and len(each) > 1)}
    return {name: first(each) for name, each in wanted.items()}


def concrete(value: Any) -> Any:
    """Return a value with one alternative for each key of its dicts."""
    if isinstance(value, Mapping):
        return {key: first(below) for key, below in value.items() if isinstance(below, list) and "" not in below[:1]}
    return [concrete(each) for each in value] if isinstance(value, list) else value


def main() -> int:
    """Print the counts, and each case that is not right."""
    counts: collections.Counter[str] = collections.Counter()
    cases = right = 0
    for category in AST_CATEGORIES:
        for case in read_cases(Path(sys.argv[1]), category):
            catalog = Catalog({tool.name: tool for tool in case.tools}.values())
            wanted = [(name, chosen(values, catalog.get(name))) for answer in case.answers for name, values in answer.items()]
            reply = parse(write(wanted, catalog, DIALECTS["function_calls"]), catalog)
            got = [(call.name, call.arguments) if isinstance(call, ToolCall) else call for call in reply.calls]
            cases += 1
            right += got == wanted
            if got != wanted:
                issues = {issue.code for call in reply.calls if not isinstance(call, ToolCall) for issue in call.issues}
                counts[" ".join(sorted(issues)) or "another value"] += 1
                print(case.id, *sorted(issues), str(wanted)[:100], sep=" | ")
    print(f"{right} of {cases} cases right; not right: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
