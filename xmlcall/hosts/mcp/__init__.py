"""MCP servers, over the official SDK."""
