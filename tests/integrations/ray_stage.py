"""A cluster of Ray on loopback with the proxy as its application: a program that does what it is told, a line of JSON at a time.

A process of its own, since Ray warns and logs a lot, and leaves threads. Two nodes of one CPU each, so that two replicas stand on
two nodes; what they have in common is this machine.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["RayStage", "environment", "ray_stage"]

SECONDS = 60.0
KEY = "key-of-the-test"


def environment(**more: str) -> dict[str, str]:
    """What Ray needs to stay on this machine and to itself."""
    ours = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_RECORD_ACTOR_TASK_LOGGING": "0"}
    ours |= {"RAY_METRICS_EXPORT_INTERVAL_MS": "60000", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    ours |= {
        "XMLCALL_API_KEY": KEY,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }  # 0: loopback is not taken for the address of others
    ours |= {"PYTHONPATH": str(Path(__file__).parents[2] / "benchmarks")}  # replicas of the scripted model import it
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | ours | more


class RayStage:
    """The program, seen from a test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.url: str = self.told()["url"]

    def told(self) -> Any:
        """Read a line that the program wrote."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the cluster ended with {self._process.wait(SECONDS)}")
        return json.loads(line)

    def tell(self, order: str, **arguments: Any) -> Any:
        """Have the program do something; give its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, arguments]) + "\n")
        self._process.stdin.flush()
        return self.told()

    def until(self, replicas: int, state: str = "") -> list[dict[str, Any]]:
        """Wait until so many replicas are there, each in this state if one is named; give them."""
        deadline = time.monotonic() + SECONDS
        while True:
            found: list[dict[str, Any]] = self.tell("replicas")
            if len(found) == replicas and all(state in each["state"] for each in found):
                return found
            assert time.monotonic() < deadline, f"expected {replicas} replicas, got {found}"
            time.sleep(0.3)


@contextlib.contextmanager
def ray_stage(folder: Path, settings: dict[str, Any], **env: str) -> Iterator[RayStage]:
    """Run the program in a session of its own; whatever Ray started is ended with it."""
    command = [sys.executable, "-W", "ignore", __file__, json.dumps(settings)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        open(folder / "ray.log", "wb") as log,
        subprocess.Popen(command, stderr=log, env=environment(**env), start_new_session=True, **pipes) as process,
    ):
        alarm = threading.Timer(4 * SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        alarm.start()
        try:
            yield RayStage(process)
        finally:
            alarm.cancel()
            assert process.stdin is not None
            process.stdin.close()  # the program ends Ray, and then itself
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


# -- the program -------------------------------------------------------------------------------------------------------


def free_port() -> int:
    """Find a port that nobody listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def replicas() -> list[dict[str, Any]]:
    """Give the replicas that Ray's controller knows: pid, node and state."""
    from ray.serve.context import _get_global_client

    client: Any = _get_global_client()
    details = client.get_serve_details()
    rows = details["applications"].get("default", {}).get("deployments", {}).get("xmlcall", {}).get("replicas", ())
    return [{name: row.get(name) for name in ("pid", "node_id", "state")} for row in rows]


def model_on_ray(url: str) -> None:
    """Serve the scripted model on Ray under `/model`, and the proxy for it, by that address, under `/behind`."""
    from ray import serve
    from scripted_upstream import Upstream

    from xmlcall.integrations.ray import app

    deployment = serve.deployment(name="model", ray_actor_options={"num_cpus": 0})
    serve.run(deployment(serve.ingress(lambda: Upstream().app)()).bind(), name="model", route_prefix="/model")
    behind = app(model=f"{url}/model/v1", mode="xml", num_cpus=0)
    serve.run(behind, name="behind", route_prefix="/behind")


def configured(file: str) -> None:
    """Serve the models and keys of a file under `/configured`, on two replicas."""
    from ray import serve

    from xmlcall.integrations.ray import app

    serve.run(app(config=file, num_cpus=0, min_replicas=2), name="configured", route_prefix="/configured")


def obey(order: str, arguments: dict[str, Any]) -> Any:
    """Do one thing."""
    from ray import serve

    if order == "replicas":
        return replicas()
    if order == "delete":
        serve.delete("default", _blocking=False)
    if order == "model":
        model_on_ray(arguments["url"])
    if order == "configured":
        configured(arguments["file"])
    return "done"


def main() -> None:
    """Start the cluster, serve, and obey until standard input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints what its processes say
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    from xmlcall.integrations.ray import app

    node: dict[str, Any] = {
        "num_cpus": 1,
        "object_store_memory": 100 * 2**20,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=node)
    cluster.add_node(**{name: value for name, value in node.items() if name != "include_dashboard"})
    try:
        ray.init(address=cluster.address, namespace="serve", log_to_driver=True, _node_ip_address="127.0.0.1")
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
        serve.run(app(**json.loads(sys.argv[1])))
        print(json.dumps({"url": f"http://127.0.0.1:{port}"}), file=out, flush=True)
        for line in sys.stdin:
            print(json.dumps(obey(*json.loads(line))), file=out, flush=True)
        serve.shutdown()  # type: ignore[no-untyped-call]
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
