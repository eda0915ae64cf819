"""Retrieval over a folder of documents, offline: xmlcall chat --mcp 'python examples/mcp/docs_server.py examples/mcp/pages'

The documents are resources (docs://NAME), too, for clients that read them whole.
"""

import sys
from pathlib import Path

from mcp.server import MCPServer
from text_index import TextIndex

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
PARAGRAPH = "\n\n"

server = MCPServer("docs")
index = TextIndex()


def documents() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.md"))}


@server.tool()
def index_docs() -> str:
    """Read the documents of the folder again. This is only needed after they changed."""
    global index
    index = TextIndex()
    for name, path in documents().items():
        for paragraph in path.read_text(encoding="utf-8").split(PARAGRAPH):
            index.add(name, paragraph)
    return f"{len(documents())} documents: {', '.join(documents())}"


@server.tool()
def retrieve_docs(query: str, count: int = 3) -> str:
    """Find the paragraphs of the documents that tell most about a question.

    Args:
        query: the question, or words of it
        count: how many paragraphs
    """
    found = index.search(query, count)
    return PARAGRAPH.join(f"[{name}] {text}" for name, text in found) or "Nothing was found."


@server.resource("docs://index")
def list_documents() -> str:
    """List the names of all documents."""
    return "\n".join(documents())


@server.resource("docs://{name}")
def read_document(name: str) -> str:
    """Read a document."""
    known = documents()
    if name not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got {name}")
    return known[name].read_text(encoding="utf-8")


if __name__ == "__main__":
    index_docs()
    server.run()
