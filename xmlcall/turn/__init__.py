"""A turn, from the user's message to the answer: decides what happens next, and does no I/O itself."""
