"""A search with structured results over Streamable HTTP: python examples/mcp/web_search_http.py [PORT]

Then xmlcall chat --mcp http://127.0.0.1:8000/mcp. It searches the pages beside this file instead of the web, so that it runs
offline; put a search API of your own into `web_search`.
"""

import sys
from pathlib import Path

from mcp.server import MCPServer
from pydantic import BaseModel
from text_index import TextIndex

PAGES = Path(__file__).parent / "pages"


class SearchResult(BaseModel):
    """One page that was found."""

    title: str
    url: str
    snippet: str


server = MCPServer("search")
index = TextIndex()
for page in sorted(PAGES.glob("*.md")):
    index.add(page.stem, page.read_text(encoding="utf-8"))


@server.tool()
def web_search(query: str, max_results: int = 3) -> list[SearchResult]:
    """Search the web for pages about something.

    Args:
        query: words to look for
        max_results: at most so many
    """
    found = index.search(query, max_results)
    return [SearchResult(title=title, url=f"https://example.org/{title}", snippet=text[:300]) for title, text in found]


if __name__ == "__main__":
    server.run(transport="streamable-http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
