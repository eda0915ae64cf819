"""Runs conversations with an event loop: generate, parse, approve, run, feed back, until a reply has no calls."""
