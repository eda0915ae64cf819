"""Grammars of calls: what the rest of a reply may be once a call has begun."""
