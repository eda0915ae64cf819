"""Recognises which product a server is, and reads what it reports about itself in its own endpoints.

Most servers have OpenAI's API, and some imitate others: KoboldCpp and tabbyAPI answer llama.cpp's `/props`, KoboldCpp and SGLang
Ollama's `/api/tags`. So the rows of `_ROWS` are tried in order, and an endpoint that only one product has comes first. All
endpoints are requested at once, because most servers answer most of them with 404.

Answers are untrusted. Only the fields named here are read: SGLang's `/server_info`, for example, contains its API key.

Sources: llama.cpp, tools/server/README.md; Ollama, docs/api.md; vLLM and SGLang, their HTTP entry points; LM Studio, REST API v0
and v1; mlx-lm, mlx_lm/server.py; tabbyAPI and KoboldCpp, their API documents.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from ..errors import BackendError
from ..wire.openai import count, mapping, mappings, text_of

LOOK_SECONDS: Final = 5.0
_SHOWN: Final = 60  # characters of a version or a name
_VERSION: Final = re.compile(r"[\w.+\-]{1,60}")
_TOOLS: Final = re.compile(r"\btools\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A server's answer to a request of one of its own endpoints; without `data` where it has no such endpoint."""

    data: Mapping[str, Any] = field(default_factory=dict)
    server: str = ""  # the header of that name


@runtime_checkable
class Looking(Protocol):
    """A backend whose server can be asked about itself."""

    async def look(self, path: str, body: Mapping[str, Any] | None = None) -> Answered:
        """Request a JSON object from a path beside the API; with `body`, by POST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about itself."""

    # "llama.cpp", "ollama", "vllm", "sglang", "lmstudio", "mlx-lm", "tabbyapi", "koboldcpp", "xmlcall"; "" if unknown.
    kind: str = ""
    name: str = ""  # the product's name, for people
    version: str = ""  # "" if it reports none
    context_length: int | None = None  # tokens of the model's context; None if unknown
    template_has_tools: bool | None = None  # whether the chat template can show tools; None if unknown
    tool_parser: str | None = None  # the name of the parser that reads calls; "" if none is set, None if unknown


async def recognized(backend: object, model: str) -> ServerFacts:
    if not isinstance(backend, Looking):
        return ServerFacts()

    async def look(path: str) -> Answered:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await backend.look(path, {"model": model} if path == _SHOW else None)
        except (BackendError, TimeoutError):  # the request of a reply will report a real failure
            return Answered()

    answers = dict(zip(_PATHS, await asyncio.gather(*map(look, _PATHS)), strict=True))
    return next((facts for read in _ROWS if (facts := read(answers, model))), ServerFacts())


Answers = Mapping[str, Answered]

_SERVICE: Final = "/.well-known/serviceinfo"
_KOBOLD: Final = "/api/extra/version"
_KOBOLD_CONTEXT: Final = "/api/extra/true_max_context_length"
_SGLANG: Final = "/server_info"
_STUDIO: Final = "/api/v1/models"
_OLD_STUDIO: Final = "/api/v0/models"
_OLLAMA: Final = "/api/version"
_LOADED: Final = "/api/ps"
_SHOW: Final = "/api/show"
_PROPS: Final = "/props"
_TABBY: Final = "/v1/model"
_MODELS: Final = "/v1/models"
_VLLM: Final = "/version"
_HEALTH: Final = "/health"
_PATHS: Final = (
    *(_SERVICE, _KOBOLD, _KOBOLD_CONTEXT, _SGLANG, _STUDIO, _OLD_STUDIO, _OLLAMA, _LOADED, _SHOW, _PROPS, _TABBY),
    *(_MODELS, _VLLM, _HEALTH),
)


def _xmlcall(answers: Answers, model: str) -> ServerFacts | None:
    return ServerFacts(kind="xmlcall", name="xmlcall serve") if _owned_by(answers, "xmlcall") else None


def _kobold(answers: Answers, model: str) -> ServerFacts | None:
    data, named = answers[_KOBOLD].data, _software(answers)
    if data.get("result") != "KoboldCpp" and text_of(named.get("name")).lower() != "koboldcpp":
        return None
    return ServerFacts(
        kind="koboldcpp",
        name="KoboldCpp",
        version=_version(data.get("version") or named.get("version")),
        context_length=_positive(answers[_KOBOLD_CONTEXT].data.get("value")),
        template_has_tools=_template_has_tools(answers),
    )


def _tabby(answers: Answers, model: str) -> ServerFacts | None:
    card = answers[_TABBY].data
    if text_of(_software(answers).get("name")).lower() != "tabbyapi" and card.get("owned_by") != "tabbyAPI":
        return None
    parameters = mapping(card.get("parameters"))
    return ServerFacts(
        kind="tabbyapi",
        name="tabbyAPI",
        version=_version(_software(answers).get("version")),
        context_length=_positive(parameters.get("max_seq_len")) or _props_context(answers),
        template_has_tools=_template_has_tools(answers, parameters.get("prompt_template_content")),
    )


def _other_service(answers: Answers, model: str) -> ServerFacts | None:
    """Return the name of any other product that reports one, such as Aphrodite."""
    name = text_of(_software(answers).get("name"))[:_SHOWN]
    return ServerFacts(name=name, version=_version(_software(answers).get("version"))) if name else None


