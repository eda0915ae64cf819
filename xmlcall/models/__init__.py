"""Known local models, and how they are fetched."""
