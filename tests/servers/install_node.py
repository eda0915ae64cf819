"""Install the Node.js MCP servers of package.json into node_modules beside it: python tests/servers/install_node.py"""

from pathlib import Path

from xmlcall.bench.play import npm_install

if __name__ == "__main__":
    npm_install(Path(__file__).parent)
