"""From the text of a call to arguments that its tool admits."""
