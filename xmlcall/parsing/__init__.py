"""From the text of a reply to calls."""
