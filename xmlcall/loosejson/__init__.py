"""JSON as models write it."""
