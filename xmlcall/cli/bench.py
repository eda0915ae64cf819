"""`xmlcall bench`: how well a model calls tools, and at which layer it fails."""

import argparse
from collections.abc import Callable
from pathlib import Path

from . import bench_calibrate, bench_read, bench_run
from .options import number

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Measure how well a model calls tools, and at which layer it fails."
EPILOG = """examples:
  xmlcall bench run --model local --suite smoke --way xml --way native --out run1
  xmlcall bench report run1
  xmlcall bench compare run1:xml run1:native
  xmlcall bench show run1 smoke-en-01
  xmlcall bench calibrate --model local

A run is a folder; the same command takes up a run that was stopped. `xmlcall bench ACTION --help` tells more.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, (declare, _, summary) in _ACTIONS.items():
        examples = "".join(f"\n  xmlcall bench {action} {words}" for words in _EXAMPLES[action])
        description = f"{summary[0].upper()}{summary[1:]}."
        added = actions.add_parser(action, description=description, help=summary, epilog=f"examples:{examples}")
        declare(added)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    return _ACTIONS[options.action][1](options)


def _declare_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON: metrics, ways, failures, cost")
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--html", metavar="FILE", type=Path, help="write one page that needs nothing else")
    parser.add_argument("--no-repairs", dest="repairs", action="store_false", help="count what needs a repair as a failure")
    parser.add_argument(
        "--fail-under",
        metavar="METRIC=VALUE",
        type=bench_read.gate,
        action="append",
        default=[],
        help="exit with 1 if a metric of any way is below a share from 0 to 1, such as call_correct=0.8 (may be repeated)",
    )


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


def _declare_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument(
        "case", metavar="CASE", help="id of a case; of a conversation, or CONVERSATION#NUMBER for one of its turns"
    )
    parser.add_argument("--way", help="only this way of calling")


def _declare_rescore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--on",
        choices=("ray",),
        help="judge several runs at once: on all cores, or on the cluster that RAY_ADDRESS names (needs xmlcall[ray])",
    )


# Action -> its arguments, what runs it, its summary.
_ACTIONS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int], str]] = {
    "run": (bench_run.declare, bench_run.execute, "ask a model the cases of a suite, in one or more ways of calling"),
    "report": (_declare_report, bench_read.report, "tell the rates of runs, with their failures and costs"),
    "compare": (_declare_compare, bench_read.compare, "compare two runs or ways on the cases that both answered"),
    "show": (_declare_show, bench_read.show, "show a case: the prompt, the raw reply, how it was read, what was expected"),
    "rescore": (
        _declare_rescore,
        bench_read.rescore,
        "read and judge the kept replies again; tell what changed",
    ),
    "calibrate": (
        bench_calibrate.declare,
        bench_calibrate.execute,
        "measure below which log-odds of a call a model's questions need no tool, for --call-threshold",
    ),
}

# Action -> what its help shows that can be typed after it.
_EXAMPLES = {
    "run": (
        "--model local --suite smoke --out run1",
        "--model ollama:gemma3:4b --suite bfcl-core --limit 200 --seed 7 --way xml --way native --out run2",
        "--model http://127.0.0.1:8080/v1 --suite wire --feedback 2 --out run3",
        "--model oracle --suite bfcl-mt --limit 20 --out run4",
    ),
    "report": ("run1", "run1 run2 --html report.html", "run1 --json --fail-under call_correct=0.8"),
    "compare": ("run1 run2", "run2:xml run2:native", "run1 run2 --max-drop 2"),
    "show": ("run1 smoke-en-01", "run2 simple_python_370 --way xml", "run3 en-demo-01#2"),
    "rescore": ("run1", "run1 --json", "run1 run2 run3 --on ray"),
    "calibrate": (
        "--model local",
        "--model ollama:gemma3:4b --limit 200 --keep 0.98",
        "--model http://127.0.0.1:8080/v1 --out odds.jsonl",
    ),
}
