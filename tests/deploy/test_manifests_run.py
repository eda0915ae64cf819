"""What the manifests say is what `xmlcall serve` takes: their very arguments and settings, in a process of this machine."""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from cli_harness import SECONDS, environment, lent_server, model_server, run_here
from cli_process import Running, begin
from deploy.contract import ALIVE, DEPLOY, METRICS, READY
from deploy.manifests import containers_of, manifest, options_of
from servers.fake_openai import FakeOpenAI
from servers.run_server import free_port
from serving import CHAT, ENDLESS, TOOL, Serving

pytestmark = pytest.mark.sweep  # as processes of their own, all of them

KEYS = {"api-key": "a-key-of-a-team", "metrics-key": "a-key-of-prometheus"}
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]}


def arguments(deployment: str, **other: str) -> list[str]:
    """Return the arguments of a Deployment, with other values for some; skips what this xmlcall cannot run yet."""
    [container] = [each for each in containers_of(manifest("Deployment", deployment)) if each["name"] == "xmlcall"]
    options = options_of(container)
    if lacking := options.keys() - set(re.findall(r"--[a-z][a-z-]+", run_here("serve", "--help-all").stdout)):
        pytest.skip(f"this xmlcall has no {', '.join(sorted(lacking))}")
    given = {name.replace("_", "-"): value for name, value in other.items()}
    return [f"{name}={given.get(name[2:], value)}" for name, value in options.items()]


def settings(folder: Path, model: str) -> Path:
    """Write the settings of the ConfigMap, with the model and the files of keys of a test."""
    [text] = manifest("ConfigMap", "xmlcall")["data"].values()
    for name, key in KEYS.items():
        (folder / name).write_text(f"{key}\n")
        (folder / name).chmod(0o440)
        text = text.replace(f"/run/secrets/xmlcall/{name}", str(folder / name))
    file = folder / "xmlcall.toml"
    file.write_text(re.sub(r'(?m)^address = ".*"$', f'address = "{model}"', text))
    return file


class Started:
    """A proxy on a port that is known before; `with` waits until it lives, and kills it at the end."""

    def __init__(self, argv: list[str], home: Path, env: dict[str, str] | None = None) -> None:
        self.url = f"http://127.0.0.1:{next(word for word in argv if word.startswith('--port=')).partition('=')[2]}"
        self._told = home / "stderr"
        with self._told.open("w") as told:
            streams = (subprocess.DEVNULL, subprocess.PIPE, told.fileno())
            self.process = begin(["serve", *argv], streams, home=home, env=environment(home, env))

    def __enter__(self) -> "Started":
        assert self.process.stdout is not None
        if not self.process.stdout.readline():  # its address
            self.__exit__()
            raise AssertionError(f"it ended with {self.process.returncode}, and said: {self._told.read_text()}")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def get(self, path: str, key: str = "") -> int:
        return httpx.get(self.url + path, headers=bearer(key), timeout=SECONDS).status_code

    def ask(self, model: str, key: str = "") -> int:
        answer = httpx.post(self.url + CHAT, json={"model": model, **ASKED}, headers=bearer(key), timeout=SECONDS)
        return answer.status_code


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def test_the_deployment_starts_and_its_keys_do_what_they_should(tmp_path: Path) -> None:
    with model_server("No.", "Hello.") as (model, _):
        file = settings(tmp_path, model)
        argv = arguments("xmlcall", host="127.0.0.1", port=str(free_port()), config=str(file))
        with Started(argv, tmp_path) as proxy:
            assert (proxy.get(ALIVE), proxy.get(READY)) == (200, 200)
            assert (proxy.ask("assistant"), proxy.ask("assistant", KEYS["api-key"])) == (401, 200)
            assert proxy.get(METRICS, KEYS["metrics-key"]) == 200
            assert proxy.ask("assistant", KEYS["metrics-key"]) in (401, 403, 404), "Prometheus asks no model"


def test_the_sidecar_starts(tmp_path: Path) -> None:
    with model_server("No.", "Hello.") as (model, _):
        argv = arguments("xmlcall-vllm", host="127.0.0.1", port=str(free_port()), model=model)
        with Started(argv, tmp_path, {"XMLCALL_API_KEY": KEYS["api-key"]}) as proxy:
            assert (proxy.get(ALIVE), proxy.get(READY)) == (200, 200)
            assert (proxy.ask("any"), proxy.ask("any", KEYS["api-key"])) == (401, 200)


def refuses(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as caller:
        return caller.connect_ex((str(parts.hostname), int(parts.port or 0))) != 0


def wait_until(done: Callable[[], bool], process: Running) -> None:
    for _ in range(100):
        if done():
            return
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("it was not so within 5 seconds")


def test_a_stopped_proxy_takes_no_new_caller_while_it_ends_its_answers(tmp_path: Path) -> None:
    """So a pod waits before it is stopped (`preStop`): proxies of a cluster need some seconds to send it nobody any more."""
    with lent_server(FakeOpenAI(steps=ENDLESS).app) as model:
        with Serving("--model", f"{model}/v1", "--ask", "mode=xml", "--grace", "10", home=tmp_path) as proxy:
            body = {"model": "any", "stream": True, **ASKED}
            with httpx.stream("POST", proxy.url + CHAT, json=body, timeout=SECONDS) as response:
                next(response.iter_text())
                assert not refuses(proxy.url)
                proxy.process.send_signal(signal.SIGTERM)
                wait_until(lambda: refuses(proxy.url), proxy.process)
                assert proxy.process.poll() is None, "the answer under way has its time"


def test_the_readme_names_files_that_are_there() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if len(line) > 100] == []
    named = set(re.findall(r"deploy/[\w./-]+", text))
    assert {"deploy/Containerfile", "deploy/compose.yaml", "deploy/kubernetes/base/", "deploy/kubernetes/sidecar.yaml"} <= named
    assert [name for name in named if not (DEPLOY.parent / name.rstrip(".")).exists()] == []
