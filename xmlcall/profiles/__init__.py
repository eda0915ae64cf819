"""How each model is asked for calls: what was measured for it, found again by its fingerprint."""
