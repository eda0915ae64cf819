"""What is kept on disk of conversations and calls."""
