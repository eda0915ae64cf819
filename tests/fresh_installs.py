"""Install what was built, each way that the README shows, in fresh environments, and use it.

    python tests/fresh_installs.py dist        # run by `make installs`; needs uv and pipx beside this Python

The wheel, and the unpacked source archive as a checkout, named `.` as the README does. Each installation must start a server and
list its tools, and say how it gets a local model; that command is run as it was said, and must bring llama.cpp.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PYTHON: Final = sys.executable


@dataclass(frozen=True, slots=True)
class Way:
    """Commands, as the README has them; `{it}` is what is installed, `{home}` a folder of this installation alone."""

    install: tuple[str, ...]
    use: str = "xmlcall"


WAYS: Final = {
    "uv tool install": Way(("uv tool install {it}",)),
    "uvx": Way((), "uvx --from {it} xmlcall"),
    "pipx install": Way(("pipx install {it}",)),
    "venv and pip": Way((f"{PYTHON} -m venv {{home}}/venv", "pip install --quiet {it}")),
}


def indexes() -> dict[str, str]:
    """Return the package index of pip's configuration as uv reads it; uv knows no configuration of pip."""
    listed = subprocess.run([PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^\S*?\.index-url=(.+)$", listed, flags=re.MULTILINE)
    return {"UV_DEFAULT_INDEX": ast.literal_eval(found[1])} if found else {}


def environment(home: Path) -> dict[str, str]:
    """Return the variables of an installation that shares nothing with this machine's, pip's configuration excepted."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    folders = {"UV_TOOL_DIR": "uv", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "VIRTUAL_ENV": "venv"}
    folders |= {"XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state", "XMLCALL_MODELS": "models", "UV_CACHE_DIR": "../uv-cache"}
    path = os.pathsep.join([f"{home}/venv/bin", f"{home}/bin", str(Path(PYTHON).parent), kept["PATH"]])
    return kept | indexes() | {name: str(home / folder) for name, folder in folders.items()} | {"PATH": path}


def said(command: Sequence[str], env: Mapping[str, str], folder: Path, *, code: int = 0) -> str:
    """Run a command and return what it said; its exit code must be the expected one."""
    done = subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != code:
        raise SystemExit(f"{shlex.join(command)}: exit code {done.returncode}, expected {code}\n{done.stdout[-3000:]}")
    return done.stdout


def expect(text: str, output: str) -> None:
    if text not in output:
        raise SystemExit(f"expected {text!r} in:\n{output[-3000:]}")


def check(way: Way, it: str, folder: Path, home: Path, version: str) -> str:
    """Install and use it one way; return the command by which it got llama.cpp."""
    env = environment(home)
    for command in way.install:
        said(shlex.split(command.format(it=it, home=home)), env, folder)
    use = shlex.split(way.use.format(it=it))
    expect(version, said([*use, "--version"], env, folder))
    expect("calculator", said([*use, "tools"], env, folder))  # starts the demo server
    broken = home / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00and nothing more")
    ask = ["run", "--model", str(broken), "Hi"]
    hint = said([*use, *ask], env, folder, code=1).partition("install it with: ")[2].strip()
    if hint.startswith("uvx "):
        use = shlex.split(hint)
    else:
        said(shlex.split(hint), env, folder)
    expect("llama.cpp cannot load", said([*use, *ask], env, folder, code=1))
    return hint


def main(dist: str) -> None:
    """Check the one wheel and the one source archive in a folder."""
    [wheel], [archive] = Path(dist).resolve().glob("*.whl"), Path(dist).resolve().glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as made:
        with tarfile.open(archive) as packed:
            packed.extractall(made, filter="data")
        for it, folder in ((str(wheel), Path(made)), (".", Path(made, f"xmlcall-{version}"))):
            for number, (name, way) in enumerate(WAYS.items()):
                home = Path(made, f"{'checkout' if it == '.' else 'wheel'}-{number}")
                home.mkdir()
                hint = check(way, it, folder, home, version)
                print(f"{name} {Path(it).name}: works; with a local model: {hint.replace(str(wheel), wheel.name)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
