"""Tools of your own, as an MCP server: xmlcall chat --mcp examples/my_server.py"""

from mcp.server import MCPServer

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def add_note(text: str) -> str:
    """Write a note down."""
    notes.append(text)
    return f"Note {len(notes)} is written."


@server.tool()
def list_notes() -> list[str]:
    """List all notes."""
    return notes


if __name__ == "__main__":
    server.run()
