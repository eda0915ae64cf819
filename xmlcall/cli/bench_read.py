"""`xmlcall bench report`, `compare`, `show` and `rescore`: read runs; no model is needed."""

import argparse
import asyncio
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from .exits import FAILED, OK, complain
from .options import Action, add_repeated, number
from .plain import json_text, plain, visible

if TYPE_CHECKING:
    from rich.console import Console

    from ..bench.funnel import Verdict
    from ..bench.store import RecordedRun

_READ_ONCE = (
    "p is for one look at a whole run. The interval and what B is may be read while runs continue: "
    "a comparison may end as soon as they say more than `go on`."
)


def _gate(text: str) -> tuple[str, float]:
    from ..bench.funnel import METRICS

    metric, _, value = text.partition("=")
    try:
        least = float(value)
    except ValueError:
        least = -1.0
    if metric not in METRICS or not 0 <= least <= 1:
        raise argparse.ArgumentTypeError(f"expected METRIC=VALUE, a metric of {', '.join(METRICS)} and 0 to 1, got {text[:60]!r}")
    return metric, least


def _declare_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON: metrics, ways, failures, cost")
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--html", metavar="FILE", type=Path, help="write one page that needs nothing else")
    gate = "exit with 1 if a metric of any way is below a share from 0 to 1, such as call_correct=0.8"
    add_repeated(parser, "--fail-under", "METRIC=VALUE", gate, type=_gate)


def _report(options: argparse.Namespace) -> int:
    from ..bench.report import judged, reported
    from ..bench.store import read_run

    runs = [read_run(folder) for folder in options.runs]
    verdicts = [asyncio.run(judged(run)) for run in runs]
    found = [reported(*each) for each in zip(runs, verdicts, strict=True)]
    if options.html:
        from ..bench.page import page
        from .ui import PORT

        text = page(list(zip(runs, verdicts, found, strict=True)), live=f"http://127.0.0.1:{PORT}/ui/")
        options.html.write_text(text, encoding="utf-8")
        print(options.html)
    elif options.json:
        print(json_text(found[0] if len(found) == 1 else {"runs": found}))
    else:
        for folder, each in zip(options.runs, found, strict=True):
            (_print_markdown if options.markdown else _print_tables)(folder, each)
    return _gates(options.fail_under, found)


def _gates(gates: Sequence[tuple[str, float]], found: Sequence[Mapping[str, Any]]) -> int:
    """Compare every way with the gates. A metric without cases fails; an incomplete run fails every gate."""
    code = OK
    for each in found if gates else ():
        for way, of_way in each["ways"].items():
            code = max(code, _part(way, of_way["answered"], each["cases"]))
            for metric, least in gates:
                rate = of_way["metrics"].get(metric, {"count": 0, "total": 0})
                share = rate["count"] / rate["total"] if rate["total"] else 0.0
                if share < least:
                    complain(f"{way}: {metric} is {share:.3f} ({rate['count']}/{rate['total']}), expected at least {least:g}")
                    code = FAILED
    return code


def _part(name: str, answered: int, cases: int) -> int:
    """Fail a gate for a run that is not complete: the rest could change every rate."""
    if answered == cases:
        return OK
    complain(f"{visible(name)}: {answered} of {cases} cases were answered; a gate needs all: run the same command again")
    return FAILED


def _title(folder: Path, found: Mapping[str, Any]) -> str:
    about = {"model": "?", "suite": "?", "started": "?", "limit": None, "half": "all", **found["run"]}
    sampled = f", {about['limit']} cases" if about["limit"] else ""
    half = f", half {about['half']}" if about["half"] != "all" else ""
    return visible(f"{folder}: {about['model']} on {about['suite']}{sampled}{half}, {str(about['started'])[:10]}")


def _print_tables(folder: Path, found: Mapping[str, Any]) -> None:
    from rich.text import Text

    from ..bench.report import causes_table_of, named, table_of

    console = _console()
    console.print(Text(_title(folder, found), style="bold"))
    print_table(*table_of(found), bold=(named("call_correct"), named("parsed_as_written")))
    header, rows = causes_table_of(found)
    if rows:
        print_table(header, rows)
    for line in _details(found):
        console.print(Text(line))
    for warning in found["warnings"]:
        console.print(Text(f"note: {warning}", style="yellow"))


