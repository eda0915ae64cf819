"""The wire formats that clients speak: requests read, answers written."""
