"""HTTP: the paths, access control, and how an answer is sent."""
