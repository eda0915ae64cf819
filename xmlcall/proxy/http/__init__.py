"""HTTP: paths, who may ask, how an answer is sent."""
