"""Immutable values that all other packages exchange: tools, calls, messages, events, completions."""
