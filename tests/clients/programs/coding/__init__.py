"""What the programs of coding agents have in common: a folder with a task, and how an agent is run in it, with the settings of
`xmlcall launch`.

PROGRAM URL asks the two questions of `make clients`; PROGRAM URL FOLDER QUESTION asks one of your own in a folder of yours.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import ModuleType
from typing import IO

__all__ = ["launch", "launch_clients", "main"]

TABLE = Path(__file__).resolve().parents[4] / "xmlcall" / "cli" / "launch_clients.py"

QUESTIONS = {"agent": "Read number.txt and say the number. What is 1234 times 5678?", "error": "This is too long."}
LAST_LINES = 5
SECONDS = 400  # for each of the two questions, so that both fit into the time that run.py gives
OWN_SECONDS = 7200  # for one of your own


def main(ask: Callable[[str, Path, str], str]) -> None:
    """Ask what the command line says.

    Args:
        ask: the agent; takes the proxy's address, a folder and a question, and returns what the agent prints.
    """
    url, *own = sys.argv[1:]
    if own:
        print(ask(url, Path(own[0]).resolve(), own[1]))
        return
    for way, question in QUESTIONS.items():
        with TemporaryDirectory(dir=Path.home()) as folder:
            subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
            (Path(folder) / "number.txt").write_text("7006652\n")
            print(f"{way}: {ask(url, Path(folder), question)}", flush=True)


def launch_clients() -> ModuleType:
    """Load the table of clients; the package itself is not in the environment of a client."""
    spec = importlib.util.spec_from_file_location("launch_clients", TABLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["launch_clients"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launch(
    name: str,
    url: str,
    folder: Path,
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    model: str = "local",
) -> str:
    """Run an agent as `xmlcall launch` does, and return what it prints."""
    table = launch_clients()
    client = table.CLIENTS[name]
    with TemporaryDirectory() as own:
        settings = client.settings(table.ProxyAddress(url=url.removesuffix("/v1"), model=model, folder=Path(own)))
        for path, text in settings.files.items():
            Path(own, path).write_text(text)
        if settings.before:
            run([client.programs[0], *settings.before], folder)
        return run([client.programs[0], *settings.arguments, *arguments], folder, {**settings.env, **(variables or {})})


def run(argv: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run an agent's program and return what it prints, or the last lines of its errors if it prints nothing.

    Files take what it writes: of a pipe the end comes only when helpers have ended that the agent leaves behind.
    """
    seconds = OWN_SECONDS if sys.argv[2:] else SECONDS
    environment = os.environ | {"PWD": str(folder)} | dict(variables or {})
    with TemporaryFile("w+") as answer, TemporaryFile("w+") as errors:
        with subprocess.Popen(
            argv, cwd=folder, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=answer, stderr=errors
        ) as child:
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                return f"{argv[0]} was not done after {seconds} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        return _read(answer) or "\n".join(_read(errors).splitlines()[-LAST_LINES:])


def _read(written: IO[str]) -> str:
    written.seek(0)
    return written.read().strip()
