"""API keys: who may call, and which models they may use.

Of a key its SHA-256 is kept, and compared in constant time, so that neither memory nor the time of an answer tells it. Keys are
long and random, or should be: nothing here makes a short one safe.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Key", "digest_of", "key_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A caller's key.

    Args:
        models: names of the only models that it may use; None for all.
    """

    name: str
    digest: bytes = field(repr=False)
    models: frozenset[str] | None = None

    def opens(self, digest: bytes) -> bool:
        """Say whether a key that somebody sent is this one."""
        return hmac.compare_digest(self.digest, digest)

    def may_use(self, model: str) -> bool:
        """Say whether it may use a model."""
        return self.models is None or model in self.models


def digest_of(secret: bytes) -> bytes:
    """Return the SHA-256 of a key."""
    return hashlib.sha256(secret).digest()


def key_of(secret: str, name: str = "", *, models: Iterable[str] | None = None) -> Key:
    """Make a key.

    Args:
        secret: what callers send; bytes that are no UTF-8 stand in it as the operating system has them.
    """
    chosen = None if models is None else frozenset(models)
    return Key(name=name, digest=digest_of(os.fsencode(secret)), models=chosen)
