"""How a request is answered: from text, natively, plainly."""
