"""Tool hosts: Python functions and MCP servers."""
