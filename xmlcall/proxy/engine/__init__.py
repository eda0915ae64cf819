"""How the proxy answers a request: with calls read from text, with native function calling, or as plain text."""