def _console() -> "Console":
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 200)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, bold: Collection[str] = ()) -> None:
    """Print a table, with its cells unchanged; `bold` names rows by their first cell."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*header)
    for row in rows:
        table.add_row(*map(Text, row), style="bold" if row[0] in bold else "")
    _console().print(table)


def _details(found: Mapping[str, Any]) -> Iterator[str]:
    for way, of_way in found["ways"].items():
        for title in ("failures", "repairs"):
            if counts := of_way[title]:
                yield f"{way}: {title}: {', '.join(f'{visible(code)} {count}' for code, count in counts.items())}"
        cost = of_way["cost"]
        yield f"{way}: {', '.join(f'{name} {value}' for name, value in cost.items())}"


def _print_markdown(folder: Path, found: Mapping[str, Any]) -> None:
    from ..bench.report import causes_table_of, table_of

    print(f"## {_title(folder, found)}\n")
    for header, rows in (table_of(found), causes_table_of(found)):
        for row in (header, ["---"] * len(header), *rows) if rows else ():
            print(f"| {' | '.join(row)} |")
        print()
    print("\n".join(f"- {line}" for line in [*_details(found), *found["warnings"]]) + "\n")


def _verdicts(text: str) -> tuple[list[Any], int, int, set[str]]:
    """Return the verdicts of `RUN` or `RUN:WAY`, how many cases were answered, how many there are, and the ids to be judged."""
    from ..bench.report import asked, judged
    from ..bench.store import read_run

    folder, _, way = (text, "", "") if Path(text).exists() else text.rpartition(":")
    run = read_run(Path(folder or text))
    ways = run.about["ways"]
    if (way or len(ways) > 1) and way not in ways:
        raise UsageError(f"expected RUN:WAY, such as {run.folder}:{ways[0]}, got {text!r}; the run has {', '.join(ways)}")
    way = way or ways[0]
    return list(asyncio.run(judged(run))[way]), len(run.of_way(way)), len(run.cases), asked(run)


def _declare_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", help="folder of a run, or RUN:WAY if it has several ways")
    parser.add_argument("second", metavar="B", help="the other one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--max-drop",
        metavar="POINTS",
        type=number(float, least=0),
        help="exit with 1 if call_correct or task_correct of B is lower by more percentage points",
    )


def _compare(options: argparse.Namespace) -> int:
    from ..bench.report import compared

    sides = [_verdicts(text) for text in (options.first, options.second)]
    (first, *_, ids), (second, *_, other_ids) = sides
    done = {verdict.case.id for verdict in first} & {verdict.case.id for verdict in second}
    found = compared(first, second, left=len((ids & other_ids) - done))
    if not found["cases"]:
        raise UsageError(f"{options.first} and {options.second} have no case in common")
    if options.json:
        print(json_text(found))
    else:
        _print_comparison(options, found)
    if options.max_drop is None:
        return OK
    names = (options.first, options.second)
    parts = [_part(text, answered, cases) for text, (_, answered, cases, _) in zip(names, sides, strict=True)]
    return max(*parts, _drop(found["metrics"], options.max_drop))


def _print_comparison(options: argparse.Namespace, found: Mapping[str, Any]) -> None:
    print(f"A = {options.first}, B = {options.second}, {found['cases']} cases that both answered\n")
    rows = []
    for metric, pair in found["metrics"].items():
        counts = (f"{pair[name]}" for name in ("first", "second", "total", "only_first", "only_second"))
        points = f"{pair['estimate']:+.1f} [{pair['low']:+.1f} {pair['high']:+.1f}]"
        rows.append([metric, *counts, f"{pair['p']:.4f}", points, pair["decision"]])
    print_table(("", "A", "B", "of", "only A", "only B", "p", "B - A, points", "B is"), rows)
    kept = found["kept"]
    if kept["total"]:
        low, high = (100 * share for share in kept["interval"])
        share = 100 * kept["count"] / kept["total"]
        print(f"\nkept: of the {kept['total']} that A has right B has {kept['count']}, {share:.1f} % [{low:.0f}-{high:.0f}]")
    print(f"\n{_READ_ONCE}")
    for title, ids in (("only A is right", found["only_first_right"]), ("only B is right", found["only_second_right"])):
        print(f"\n{title}: {', '.join(visible(each) for each in ids) or 'none'}")


def _drop(metrics: Mapping[str, Any], most: float) -> int:
    code = OK
    for metric in ("call_correct", "task_correct"):
        pair = metrics.get(metric)
        if pair and pair["total"] and 100 * (pair["first"] - pair["second"]) / pair["total"] > most:
            complain(f"{metric} fell from {pair['first']} to {pair['second']} of {pair['total']}, more than {most:g} points")
            code = FAILED
    return code


def _declare_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument(
        "case", metavar="CASE", help="id of a case or a conversation, or CONVERSATION#NUMBER for one turn of a conversation"
    )
    parser.add_argument("--way", help="only this way of calling")


def _show(options: argparse.Namespace) -> int:
    from ..bench.report import judged
    from ..bench.store import read_run

    run = read_run(options.run)
    ids = [case.id for case in run.cases]
    if options.case not in ids and options.case.rpartition("#")[0] not in ids:
        raise UsageError(f"the run has no case {options.case!r}; it begins with {', '.join(ids[:5])}")
    verdicts = asyncio.run(judged(run))
    for way in [options.way] if options.way else run.about["ways"]:
        if way not in verdicts:
            raise UsageError(f"the run has no way {way!r}; it has {', '.join(verdicts)}")
        found = [each for each in verdicts[way] if options.case in (each.case.id, each.case.id.rpartition("#")[0])]
        if not found and ("#" in options.case or options.way):
            raise UsageError(f"{options.case!r} has no reply with --way {way}; turns are CONVERSATION#NUMBER, from 1 on")
        if not found:
            print(f"===== {visible(options.case)}, {visible(way)}: no reply\n")
        for verdict in found:
            print("\n\n".join(_shown(run, verdict, way)) + "\n")
    return OK


def _shown(run: "RecordedRun", verdict: "Verdict", way: str) -> Iterator[str]:
    """Yield the prompt, each reply raw and as it is read, what is expected, and the verdict."""
    from ..bench.as_turns import turn_of_row
    from ..bench.failures import expected_of
    from .log import reply_in_markdown

    turn = turn_of_row(run, verdict.case, verdict.row, way)
    yield f"===== {visible(verdict.case.id)}, {way}"
    for message in turn.replies[0].prompt if turn.replies else ():
        yield f"--- {message.role}\n{plain(message.content)}"
    for reply in turn.replies:
        raw = reply.raw or "\n".join(f"{call.name} {call.text}" for call in reply.calls)  # a server's own calls are no text
        yield f"--- raw reply {reply.number}\n{plain(raw)}"
        yield from reply_in_markdown(reply)
    if "outcome" in verdict.row:
        yield f"--- answer ({visible(turn.outcome)})\n{plain(turn.answer)}"
    expected = expected_of(verdict.case)
    yield "\n".join(["--- expected", *filter(None, [plain(expected["text"]), expected["note"]])])
    reached = ", ".join(sorted(verdict.reached)) or "nothing"
    yield f"reached: {reached}\nverdict: {visible(verdict.failure or 'right')}{_causes(verdict)}"


def _declare_rescore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--on",
        choices=("ray",),
        help="judge several runs at once: on all cores, or on the cluster that RAY_ADDRESS names (needs xmlcall[ray])",
    )


def _rescore(options: argparse.Namespace) -> int:
    from ..bench.report import changed_scores, keep_scores

    several, rows, out = len(options.runs) > 1, [], sys.stdout
    for folder, scores in (_rescored_on_ray if options.on else _rescored_here)(options):
        found = changed_scores(folder, scores)
        keep_scores(folder, scores)
        if options.json:
            rows += [{"run": str(folder), **change} for change in found] if several else found
            continue
        for change in found:
            before, now = (change[name]["failure"] or "right" for name in ("before", "now"))
            print(f"{change['way']} {visible(change['case'])}: {before} -> {now}", file=out)
        count = sum(map(len, scores.values()))
        print(f"{visible(str(folder))}: " * several + f"{count} replies judged again, {len(found)} changed", file=out)
    if options.json:
        print(json_text(rows))
    return OK


def _rescored_here(options: argparse.Namespace) -> Iterator[tuple[Path, Any]]:
    from ..bench.report import judged, scores_of
    from ..bench.store import read_run

    for folder in options.runs:
        yield folder, scores_of(asyncio.run(judged(read_run(folder))))


def _rescored_on_ray(options: argparse.Namespace) -> Iterator[tuple[Path, Any]]:
    from ..integrations.ray_rescore import rescored
    from .waiting import RunBar

    with RunBar(len(options.runs), "runs") as bar:
        for found in rescored(options.runs):
            bar.advance(1)
            yield found


def _causes(verdict: Any) -> str:
    from ..bench.failures import causes_of

    try:
        causes = causes_of(verdict)
    except UsageError as error:  # SciPy is not installed
        return f" (no causes: {error})"
    return f" (causes: {', '.join(causes)})" if causes else ""


ACTIONS: Final = {
    "report": Action(
        _report,
        "show the rates of runs, with their failures and costs",
        _declare_report,
        ("run1", "run1 run2 --html report.html", "run1 --json --fail-under call_correct=0.8"),
    ),
    "compare": Action(
        _compare,
        "compare two runs or ways on the cases that both answered",
        _declare_compare,
        ("run1 run2", "run2:xml run2:native", "run1 run2 --max-drop 2"),
    ),
    "show": Action(
        _show,
        "show a case: the prompt, the raw reply, how it was read, what was expected",
        _declare_show,
        ("run1 smoke-en-01", "run2 simple_python_370 --way xml", "run3 en-demo-01#2"),
    ),
    "rescore": Action(
        _rescore,
        "parse and judge the kept replies again; show what changed",
        _declare_rescore,
        ("run1", "run1 --json", "run1 run2 run3 --on ray"),
    ),
}
