"""JSON Schema: references, validity, limits of work."""
