"""By what a model is known again, on whatever machine and under whatever name: what a profile is found by.

Three kinds, since servers tell different things. A **file** is known by its size and by pieces of it, taken evenly from its
head to its end: metadata, template and weights are in them, and a megabyte is read instead of gigabytes. **llama.cpp** tells
the name of the file and the chat template; **Ollama** the digest of the model's manifest, which covers weights, template and
parameters. Of any other server there is only the name that it gives the model.

A fingerprint is `KIND:HEX`. It tells models apart by mistake or by chance, not by malice: what is found by it only chooses how
a model is asked.
"""

import hashlib
from pathlib import Path
from typing import Final

__all__ = ["of_digest", "of_file", "of_name", "of_template"]

PIECES: Final = 16
PIECE_BYTES: Final = 65_536
LENGTH: Final = 16  # hexadecimal digits


def of_file(path: Path) -> str:
    """Return the fingerprint of a model's file."""
    size = path.stat().st_size
    last = max(size - PIECE_BYTES, 0)
    hashed = hashlib.sha256(f"{size}\n".encode())
    with path.open("rb") as file:
        for number in range(PIECES):
            file.seek(last * number // (PIECES - 1))
            hashed.update(file.read(PIECE_BYTES))
    return f"gguf:{hashed.hexdigest()[:LENGTH]}"


def of_template(file: str, template: str) -> str:
    """Return the fingerprint of a model that llama.cpp serves."""
    return f"llama.cpp:{_hashed(file, template)}"


def of_digest(digest: str) -> str:
    """Return the fingerprint of a model of Ollama's."""
    return f"ollama:{digest.removeprefix('sha256:')[:LENGTH].lower()}"


def of_name(name: str) -> str:
    """Return the fingerprint of a model of which only the name is known."""
    return f"model:{_hashed(name)}"


def _hashed(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]
