"""`xmlcall bench`: how well a model calls tools, and at which layer it fails."""

import argparse
from collections.abc import Callable

from . import bench_read, bench_run

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


# Action -> its arguments, what runs it, its summary.
_ACTIONS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int], str]] = {
    "run": (bench_run.declare_run, bench_run.execute_run, "ask a model the cases of a suite, in one or more ways of calling"),
    "report": (bench_read.declare_report, bench_read.report, "tell the rates of runs, with their failures and costs"),
    "compare": (bench_read.declare_compare, bench_read.compare, "compare two runs or ways on the cases that both answered"),
    "show": (
        bench_read.declare_show,
        bench_read.show,
        "show a case: the prompt, the raw reply, how it was read, what was expected",
    ),
    "rescore": (
        bench_read.declare_rescore,
        bench_read.rescore,
        "read and judge the kept replies again; tell what changed",
    ),
    "calibrate": (
        bench_run.declare_calibrate,
        bench_run.execute_calibrate,
        "measure below which log-odds of a call a model's questions need no tool, for --ask call_threshold",
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
