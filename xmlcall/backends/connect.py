"""Turns the model name that a user types into a backend: `connect("local")`, `connect("ollama:gemma3:4b")`.

The table `FORMS`, read from top to bottom, has the accepted forms. A backend is imported only when its form matches, so that this
module is cheap to import; nothing is opened, searched or downloaded before the backend is entered.
"""

import asyncio
import difflib
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from .base import Backend

if TYPE_CHECKING:
    from ..models.sources import Progress, ProgressCallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of `connect` besides the model."""

    context_length: int | None
    api_key: str | None
    progress: "ProgressCallback | None"


def connect(
    model: str, *, context_length: int | None = None, api_key: str | None = None, progress: "ProgressCallback | None" = None
) -> Backend:
    """Make the backend of a model.

    Args:
        model: "local" or the name of a known model (fetched on opening), "path/to.gguf", "ollama:gemma3:4b",
            "http://host:8080/v1" or "http://host:8080/v1#model-name".
        context_length: tokens that prompt and reply share; None takes the backend's default. A server at a URL decides itself.
        api_key: for a server at a URL.
        progress: called at each step of a download.

    Returns:
        An unopened async context manager.

    Raises:
        UsageError: the model matches no form, or an argument does not apply to it.
    """
    options = Options(context_length=context_length, api_key=api_key, progress=progress)
    if context_length is not None and context_length < 1:
        raise UsageError(f"expected a context length of at least 1 token, got {context_length}")
    for form in FORMS:
        if match := form.pattern.fullmatch(model.strip()):
            return form.make(match, options)
    raise _unknown(model)


def _server(match: re.Match[str], options: Options) -> Backend:
    from .openai import OpenAIBackend

    if options.context_length is not None:
        raise UsageError("the context length of a server is set where it is started (llama-server -c N), not here")
    return OpenAIBackend(match["url"], match["model"], api_key=options.api_key)


def _ollama(match: re.Match[str], options: Options) -> Backend:
    from .ollama import OllamaBackend

    _refuse_key(options)
    return OllamaBackend(match["model"], num_ctx=options.context_length)


def _file(match: re.Match[str], options: Options) -> Backend:
    from .embedded import EmbeddedBackend

    _refuse_key(options)
    return EmbeddedBackend(Path(match[0]), context_length=options.context_length)


def _known(match: re.Match[str], options: Options) -> Backend:
    from ..models import known as models

    name = models.DEFAULT_MODEL if match[0] == "local" else match[0]
    if name not in models.KNOWN:
        raise _unknown(name)
    from .embedded import EmbeddedBackend

    _refuse_key(options)

    async def pulled() -> Path:
        return await _pull(name, options.progress)

    return EmbeddedBackend(pulled, context_length=options.context_length, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to name a model."""

    example: str
    pattern: re.Pattern[str]
    make: Callable[[re.Match[str], Options], Backend]


OLLAMA: Final = "ollama"  # without a name: all models of it

FORMS: Final = (
    Form(
        example='"http://host:8080/v1" or "http://host:8080/v1#model"',
        pattern=re.compile(r"(?P<url>https?://[^#]+)(?:#(?P<model>.+))?", re.IGNORECASE),
        make=_server,
    ),
    Form(example='"ollama:gemma3:4b"', pattern=re.compile(r"ollama:(?P<model>.+)"), make=_ollama),
    Form(example='"path/to.gguf"', pattern=re.compile(r".+\.gguf", re.IGNORECASE), make=_file),
    Form(example='"local"', pattern=re.compile(r"[\w.\-]+"), make=_known),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """A model server whose address names no model; `list_models` asks it which models it has."""

    address: str
    list_models: Callable[[], Awaitable[tuple[str, ...]]]

    def address_of(self, model: str) -> str:
        """Return the address of one of its models, as `connect` takes it."""
        return f"{self.address}{':' if self.address == OLLAMA else '#'}{model}"


def server_of(address: str, *, api_key: str | None = None) -> ModelServer | None:
    """Return the server that an address means if it names no model, as "ollama" or "http://host:8080/v1"; None if it does."""
    address = address.strip()
    if address == OLLAMA:
        from .ollama import OllamaBackend

        return ModelServer(address=address, list_models=lambda: OllamaBackend(OLLAMA).list_models())
    if not (match := FORMS[0].pattern.fullmatch(address)) or match["model"]:
        return None
    from .openai import OpenAIBackend

    url = match["url"]
    return ModelServer(address=url, list_models=lambda: OpenAIBackend(url, api_key=api_key).list_models())


async def _pull(name: str, progress: "ProgressCallback | None") -> Path:
    """Download a model in a thread; cancelling the wait ends the download at its next step."""
    from ..models import known as models

    cancelled = threading.Event()

    def report(step: "Progress") -> None:
        if cancelled.is_set():
            raise asyncio.CancelledError
        if progress is not None:
            progress(step)

    try:
        return await asyncio.to_thread(models.pull, name, progress=report)
    finally:
        cancelled.set()


def _refuse_key(options: Options) -> None:
    if options.api_key is not None:
        raise UsageError("an API key is only for a server at a URL (http://host:8080/v1)")


def _unknown(model: str) -> UsageError:
    from ..models import known as models

    forms = ", ".join(form.example for form in FORMS)
    shown = model.rpartition("@")[2][:100]  # the part before may be a password
    return UsageError(f"expected a model as {forms} or {', '.join(models.KNOWN)}, got {shown!r}.{_hint(shown, models.KNOWN)}")


def _hint(model: str, known: Iterable[str]) -> str:
    """Guess what was meant: a server without its scheme, an Ollama model without or with a wrong prefix, a typo."""
    head, _, tail = model.partition(":")
    if model == OLLAMA:
        return " Name one of its models (`ollama list`), as in ollama:gemma3:4b; only `xmlcall serve` takes them all."
    if re.fullmatch(r"[\w.\-]+:\d{2,5}(/.*)?", model):
        near = [f"http://{model}"]
    elif tail and not tail.startswith("//"):
        near = [f"ollama:{tail}" if difflib.get_close_matches(head, ["ollama"]) else f"ollama:{model}"]
    else:
        near = difflib.get_close_matches(model.lower(), ["local", *known], n=2)
    return f" Did you mean {' or '.join(near)}?" if near else ""
