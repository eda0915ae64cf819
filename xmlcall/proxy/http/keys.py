"""Who calls: the keys of callers, and what each may see.

A key is kept only as a hash under a secret of this process, from the moment that it is read from the configuration. What a
caller sends is hashed in the same way and looked up, then compared in constant time: nobody who does not know the secret can
choose what is looked up, so how long that takes tells nothing of a key. Names of keys are for logs and figures; keys never are.

Cost: one hash of the sent key per request, however many keys there are.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ...errors import UsageError

__all__ = ["EVERYBODY", "Caller", "Keys"]

_SECRET: Final = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What a key allows; nothing in it is secret.

    Args:
        name: of the key, for logs and figures; "" where no key is asked for.
        models: names of models, or globs over them.
        requests_per_minute: None for any number.
        tokens_per_minute: of prompts and replies together; None for any number.
        reply_tokens: what a reply is taken for until it is counted, where the request does not bound it; None for all that fits.
    """

    name: str = ""
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    reply_tokens: int | None = None

    def sees(self, model: str) -> bool:
        """Say whether a model is there for this caller."""
        return any(fnmatchcase(model, glob) for glob in self.models)


EVERYBODY: Final = Caller()


class Keys:
    """The keys that are let in.

    Args:
        callers: by their keys.

    Raises:
        UsageError: two have the same key, or one has none; says their names.
    """

    def __init__(self, callers: Iterable[tuple[str, Caller]] = ()) -> None:
        self._callers: dict[bytes, Caller] = {}
        for key, caller in callers:
            if not key.strip():
                raise UsageError(f"expected a key for {caller.name!r}, got none")
            there = self._callers.setdefault(_hashed(os.fsencode(key.strip())), caller)
            if there is not caller:
                raise UsageError(f"expected another key for each name, got the same one for {there.name!r} and {caller.name!r}")

    def __bool__(self) -> bool:
        return bool(self._callers)

    def __repr__(self) -> str:
        return f"Keys of {', '.join(repr(caller.name) for caller in self._callers.values()) or 'nobody'}"

    def find(self, headers: Mapping[str, str]) -> Caller | None:
        """Return whose key a request carries, as `x-api-key` or as a bearer token; None if it carries none that is known.

        Args:
            headers: of the request, names in small letters.
        """
        sent = (headers.get("x-api-key", ""), headers.get("authorization", "").partition(" ")[2])  # some clients send both
        found = [self._find(each.strip(" ").encode("latin-1")) for each in sent]
        return found[0] or found[1]

    def _find(self, key: bytes) -> Caller | None:
        sent = _hashed(key)
        known = next((each for each in (sent,) if each in self._callers), bytes(len(sent)))
        return self._callers.get(sent) if hmac.compare_digest(known, sent) else None


def _hashed(key: bytes) -> bytes:
    return hashlib.blake2b(key, key=_SECRET, digest_size=32).digest()
