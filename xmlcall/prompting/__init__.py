"""Texts that a model receives: the tool prompt, reminders, results and feedback."""
