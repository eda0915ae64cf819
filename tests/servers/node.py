"""How to start the MCP servers of package.json, which are written for Node.js."""

from pathlib import Path

from xmlcall.bench.play import node_program

__all__ = ["HERE", "node_server"]

HERE = Path(__file__).resolve().parent


def node_server(name: str, *arguments: str) -> list[str]:
    """Return the argv that starts a server of package.json."""
    script = HERE / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    if not script.exists():
        raise FileNotFoundError(f"{script} does not exist; run: python tests/servers/install_node.py")
    return [node_program(), str(script), *arguments]
