"""The offered tools: their names, schemas and descriptions."""
