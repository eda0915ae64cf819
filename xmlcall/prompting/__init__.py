"""What a model is told: the tool prompt, reminders, results and feedback."""
