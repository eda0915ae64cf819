"""Errors for three audiences, and the tables of codes.

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

from typing import Literal, Self

ISSUES: dict[str, str] = {
    "unknown-tool": "No tool of this name was offered.",
    "missing-argument": "A required parameter was not given.",
    "unexpected-argument": "The tool has no parameter of this name.",
    "wrong-type": "The value has another type than the schema asks for.",
    "invalid-value": "The value has the right type but breaks another rule of the schema.",
    "duplicate-argument": "A parameter was given twice with different values.",
    "malformed-value": "The text of a value cannot be read as the JSON that the schema asks for.",
    "ambiguous": "The call can be read in two ways with different arguments, and nothing says which is meant.",
    "truncated-call": "The reply ended before the call did. If it was cut at its limit of tokens, allow more (`max_tokens`).",
    "mentioned-call": "The call is in a sentence, a quotation, an example or a made-up result, which may only mention it. "
    "To have it run, ask for it directly.",
    "unread-call": "The text looks like a call, but cannot be read with certainty, so nothing ran. "
    "If that happens often, `xmlcall probe` finds a format that suits the model.",
    "echo": "The call copies a text of the conversation, or a value of the prompt's example. "
    "To have it run, ask for it in your own words.",
    "not-said": "The conversation and its results lack a value that the call needs. State the value in your request.",
}

FOR_THE_MODEL = frozenset({"ambiguous", "truncated-call", "mentioned-call", "unread-call", "echo", "not-said"})
"""Codes of issues whose message says what the model should write; a person reads the sentence of `ISSUES`."""

REPAIRS: dict[str, str] = {
    "missing-block": "An <invoke> outside <function_calls> was read as a call.",
    "unclosed-block": "The reply ended without the end of its block of calls.",
    "unclosed-call": "A call whose parameters were all closed lacked its </invoke>.",
    "unclosed-parameter": "A parameter lacked its closing tag before the next parameter or the call's end.",
    "wrong-closer": "A parameter was closed by its own name or by a misspelt tag.",
    "stray-tag": "A structural tag without its partner was dropped.",
    "repeated-block": "A second <function_calls> opened inside the first and was dropped.",
    "text-in-block": "Text between the calls of a block was read as text for the person.",
    "code-fence": "A Markdown fence around the calls was dropped.",
    "leaked-call": "The server's own function calling left a call in the text, and it was read there.",
    "call-in-reasoning": "A reply with nothing else ended its reasoning with a call, which was taken as set (`reasoned_calls`).",
    "attribute-style": "A tag carried its name without quotes, in other quotes or among other attributes.",
    "tag-style": "A tag was written in capitals, shortened, or with zero-width characters in it.",
    "parameter-element": "A parameter was written as an element of its own name.",
    "tool-element": "A call in a block was written as an element with the tool's name.",
    "json-body": "The parameters of a call were written as one JSON object.",
    "positional-argument": "A value without its name was given to the parameter that it must be, by the declared order.",
    "bare-string": "A string lacked the marks that the format asks for.",
    "arguments-wrapper": "All arguments were written as one parameter that the tool does not have.",
    "xml-elements": "An array or object was written as XML elements: nested, or one parameter for each item.",
    "tool-name": "A tool's name was spelled in another way, and only one tool can be meant.",
    "parameter-name": "A parameter's name was spelled in another way, and only one parameter can be meant.",
    "repeated-argument": "A parameter was given again with the same value.",
    "empty-argument": "An optional parameter was given without a value, as null or by a word for nothing, and was left out.",
    "placeholder-argument": "A tool without parameters was given one that only says that there is none, and it was left out.",
    "number-format": "A number was written with separators, a plus sign, or as a fraction that is an integer.",
    "quoted-value": "A number was written in quotes.",
    "boolean-word": "True, yes, on, False, no or off was read as a boolean.",
    "null-word": "None, nil or an empty value was read as null.",
    "enum-spelling": "One of the accepted values was written in other case, quotes or white space.",
    "time-zone": "A city was read as the IANA name of its time zone.",
    "to-string": "A number or boolean was given where a string was asked for.",
    "single-item": "A single value was read as a list of one.",
    "comma-list": "A list was written with commas, without brackets.",
    "line-list": "A list was written as one item a line.",
    "repeated-call": "A call that repeats an earlier one of the reply was left out.",
    "own-words": "A line of the prompt that the model repeated was left out.",
    "results-frame": "Results were repeated in their frame, and the frame was dropped.",
    "byte-order-mark": "A byte order mark before the reply was dropped.",
    "json-single-quotes": "A string or key was in single quotes.",
    "json-curly-quotes": "A string or key was in curly quotes.",
    "json-inner-quote": "A quote inside a string was not escaped.",
    "json-control-character": "A string held a line end, tab or other control character that was not escaped.",
    "json-invalid-escape": "A backslash that starts no JSON escape was kept as a backslash.",
    "json-escaped-apostrophe": "An apostrophe was escaped, which JSON does not know; the backslash was dropped.",
    "json-python-literal": "None, True or False was read as null, true or false.",
    "json-tuple": "A Python tuple was read as an array.",
    "json-trailing-comma": "A comma before a closing bracket was dropped.",
    "json-equals-sign": "An equals sign was between a key and its value.",
    "json-missing-comma": "A comma between two members or two objects was missing.",
    "json-unquoted-key": "A key was not in quotes.",
    "json-comment": "A comment was dropped.",
    "json-missing-closer": "A closing bracket was missing at the end.",
    "json-extra-closer": "A closing bracket at the end was one too many.",
    "json-double-encoding": "A string that holds JSON was read as that JSON.",
    "json-byte-order-mark": "A byte order mark was dropped.",
    "json-white-space": "White space that JSON does not know was dropped.",
    "json-code-fence": "A Markdown fence around the value was dropped.",
}


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
