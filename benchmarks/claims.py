"""Which recorded answers claim a change that no call made: `python benchmarks/claims.py`

Reads the answers without a call in `results/runs`; prints those that a turn asks for again (`turn/said_so_far.py`), each with how
often it was recorded and whether its request needs a tool. What earlier turns called is not looked at. No model is needed.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xmlcall.bench.case import Case
from xmlcall.bench.store import read_run
from xmlcall.binding.grounds import asks_for_change
from xmlcall.turn.turn_setup import _PERFECT, _QUESTION_OR_TEXT, _may_be_alone, claims_a_deed

RUNS = Path(__file__).parent / "results" / "runs"


def answers(row: dict[str, Any], case: Case) -> Iterator[tuple[str, str, bool]]:
    """Yield the request, the answer and whether a tool is needed, of each reply without a call."""
    if case.turns:
        for turn, said in zip(row["outcome"]["turns"], case.turns, strict=False):
            yield said["say"], "" if turn["calls"] else turn["answer"], bool(said.get("tools"))
    elif "outcome" not in row:
        text = row["rounds"][-1].get("text") or ""
        yield str(case.messages[-1]["content"]), "" if "<invoke" in text else text, case.expects != "no_call"


def main() -> None:
    """Print the answers."""
    count, found = 0, Counter[tuple[str, str, bool]]()
    for folder in sorted(RUNS.iterdir()):
        run = read_run(folder)
        cases = {case.id: case for case in run.cases}
        for row in run.replies:
            for said, answer, is_needed in answers(row, cases[row["case"]]) if row["case"] in cases else ():
                count += 1
                is_due = asks_for_change(said) and not _QUESTION_OR_TEXT.search(said) and _may_be_alone(answer)
                if is_due and _PERFECT.search(answer) and claims_a_deed(answer, ()):
                    found[said, answer, is_needed] += 1
    for (said, answer, is_needed), times in found.most_common():
        print(json.dumps({"times": times, "request": said, "answer": answer, "needs a tool": is_needed}, ensure_ascii=False))
    print(f"{found.total()} of {count} answers")


if __name__ == "__main__":
    main()
