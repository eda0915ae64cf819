"""Knows local models by name, and downloads them."""
