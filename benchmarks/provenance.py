"""How well `xmlcall.provenance` tells said values from made up ones: `python benchmarks/provenance.py [--show 20]`.

Over BFCL's questions that need several calls:

- of the right values after the first call, how many are found in the request or in the schema;
- of values of other questions, whose parameters declare the same type, how many are found although nobody said them. A value
  that equals a right one of the question is not drawn; one that stands in the request for another reason is, and counts as found;
- how many right calls would be held back (`xmlcall/binding/waiting.py`), and how many stand after one that is;
- of recorded replies of models (`benchmarks/results/runs`), whether those with a call that would be held back are right;
- what a conversation of 1 MB costs.
"""

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xmlcall import parse
from xmlcall.bench.bfcl import bfcl_wheel, read_cases
from xmlcall.bench.case import Case, judge_case
from xmlcall.bench.store import read_run
from xmlcall.bench.subjects import oracle_calls
from xmlcall.binding.provenance import SaidIndex, values_in
from xmlcall.binding.waiting import waiting_values
from xmlcall.tools.outline import property_schema
from xmlcall.types.calls import Message, RawCall, Tool, ToolCall

CATEGORIES = ("parallel", "parallel_multiple", "live_parallel", "live_parallel_multiple")
RUNS = Path(__file__).parent / "results" / "runs"
DRAWN = 5  # values of other questions for each right one
SEED = 1

Scalar = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A right value, and where it stands."""

    case: str
    call: int
    tool: Tool
    parameter: str
    value: Scalar

    @property
    def schema(self) -> Mapping[str, object]:
        """What its parameter declares."""
        declared = property_schema(self.tool.input_schema, self.parameter)
        return declared if isinstance(declared, Mapping) else {}

    @property
    def kind(self) -> str:
        """The declared type, and that of the value: items of a list have both."""
        return f"{self.schema.get('type')} of {type(self.value).__name__}"


def right_values(case: Case) -> Iterator[Value]:
    """Yield the values of a perfect model's calls, but true, false and empty ones."""
    tools = {tool.name: tool for tool in reversed(case.tools)}
    for number, (name, arguments) in enumerate(oracle_calls(case)):
        for _, parameter, value in values_in(arguments):
            if isinstance(value, Scalar) and not isinstance(value, bool) and value != "":
                yield Value(case=case.id, call=number, tool=tools[name], parameter=parameter, value=value)


def index_of(case: Case) -> SaidIndex:
    """Read what was said."""
    said = SaidIndex()
    said.add_messages(case.messages)
    return said


def text_of(case: Case) -> str:
    """Return what was said, in lower case."""
    return "\n".join(str(message["content"]) for message in case.messages).casefold()


def same(value: Scalar) -> str | float:
    """Return what equal values share."""
    return value.casefold() if isinstance(value, str) else float(value)


def drawn(value: Value, pool: Sequence[Value], own: set[str | float], chance: random.Random) -> list[Value]:
    """Draw values of other questions; none where the schema lists what is allowed."""
    if "enum" in str(value.schema):
        return []
    return [other for other in chance.choices(pool, k=4 * DRAWN) if same(other.value) not in own][:DRAWN]


def held(case: Case) -> list[tuple[str, tuple[str, ...]]]:
    """Return the right calls that would not run in a reply: one that waits with the paths of its values, and those after it."""
    said, text = index_of(case), text_of(case)
    tools = {tool.name: tool for tool in reversed(case.tools)}
    earlier: list[ToolCall] = []
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, arguments in oracle_calls(case):
        call = ToolCall(id="", name=name, arguments=dict(arguments), raw=RawCall(index=len(earlier), name=name))
        paths = waiting_values(call, tools[name], earlier, lambda: said, lambda: text) if earlier and not found else ()
        if paths or found:
            found.append((f"{case.id}: {name}({call.arguments})", paths))
        earlier.append(call)
    return found


def recorded() -> Iterator[tuple[Case, list[ToolCall]]]:
    """Yield the different recorded replies with several valid calls to single questions of BFCL, in any way of asking."""
    seen: set[tuple[str, str]] = set()
    for run in sorted(RUNS.glob("bfcl-*")):
        opened = read_run(run)
        for reply in opened.replies:
            case, rounds = opened.by_id[reply["case"]], reply.get("rounds") or [{}]
            text = rounds[0].get("text") or ""
            if len(rounds) > 1 or (case.id, text) in seen:
                continue
            seen.add((case.id, text))
            case = _with_each_tool_once(case)
            calls = [call for call in parse(text, case.tools).calls if isinstance(call, ToolCall)]
            if len(calls) > 1:
                yield case, calls


