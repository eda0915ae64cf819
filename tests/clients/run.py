"""Real clients through the proxy: `make clients`, or `make clients MODEL=local` with a real model.

Each program in programs/ is a client, and clients.toml is their table. A client is installed in an environment of its own; it
asks for a product, runs the tool that the model calls, and prints the answer in each way in which it can ask. The model behind
the proxy is scripted unless one is named. Exit code 1 if an answer is wrong that was right when it was last kept.
"""

import argparse
import contextlib
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from clients import recording  # noqa: E402
from clients.environments import BUILD, command, install, variables  # noqa: E402
from clients.scripted import CALL, MultiplyingModel, call_of  # noqa: E402
from clients.table import CLIENTS, Client, keep, kept, page_with_table  # noqa: E402
from servers.run_server import run_server  # noqa: E402

from xmlcall.proxy import create_app  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "reference" / "clients.md"
LOAD_SECONDS: Final = 1800  # a model may have to be fetched
CLIENT_SECONDS: Final = 900  # all ways of a client, with a real model on a slow machine
STOP_SECONDS: Final = 15

Outcomes = Mapping[str, str]
"""What came of each way: "ok", or what went wrong."""


def main() -> int:
    arguments = parser().parse_args()
    chosen = [client for client in CLIENTS if not arguments.only or client.name in arguments.only]
    before, found = kept(), dict[str, Outcomes]()
    print(row("client", "version", "how", "result"))
    for client in chosen:
        if not is_installed(client):
            print(row(client.name, client.version, "", "not installed"), flush=True)
            continue
        found[client.name] = tried(client, arguments.model, is_recorded=arguments.write)
        for way, outcome in found[client.name].items():
            print(row(client.name, client.version, way, outcome), flush=True)
    if arguments.write:
        keep(found)
        PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    right = {(name, way) for name, result in before.items() for way, outcome in result.ways.items() if outcome == "ok"}
    wrong = {(name, way) for name, ways in found.items() for way, outcome in ways.items() if outcome != "ok"}
    return int(bool(wrong & right or (wrong and arguments.model != "scripted")))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Run real clients through the proxy.")
    made.add_argument("--model", default="scripted", help="as for `xmlcall serve --model` (default: %(default)s)")
    names = [client.name for client in CLIENTS]
    made.add_argument("--only", nargs="*", choices=names, metavar="CLIENT", help=f"of {', '.join(names)}; all if none is named")
    made.add_argument("--write", action="store_true", help="keep results, requests, and the table of docs/reference/clients.md")
    return made


def tried(client: Client, model: str, *, is_recorded: bool) -> Outcomes:
    """Run a client that is installed."""
    if model != "scripted":
        with served(model) as url:  # which refuses no prompt of a few words
            return outcomes(replace(client, ways=[way for way in client.ways if way != "error"]), url)
    written = CALL if client.call["name"] == "multiply" else call_of(client.call["name"], client.call["arguments"])
    recorder = recording.Recorder(create_app(MultiplyingModel(written), mode="xml"))
    with run_server(recorder, lifespan="on") as url:
        found = outcomes(client, url)
    if is_recorded:
        recording.write(client.name, recorder.exchanges)
    return found


def is_installed(client: Client) -> bool:
    """Install a client, if that can be done here."""
    try:
        install(client)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{client.name}: {error}", file=sys.stderr)
        return False
    return True


def row(*cells: str) -> str:
    return "{:24} {:12} {:15} {}".format(*cells).rstrip()


@contextlib.contextmanager
def served(model: str) -> Iterator[str]:
    """Serve a real model as a person would; what the server says goes to a file."""
    command = [sys.executable, "-m", "xmlcall", "serve", "--model", model, "--ask", "mode=xml", "--port", "0"]
    BUILD.mkdir(parents=True, exist_ok=True)
    log = BUILD / "serve.log"
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child:
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


def outcomes(client: Client, url: str) -> Outcomes:
    """Run a client."""
    argv, log = [*command(client), url + client.path], BUILD / f"{client.name}.log"
    try:
        done = subprocess.run(
            argv,
            cwd=BUILD / client.name / "home",
            env=variables(client),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(client.ways, f"not done after {CLIENT_SECONDS} s")
    log.write_text(done.stdout + done.stderr)
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
    found = {way: judgement(way, answer) for way, answer in answers.items()}
    return found | dict.fromkeys(missing, "not run") | dict.fromkeys(missing[:1], error)


def judgement(way: str, answer: str) -> str:
    """Say "ok" if the product is in it, whose digits may be grouped, or of an error, if it says what was wrong."""
    expected = r"context|[Pp]rompt is too long" if way == "error" else r"(?<!\d)7[\s,.'_]?006[\s,.'_]?652(?!\d)"
    return "ok" if re.search(expected, answer) else f"wrong: {' '.join(answer.split())[:200]}"


def last_words(stderr: str) -> str:
    """Return the line that names the error."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.\[\]: ]*(Error|Exception)\b", line)]
    return next(iter([*named[-1:], *lines[-1:]]), "no word of why")[:200]


if __name__ == "__main__":
    sys.exit(main())
