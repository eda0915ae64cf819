"""A turn, from a person's message to the answer: what is done next and what that means, without any I/O."""
