"""Records of conversations and calls on disk."""
