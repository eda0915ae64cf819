"""Readers for JSON and similar notations as models write them."""
