"""How many requests and tokens a key or a model may have in a minute, over all replicas.

What a request may take is taken before it is answered, and put right when it is known. So any number of parallel callers never
have more than the limit; some that would have fitted may be refused while others are being counted.

A minute is a sliding one, by two sums: that of this minute of the clock, and that of the minute before, of which as much counts
as still lies within the last sixty seconds if it came evenly. Sums need no memory for each request, and a store of all replicas
adds to them at once. The clock is that of the machine: replicas whose clocks differ by seconds count a little differently.

Tokens of a prompt are estimated by its bytes. Where an answer's usage is not known (its caller left), what was taken stays taken.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..formats.contract import ApiError
from ..sharing.store import Store, StoreError

__all__ = ["Limit", "Spending", "Taken", "Wanted", "tokens_wanted"]

MINUTE: Final = 60
KEPT_SECONDS: Final = 3.0 * MINUTE
BYTES_A_TOKEN: Final = 4
REPLY_TOKENS: Final = 1024  # that are taken where a request does not say how many it wants
_REPLY_FIELDS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens", "num_predict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What somebody may have in a minute; None is no limit.

    Args:
        requests: questions to a model.
        tokens: of prompts and replies.
    """

    requests: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request asks of one limit.

    Args:
        kind: `requests` or `tokens`.
        who: has the limit, such as `key alice`.
        limit: in a minute.
        amount: of it.
    """

    kind: str
    who: str
    limit: int
    amount: int

    def sum_key(self, minute: int) -> str:
        """Return the name of a minute's sum."""
        return f"{self.kind}:{self.who}:{minute}"


@dataclass(slots=True)
class Taken:
    """What was taken for a request, until its answer says how many tokens it was.

    Args:
        store: of the sums.
        minute: in which it was taken.
        wanted: what was taken.
        tokens: that the answer was, once that is known.
    """

    store: Store
    minute: int
    wanted: list[Wanted] = field(default_factory=list)
    tokens: int | None = None

    async def give_back(self) -> None:
        """Undo it."""
        for each in self.wanted:
            await self.store.add(each.sum_key(self.minute), -each.amount, seconds=KEPT_SECONDS)

    async def settle(self, tokens: int) -> None:
        """Put right how many tokens it was; more than once, if it turns out otherwise.

        Args:
            tokens: of prompt and reply.
        """
        known, self.tokens = self.tokens, tokens
        for each in self.wanted:
            if each.kind == "tokens":
                counted = each.amount if known is None else known
                await self.store.add(each.sum_key(self.minute), tokens - counted, seconds=KEPT_SECONDS)


class Spending:
    """The sums of a proxy.

    Args:
        store: of this process or of all replicas.
        clock: seconds since 1970.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

    async def take(self, limits: Sequence[tuple[str, Limit]], tokens: int) -> Taken | None:
        """Take one request and its tokens from all limits that it counts for.

        Args:
            limits: by whose they are.
            tokens: that the request may take.

        Returns:
            What was taken; None if there is no limit.

        Raises:
            ApiError: 429, it would be more than a limit; 413, it is more than a limit by itself; 503, nobody can count.
        """
        wanted = [each for who, limit in limits for each in _wanted(who, limit, tokens)]
        if not wanted:
            return None
        minute, seconds = divmod(self._clock(), MINUTE)
        taken = Taken(self._store, int(minute))
        try:
            for each in wanted:
                await self._take(each, taken, seconds / MINUTE)
        except StoreError as error:
            message = "the limits of this key or model cannot be counted now: ask again later"
            raise ApiError(message, status=503, kind="server_error", code="limits_unavailable", retry_after=5) from error
        return taken

    async def _take(self, wanted: Wanted, taken: Taken, share: float) -> None:
        if wanted.amount > wanted.limit:
            await taken.give_back()
            raise _too_large(wanted)
        before = await self._store.add(wanted.sum_key(taken.minute - 1), 0, seconds=KEPT_SECONDS)
        total = await self._store.add(wanted.sum_key(taken.minute), wanted.amount, seconds=KEPT_SECONDS)
        taken.wanted.append(wanted)
        if before * (1 - share) + total > wanted.limit:
            await taken.give_back()
            raise _refused(wanted, seconds_until(wanted, before, total - wanted.amount, share))


def _wanted(who: str, limit: Limit, tokens: int) -> list[Wanted]:
    rows = (("requests", limit.requests, 1), ("tokens", limit.tokens, tokens))
    return [Wanted(kind=kind, who=who, limit=most, amount=amount) for kind, most, amount in rows if most is not None]


def seconds_until(wanted: Wanted, before: int, now: int, share: float) -> int:
    """Say in how many seconds there is room for a request, if nobody else comes.

    Args:
        wanted: what it asks for.
        before: sum of the minute before.
        now: sum of this minute.
        share: of this minute that is over, from 0 to 1.
    """
    room = wanted.limit - wanted.amount
    if now <= room:
        needed = 1 - (room - now) / before if before else 0.0  # of this minute
        return max(1, math.ceil((needed - share) * MINUTE))
    return max(1, math.ceil((1 - share + 1 - room / now) * MINUTE))


def tokens_wanted(content: bytes, data: Mapping[str, Any]) -> int:
    """Estimate how many tokens a request may take: its prompt, and as long a reply as it admits.

    Args:
        content: the body.
        data: the same, read.
    """
    options = data.get("options")
    said = [*(data.get(name) for name in _REPLY_FIELDS), *([options.get("num_predict")] if isinstance(options, dict) else [])]
    numbers = [each for each in said if isinstance(each, int) and not isinstance(each, bool) and each > 0]
    return len(content) // BYTES_A_TOKEN + (max(numbers) if numbers else REPLY_TOKENS)


def _refused(wanted: Wanted, seconds: int) -> ApiError:
    message = (
        f"{wanted.who}: more than {wanted.limit:,} {wanted.kind} a minute (this request counts for {wanted.amount:,}): "
        f"ask again in {seconds} s"
    )
    return ApiError(message, status=429, kind="rate_limit_error", code="rate_limit_exceeded", retry_after=seconds)


def _too_large(wanted: Wanted) -> ApiError:
    message = (
        f"{wanted.who}: this request may take {wanted.amount:,} tokens, more than the {wanted.limit:,} of a whole minute: "
        "shorten it, or say a smaller max_tokens"
    )
    return ApiError(message, status=413, code="request_too_large")
