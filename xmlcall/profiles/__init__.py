"""Profiles: the measured settings with which a model is asked for calls, found by the model's fingerprint."""