def _with_each_tool_once(case: Case) -> Case:
    return replace(case, tools=tuple({tool.name: tool for tool in reversed(case.tools)}.values()))


def judged() -> Counter[tuple[str, str]]:
    """Count recorded replies by whether they are right, and whether a call of them would be held back."""
    counts: Counter[tuple[str, str]] = Counter()
    for case, calls in recorded():
        is_right = not judge_case(case, [(call.name, call.arguments) for call in calls])
        waits = bool(waiting_in(case, calls))
        counts["right" if is_right else "wrong", "held back" if waits else "run"] += 1
    return counts


def waiting_in(case: Case, calls: Sequence[ToolCall]) -> tuple[str, ...]:
    """Return the paths for which the first call of a reply that has to wait does so; none if all are ready."""
    tools, said, text = {tool.name: tool for tool in case.tools}, index_of(case), text_of(case)
    for at, call in enumerate(calls[1:], start=1):
        if paths := waiting_values(call, tools[call.name], calls[:at], lambda: said, lambda: text):
            return paths
    return ()


def seconds_of_a_megabyte() -> tuple[float, float]:
    """Return what reading 1 MB takes, and finding a value of 100 kB in it."""
    text = "Flight BA123 leaves New York at 2:30 pm on March 5th, 2024 and costs 1,234.50 dollars. " * 12_000
    said = SaidIndex()
    begun = time.perf_counter()
    said.add_messages([Message(role="user", content=text)])
    read = time.perf_counter()
    said.source_of(text[:100_000])
    return read - begun, time.perf_counter() - read


def measure(cases: Sequence[Case]) -> tuple[Counter[str], Counter[str], list[Value], list[Value]]:
    """Count the sources of right values and of drawn ones; with them come the values that are on the wrong side."""
    values = {case.id: list(right_values(case)) for case in cases}
    pools: dict[str, list[Value]] = defaultdict(list)
    for value in (each for of_case in values.values() for each in of_case):
        pools[value.kind].append(value)
    right, foreign, missed, mistaken = Counter[str](), Counter[str](), list[Value](), list[Value]()
    chance = random.Random(SEED)
    for case in cases:
        said, own = index_of(case), {same(value.value) for value in values[case.id]}
        for value in (each for each in values[case.id] if each.call > 0):
            kind = said.source_of(value.value, value.tool, value.parameter).kind
            right[kind] += 1
            missed += [value] if kind == "invented" else []
            for other in drawn(value, pools[value.kind], own, chance):
                kind = said.source_of(other.value, value.tool, value.parameter).kind
                foreign[kind] += 1
                mistaken += [other] if kind != "invented" else []
    return right, foreign, missed, mistaken


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=0, help="so many values that are on the wrong side are printed")
    show = parser.parse_args().show
    cases = [case for category in CATEGORIES for case in read_cases(bfcl_wheel(), category)]
    right, foreign, missed, mistaken = measure(cases)
    waiting = [call for case in cases for call in held(case)]
    calls = [len(oracle_calls(case)) for case in cases]
    later = sum(calls) - len(cases)
    for label, counts in (("right values after the first call", right), ("values of other questions", foreign)):
        total = counts.total()
        print(f"{label}: {total}, found {total - counts['invented']} ({1 - counts['invented'] / total:.2%}) {dict(counts)}")
    first = sum(bool(paths) for _, paths in waiting)
    print(f"right calls: {sum(calls)}, {later} of them after the first; held back: {first} ({first / sum(calls):.2%})")
    print(f"right calls after one that is held back: {len(waiting) - first}")
    print(f"recorded replies with several calls: { ({' and '.join(key): count for key, count in sorted(judged().items())}) }")
    print("1 MB: read in {:.2f} s; a value of 100 kB: found in {:.2f} s".format(*seconds_of_a_megabyte()))
    for value in missed[:show]:
        print(f"not found: {value.case} {value.tool.name}.{value.parameter} = {value.value!r}")
    for text, count in Counter(repr(value.value) for value in mistaken).most_common(show):
        print(f"found although drawn: {text} ({count} times)")
    for call, paths in waiting[:show]:
        print(f"held back: {call} for {', '.join(paths) or 'the one before it'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
