"""Identifies a model on any machine and under any name, so that its profile can be found.

There are several kinds, because servers report different things. A **file** is identified by its size and by pieces taken evenly
from beginning to end: they include metadata, template and weights, and only a megabyte is read instead of gigabytes.
**llama.cpp** reports the name of the file and the chat template; **Ollama** reports the digest of the model's manifest, which
covers weights, template and parameters. For any other server, only its name of the model is available.

A fingerprint is `KIND:HEX`. It protects against mix-ups, not against forgery, because it only selects how a model is asked.
"""

import hashlib
from pathlib import Path
from typing import Final

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
    """Return the fingerprint of an Ollama model."""
    return f"ollama:{digest.removeprefix('sha256:')[:LENGTH].lower()}"


def of_name(name: str) -> str:
    """Return the fingerprint of a model known only by name."""
    return f"model:{_hashed(name)}"


def _hashed(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]
