"""BFCL's own answers, written as calls, read back and judged by BFCL's rules: `python benchmarks/bfcl_ground_truth.py`.

For each case of the AST categories one accepted value a parameter is taken, the calls are written in the format of the prompt
with the case's tools, parsed, bound and judged. Cases that are not right are printed with the reason: some cannot be answered at
all, some answers contradict the schema of their own tool, and a binding that checks schemas refuses them.
"""

import sys
from collections import Counter

from xmlcall import Catalog, ToolCall, parse
from xmlcall.bench.bfcl import AST_CATEGORIES, read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.data import bfcl_wheel
from xmlcall.bench.judge import judge
from xmlcall.bench.oracle import oracle_calls
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write


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


def main() -> int:
    """Print each case that is not right, and the counts."""
    counts: Counter[str] = Counter()
    for category in AST_CATEGORIES:
        for case in read_cases(bfcl_wheel(), category):
            reason = verdict(case)
            counts[reason.partition(":")[0] or "right"] += 1
            if reason:
                print(case.id, reason, sep="  ")
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
