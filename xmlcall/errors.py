"""Errors for three audiences. The codes of the first two are in `codes.json`.

* The model's mistakes are values: an `Issue` with a code of `ISSUES`, inside an `InvalidCall`. They go back to the model.
* The parser's and the binding's tolerances are values: a `Repair` with a code of `REPAIRS`. They go into the reply.
* Everything else raises, under `XmlcallError`:

      XmlcallError
      +- UsageError(ValueError)        the caller's mistake: wrong argument, file, model name, schema
      +- BackendError                  the model server's: .backend
      |  +- BackendUnavailable         no connection, time-out, not started
      |  +- BackendStatusError         .status_code .body (its first 500 characters) .retry_after
      |  |  +- ContextOverflow         the prompt is longer than the model's context
      |  |  +- OutputRejected          the server could not read what its model wrote: .output
      |  +- BackendProtocolError       broken stream or JSON
      +- ToolHostError                 the tool server's: .host
         +- ToolHostUnavailable        not started, died, time-out
         +- ToolHostProtocolError      JSON-RPC error or an answer outside the protocol: .code

A message states what was expected, what arrived, where, and what to do.
"""

import json
from pathlib import Path
from typing import Final, Literal, Self

# As JSON, which takes much less time to read than TOML: everything imports this module.
_CODES: Final = json.loads(Path(__file__).with_name("codes.json").read_text("utf-8"))
ISSUES: Final[dict[str, str]] = _CODES["issues"]
REPAIRS: Final[dict[str, str]] = _CODES["repairs"]

FOR_THE_MODEL = frozenset({"ambiguous", "truncated-call", "mentioned-call", "unread-call", "echo", "not-said"})
"""Codes of issues whose message says what the model should write; a person reads the sentence of `ISSUES`."""

FailureReason = Literal["not_run", "timeout", "unknown", "unreadable", "too_large", "error"]
"""Why a tool server gave no result: the tool did not run; no answer arrived in time; the server failed meanwhile, so the tool
may or may not have run; the answer could not be read; it was too large; the server answered with an error."""


class XmlcallError(Exception):
    """Base of everything that xmlcall raises on purpose."""


class UsageError(XmlcallError, ValueError):
    """The caller asked for something that cannot be done as asked."""


class BackendError(XmlcallError):
    """A model server failed.

    Args:
        message: what was expected, what arrived, what to do.
        backend: which server, as a name or an address.
    """

    def __init__(self, message: str, *, backend: str = "") -> None:
        super().__init__(message)
        self.backend = backend


class BackendUnavailable(BackendError):
    """The model server could not be reached or did not answer in time."""


class BackendStatusError(BackendError):
    """The model server answered with an error: its HTTP status (200 for an error inside a stream), and what it said.

    `retry_after` is in seconds; None if the server did not say when to try again.
    """

    def __init__(
        self, message: str, *, backend: str = "", status_code: int, body: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, backend=backend)
        self.status_code = status_code
        self.body = body[:500]
        self.retry_after = retry_after


class ContextOverflow(BackendStatusError):
    """The prompt does not fit into the model's context.

    Both numbers of tokens are None if unknown; `advice` says how to make the context larger, as a clause.
    """

    def __init__(
        self,
        message: str,
        *,
        backend: str = "",
        status_code: int,
        body: str = "",
        prompt_tokens: int | None = None,
        context_length: int | None = None,
        advice: str = "give the model a larger context",
    ) -> None:
        super().__init__(message, backend=backend, status_code=status_code, body=body)
        self.prompt_tokens, self.context_length, self.advice = prompt_tokens, context_length, advice

    def said_as(self, message: str, *, context_length: int | None = None) -> Self:
        """Return the same error with another message, and the length of the context if it is known by now."""
        return type(self)(
            message,
            backend=self.backend,
            status_code=self.status_code,
            body=self.body,
            prompt_tokens=self.prompt_tokens,
            context_length=context_length or self.context_length,
            advice=self.advice,
        )


class OutputRejected(BackendStatusError):
    """The model server could not read what its model wrote, such as a call that is not as the model's template says.

    `output` is that, from where the server could not read on; "" if the answer does not hold it.
    """

    def __init__(self, message: str, *, backend: str = "", status_code: int, body: str = "", output: str = "") -> None:
        super().__init__(message, backend=backend, status_code=status_code, body=body)
        self.output = output


class BackendProtocolError(BackendError):
    """The model server sent something that is not its own wire format."""


class ToolHostError(XmlcallError):
    """A tool server failed (a tool that reports an error itself is a `ToolResult`, not this).

    Args:
        message: what was expected, what arrived, what to do; for a person only, because it can quote what the server printed.
        host: the server's name.
        reason: what a model may learn of the failure; it sees neither addresses nor what a server prints.
        said: the server's own message in a JSON-RPC error, with the reason `error`; untrusted, as results are.
    """

    def __init__(self, message: str, *, host: str = "", reason: FailureReason = "unknown", said: str = "") -> None:
        super().__init__(message)
        self.host, self.reason, self.said = host, reason, said


class ToolHostUnavailable(ToolHostError):
    """The tool server did not start, died, or did not answer in time."""


class ToolHostProtocolError(ToolHostError):
    """The tool server answered with a JSON-RPC error, whose code is here, or outside the protocol."""

    def __init__(
        self, message: str, *, host: str = "", code: int | None = None, reason: FailureReason = "unreadable", said: str = ""
    ) -> None:
        super().__init__(message, host=host, reason=reason, said=said)
        self.code = code
