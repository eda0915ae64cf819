"""A turn of a conversation: generate, read, run, feed back, until no call is left."""