def _sglang(answers: Answers, model: str) -> ServerFacts | None:
    data = answers[_SGLANG].data
    if "tool_call_parser" not in data and not ("version" in data and "model_path" in data):
        return None
    return ServerFacts(
        kind="sglang",
        name="SGLang",
        version=_version(data.get("version")),
        context_length=_positive(data.get("context_length")) or _listed_context(answers, model),
        tool_parser=_version(data["tool_call_parser"]) if "tool_call_parser" in data else None,
    )


def _studio(answers: Answers, model: str) -> ServerFacts | None:
    newer, older = mappings(answers[_STUDIO].data.get("models")), mappings(answers[_OLD_STUDIO].data.get("data"))
    is_newer = any("loaded_instances" in each for each in newer)
    if not is_newer and not any("compatibility_type" in each for each in older):
        return None
    own: Mapping[str, Any] = next((each for each in newer if _is_loaded_as(each, model)), {})
    loaded = mapping(next(iter(mappings(own.get("loaded_instances"))), {}).get("config"))
    own_before: Mapping[str, Any] = next((each for each in older if each.get("id") == model), {})
    listed = own_before.get("capabilities")
    trained = mapping(own.get("capabilities")).get("trained_for_tool_use") is True
    trained = trained or (isinstance(listed, list) and "tool_use" in listed)
    context = _positive(loaded.get("context_length")) or _positive(own_before.get("loaded_context_length"))
    # Others get tools in a prompt of LM Studio's own, so False would say too much.
    return ServerFacts(kind="lmstudio", name="LM Studio", context_length=context, template_has_tools=trained or None)


def _is_loaded_as(entry: Mapping[str, Any], model: str) -> bool:
    return entry.get("key") == model or any(each.get("id") == model for each in mappings(entry.get("loaded_instances")))


def _ollama(answers: Answers, model: str) -> ServerFacts | None:
    version = _version(answers[_OLLAMA].data.get("version"))
    if not version:
        return None
    loaded = mappings(answers[_LOADED].data.get("models"))
    own: Mapping[str, Any] = next((each for each in loaded if model in (each.get("model"), each.get("name"))), {})
    abilities = answers[_SHOW].data.get("capabilities")
    return ServerFacts(
        kind="ollama",
        name="Ollama",
        version=version,
        context_length=_positive(own.get("context_length")),
        template_has_tools="tools" in abilities if isinstance(abilities, list) else None,
    )


def _llama(answers: Answers, model: str) -> ServerFacts | None:
    props = answers[_PROPS].data
    if "default_generation_settings" not in props:
        return None
    tools = mapping(props.get("chat_template_caps")).get("supports_tool_calls")
    return ServerFacts(
        kind="llama.cpp",
        name="llama.cpp",
        version=_version(props.get("build_info")),
        context_length=_props_context(answers),
        template_has_tools=tools if isinstance(tools, bool) else _template_has_tools(answers),
    )


def _vllm(answers: Answers, model: str) -> ServerFacts | None:
    if not _owned_by(answers, "vllm"):
        return None
    version, length = _version(answers[_VLLM].data.get("version")), _listed_context(answers, model)
    return ServerFacts(kind="vllm", name="vLLM", version=version, context_length=length)


def _mlx(answers: Answers, model: str) -> ServerFacts | None:
    """Recognise mlx-lm by two answers, because it has no endpoint of its own."""
    health = answers[_HEALTH]
    is_plain = health.server.startswith("BaseHTTP/") and dict(health.data) == {"status": "ok"}
    return ServerFacts(kind="mlx-lm", name="mlx-lm") if is_plain else None


_ROWS: Final[tuple[Callable[[Answers, str], ServerFacts | None], ...]] = (
    *(_xmlcall, _kobold, _tabby, _other_service, _sglang, _studio, _ollama, _llama, _vllm, _mlx),
)


# -- parts of answers --------------------------------------------------------------------------------------------------


def _listed_context(answers: Answers, model: str) -> int | None:
    listed = mappings(answers[_MODELS].data.get("data"))
    return next((_positive(each.get("max_model_len")) for each in listed if each.get("id") == model), None)


def _owned_by(answers: Answers, owner: str) -> bool:
    return any(each.get("owned_by") == owner for each in mappings(answers[_MODELS].data.get("data")))


def _software(answers: Answers) -> Mapping[str, Any]:
    return mapping(answers[_SERVICE].data.get("software"))


def _props_context(answers: Answers) -> int | None:
    return _positive(mapping(answers[_PROPS].data.get("default_generation_settings")).get("n_ctx"))


def _template_has_tools(answers: Answers, template: Any = None) -> bool | None:
    """Return whether a template, else that of `/props`, mentions tools; None if there is neither."""
    text = text_of(template) or text_of(answers[_PROPS].data.get("chat_template"))
    return bool(_TOOLS.search(text)) if text else None


def _positive(value: Any) -> int | None:
    return count(value) or None


def _version(value: Any) -> str:
    match = _VERSION.match(text_of(value))
    return match[0] if match else ""


# -- how a model is recognised on any machine and under any name -------------------------------------------------------
# There are several kinds, because servers report different things. A **file** is identified by its size and by pieces taken
# evenly from beginning to end: they include metadata, template and weights, and only a megabyte is read instead of gigabytes.
# **llama.cpp** reports the name of the file and the chat template; **Ollama** reports the digest of the model's manifest,
# which covers weights, template and parameters. For any other server, only its name of the model is available.
#
# A fingerprint is `KIND:HEX`. It protects against mix-ups, not against forgery, because it only selects how a model is asked.


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
