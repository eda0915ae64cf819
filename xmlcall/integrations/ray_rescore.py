"""`xmlcall bench rescore --on ray`: judge runs again on all cores, with the same verdicts as in one process.

This is a Ray Data map over the folders. Each folder is read and judged as a whole, as without Ray, so a verdict cannot depend on
the node. Every node must see the folders under the same path. The cluster is the one that `RAY_ADDRESS` names, or else this
machine alone: on loopback, without a dashboard and without usage reports.
"""

import asyncio
import contextlib
import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ..bench.report import Scores, judged, scores_of
from ..bench.store import RunError, read_about, read_run
from ..errors import UsageError, XmlcallError
from ..installed import missing_extra

# Ray reads these on import. The second keeps Ray from looking for an address that other machines could reach.
_HERE: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class ClusterError(XmlcallError):
    """Ray cannot run the work."""


def rescored(folders: Sequence[Path]) -> Iterator[tuple[Path, Scores]]:
    """Judge runs again, and yield each folder with the scores of its run."""
    for folder in folders:
        read_about(folder)  # before Ray starts
    ray, data = _imported()
    try:
        with _connected(ray):
            context = data.DataContext.get_current()
            context.execution_options.preserve_order, context.enable_progress_bars = True, False
            items = [{"folder": str(folder.resolve())} for folder in folders]
            rows = data.from_items(items, override_num_blocks=len(items)).map(_judged).iter_rows()
            for folder, row in zip(folders, rows, strict=True):
                if row["error"]:
                    raise RunError(row["error"])
                yield folder, json.loads(row["scores"])
    except ray.exceptions.RayError as error:
        raise ClusterError(f"Ray failed: {error}") from error


def _judged(row: dict[str, str]) -> dict[str, str]:
    """Judge a run, in a Ray process; as texts, because Arrow would unify the types of all rows, and Ray wraps exceptions."""
    try:
        scores = scores_of(asyncio.run(judged(read_run(Path(row["folder"])))))
    except XmlcallError as error:
        return {"scores": "", "error": str(error)}
    return {"scores": json.dumps(scores), "error": ""}


def _imported() -> tuple[Any, Any]:
    if not os.environ.get("RAY_ADDRESS"):
        for name, value in _HERE.items():
            os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about Ray's own use of other packages
            ray, data = importlib.import_module("ray"), importlib.import_module("ray.data")
    except ImportError as error:
        raise UsageError(missing_extra(f"--on ray needs Ray Data ({error})", "ray")) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray, data


@contextlib.contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Connect to Ray, or start it here; its own output goes to standard error."""
    local = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(logging_level="ERROR", log_to_driver=False, **({} if os.environ.get("RAY_ADDRESS") else local))
    except (ConnectionError, RuntimeError, OSError) as error:
        raise ClusterError(f"Ray cannot be started or reached: {error}") from error
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()
