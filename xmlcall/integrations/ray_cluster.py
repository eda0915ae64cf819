"""Ray for a command: the cluster that `RAY_ADDRESS` names, or else one of this machine alone, for as long as the command runs.

A cluster that is started here listens on loopback only, has no dashboard, and sends no usage report.

Ray prints to standard output what its processes have to say, such as that one died. That is the place of what a command gives, so
it goes to standard error while Ray is connected.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Final

from ..errors import UsageError, XmlcallError

__all__ = ["ClusterError", "connected", "cores", "imported", "lost"]

# Ray reads it on import. 0 means what is usual on other systems: no address is looked for by which other machines could come.
_LOOPBACK: Final = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
OBJECT_STORE_BYTES: Final = 200 * 2**20  # blocks are small, and few are under way


class ClusterError(XmlcallError):
    """Ray cannot do what it was given."""


@contextlib.contextmanager
def connected(workers: int | None = None) -> Iterator[None]:
    """Connect to Ray, or start it here.

    Args:
        workers: processes that work at a time; None for one a core. Of a cluster that others started it is not for us to say.

    Raises:
        UsageError: Ray is not installed.
        ClusterError: it cannot be reached or started.
    """
    ray = imported()
    here: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else _here(workers)
    try:
        ray.init(logging_level="ERROR", log_to_driver=False, **here)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise ClusterError(f"Ray cannot be started or reached: {error}") from error
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()


def _here(workers: int | None) -> dict[str, Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return {
        "address": "local",  # else Ray joins one that another program started on this machine
        "num_cpus": workers,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_node_ip_address": "127.0.0.1",
    }


def imported() -> Any:
    """Import Ray.

    Raises:
        UsageError: it is not installed.
    """
    if not os.environ.get("RAY_ADDRESS"):
        os.environ.setdefault(*_LOOPBACK)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own use of other packages
            import ray
    except ImportError as error:
        raise UsageError(f"--on ray needs Ray ({error}): pip install 'xmlcall[ray]'") from error
    return ray


def cores() -> int:
    """Return how many processes the cluster can run at a time."""
    return max(int(imported().cluster_resources().get("CPU", 1)), 1)


def lost(error: Exception) -> bool:
    """Say whether an error tells that a process, or its node, is gone, after Ray itself tried again.

    Args:
        error: of a task or an actor.
    """
    exceptions = imported().exceptions
    gone = (exceptions.WorkerCrashedError, exceptions.RayActorError, exceptions.OutOfMemoryError, exceptions.NodeDiedError)
    return isinstance(error, gone)
