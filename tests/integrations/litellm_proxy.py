"""LiteLLM's real proxy as a process on loopback, with a configuration in which models are marked, or not."""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from servers.run_server import free_port

from .install_litellm import ENVIRONMENT, VERSION

__all__ = ["SWITCHES", "deployment", "installed", "litellm_proxy"]

SECONDS: Final = 120.0
SWITCHES: Final = {
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens on loopback, for the tests alone
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",  # it would fetch prices
}


def installed() -> str:
    """Say why the proxy cannot be run; "" if it can."""
    found = sorted(ENVIRONMENT.glob("lib/python*/site-packages/litellm-*.dist-info"))
    if [path.name for path in found] == [f"litellm-{VERSION}.dist-info"] and (ENVIRONMENT / "bin" / "litellm").exists():
        return ""
    return f"LiteLLM {VERSION} is not in build/litellm: python tests/integrations/install_litellm.py"


def deployment(name: str, url: str, model: str = "tiny", **info: Any) -> dict[str, Any]:
    """Describe a model of a server that speaks OpenAI's API."""
    params = {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "none"}
    return {"model_name": name, "litellm_params": params, "model_info": info}


@contextlib.contextmanager
def litellm_proxy(folder: Path, config: Mapping[str, Any] | Path, **env: str) -> Iterator[tuple[str, Path]]:
    """Run the proxy with a configuration; give its address and its log."""
    path, log, port = folder / "config.yaml", folder / "proxy.log", free_port()
    if isinstance(config, Path):
        path = config
    else:
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = [str(ENVIRONMENT / "bin" / "litellm"), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | SWITCHES | env) as process:
        try:
            _await(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}", log
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _await(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health/liveliness", timeout=2):
            return
        time.sleep(0.2)
    raise RuntimeError(f"LiteLLM did not start: {log.read_text(errors='replace')[-2000:]}")
