"""BFCL's own answers, written as calls, read back and judged by BFCL's rules.

    python benchmarks/bfcl_ground_truth.py [--made-up]

For each case of the AST categories one accepted value a parameter is taken, the calls are written in the format of the prompt
with the case's tools, parsed, bound and judged. Cases that are not right are printed with the reason: some cannot be answered at
all, some answers contradict the schema of their own tool, and a binding that checks schemas refuses them.

Counted, too: the cases of which every accepted value binds as BFCL lists it, in a call as JSON. Some of these values are words
for nothing (`""` for a list), or of another type than the schema says. And the calls of which a value counts as made up
(`binding.grounds`): all of them are right.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xmlcall import Catalog, Tool, ToolCall, bind, parse
from xmlcall.bench.bfcl import AST_CATEGORIES, bfcl_wheel, read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.judge import judge
from xmlcall.bench.subjects import concrete, oracle_calls
from xmlcall.binding.grounds import Said, groundless
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.wire.openai import native_call


def verdict(case: Case) -> str:
    """Return why a case's own answer is not right after its way through text; "" if it is."""
    wanted = oracle_calls(case)
    if error := judge(wanted, case.tools, case.answers, case.category):
        return f"cannot be answered: {error}"
    catalog = Catalog({tool.name: tool for tool in case.tools}.values())
    calls = parse(write(wanted, catalog, DIALECTS["function_calls"]), catalog).calls
    issues = [f"{issue.code} {issue.path}" for call in calls if not isinstance(call, ToolCall) for issue in call.issues]
    if issues:
        return f"contradicts its schema: {', '.join(issues)}"
    return judge(
        [(call.name, call.arguments) for call in calls if isinstance(call, ToolCall)], case.tools, case.answers, case.category
    )


def binds(case: Case) -> bool:
    """Say whether all accepted values of a case bind: the first of each parameter in one call, the second in another, and on."""
    catalog = Catalog({tool.name: tool for tool in reversed(case.tools)}.values())
    calls = [(name, values) for answer in case.answers for name, values in answer.items()]
    return all(
        isinstance(bind(native_call(0, name, json.dumps(arguments)), catalog), ToolCall)
        for name, values in calls
        for arguments in _as_listed(values, catalog.get(name))
    )


def _as_listed(values: Mapping[str, Sequence[Any]], tool: Tool | None) -> Iterator[dict[str, Any]]:
    required = tool.input_schema.get("required", ()) if tool else ()
    for place in range(max((len(listed) for listed in values.values()), default=1)):
        chosen = {name: listed[min(place, len(listed) - 1)] for name, listed in values.items() if listed}
        yield {name: concrete(value) for name, value in chosen.items() if value != "" or name in required}


def made_up(case: Case) -> Iterator[tuple[str, ...]]:
    """Yield for each right call of a case the parameters whose values count as said by nobody."""
    said = Said([str(message["content"]) for message in case.messages])
    tools = {tool.name: tool for tool in reversed(case.tools)}
    for name, arguments in oracle_calls(case):
        if tool := tools.get(name):
            yield groundless(arguments, tool, said)


def main() -> int:
    """Print each case that is not right, and the counts."""
    counts: Counter[str] = Counter()
    bound: Counter[bool] = Counter()
    flagged: Counter[bool] = Counter()
    for category in AST_CATEGORIES:
        for case in read_cases(bfcl_wheel(), category):
            reason = verdict(case)
            bound[binds(case)] += 1
            for names in made_up(case):
                flagged[bool(names)] += 1
                if names and "--made-up" in sys.argv:
                    print(case.id, "made up:", ", ".join(names), sep="  ")
            counts[reason.partition(":")[0] or "right"] += 1
            if reason:
                print(case.id, reason, sep="  ")
    print(dict(counts))
    print(f"every accepted value binds: {bound[True]} of {bound.total()}")
    print(f"right calls with a value that counts as made up: {flagged[True]} of {flagged.total()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
