"""Frozen data that everything else passes around: tools, calls, messages, events, completions."""
