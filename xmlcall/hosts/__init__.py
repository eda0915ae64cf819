"""Where tools run: Python functions and MCP servers."""
