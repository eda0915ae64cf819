"""The tools on offer: in names, schemas and words."""
