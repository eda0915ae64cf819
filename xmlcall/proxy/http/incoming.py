"""Read a request before it is interpreted: find its end, correct its path, unpack its body, and parse its JSON.

*The end*: if two readers could disagree about where a request ends (RFC 9112, section 6.1), the proxy refuses it and closes the
connection. Bytes that one reader treats as the body would be the next request for the other. The HTTP servers below refuse most
of these requests themselves, but not all.

*The path*: clients configure a base URL without `/v1`, with it twice, or with a trailing slash. Some clients add `/v1` to the
base URL that they are given, others do not.

*Packed bodies* (RFC 9110, 8.4): gzip and deflate always, zstd if a library for it is installed. An unpacked body has the same
size limit as a plain one, because a small body can unpack to any size.

*One reading*, shared by all code and servers that inspect a request. JSON can contain a key twice, and parsers differ. Go, in
which Ollama is written, reads `Model` as `model`, and the last of both wins; other parsers know `model` only. So the request that
is checked here could be a different request there. A name in another case becomes the name that it means, and each name occurs
only once. Fields that could make a model server use another model, address or file are not passed on.
"""

import asyncio
import importlib
import io
import json
import math
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ...schema.references import deeper_than, layers
from ...wire.openai import refuse_constant
from ..formats.anthropic import MessagesBody
from ..formats.contract import ApiError
from ..formats.ollama import OllamaChatBody, OllamaGenerateBody, OllamaMessage, OllamaOptions
from ..formats.openai_chat import ChatBody, ChatMessage
from ..formats.openai_responses import ResponsesBody

BODY_LIMIT: Final = 32 * 1024 * 1024  # bytes: enough for a long conversation with images
BODY_SECONDS: Final = 120.0  # for a body to arrive
DEPTH_LIMIT: Final = 100  # levels of JSON in a body, because validating and writing it are recursive
VALUE_LIMIT: Final = 250_000  # JSON values in a body, because validating each one takes microseconds
_REFUSAL: Final = "expected one length of the body: either one Content-Length, or Transfer-Encoding in HTTP/1.1"
_VERSION: Final = "/v1"
_PAGES: Final = "/ui/"  # web pages; their paths need no correction
_WITHOUT: Final = ("/chat/completions", "/completions", "/embeddings", "/messages", "/models", "/rerank", "/responses")
_MAX_ENCODINGS: Final = 3
_MAX_MEMBERS: Final = 16  # gzip members, because each one costs a copy of the rest
_ZSTD_WINDOW: Final = 1 << 23  # RFC 8878, 3.1.1.1.2: decoders should support this much and need not support more
_MISSING: Final = "zstd is read only where the package zstandard is installed"

# -- before it is routed -----------------------------------------------------------------------------------------------
#
# The wrappers return the app's awaitable instead of awaiting it, so that no frame of theirs stays while the answer goes out.


def one_framing(app: ASGIApp) -> ASGIApp:
    """Refuse requests whose end is ambiguous; pass on all others."""

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and _is_unclear(Headers(scope=scope), scope.get("http_version", "1.1")):
            error = {"message": _REFUSAL, "type": "invalid_request_error", "param": None, "code": "unclear_length"}
            return JSONResponse({"error": error}, 400, headers={"connection": "close"})(scope, receive, send)
        return app(scope, receive, send)

    return answer


def _is_unclear(headers: Headers, version: str) -> bool:
    lengths = {part.strip() for each in headers.getlist("content-length") for part in each.split(",")}
    is_coded = "transfer-encoding" in headers
    return len(lengths) > 1 or (is_coded and (bool(lengths) or version in ("1.0", "0.9")))


def tolerant_paths(app: ASGIApp) -> ASGIApp:
    """Pass requests on under their corrected path."""

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not scope["path"].startswith(_PAGES) and (path := tidy(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        return app(scope, receive, send)

    return answer


def tidy(path: str) -> str:
    path = path.rstrip("/") or "/"
    while path.startswith(f"{_VERSION}{_VERSION}/"):
        path = path.removeprefix(_VERSION)
    is_bare = any(path == each or path.startswith(f"{each}/") for each in _WITHOUT)
    return f"{_VERSION}{path}" if is_bare else path


# -- its body ----------------------------------------------------------------------------------------------------------


async def content_of(request: Request) -> bytes:
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                content += piece
                if len(content) > BODY_LIMIT:
                    raise ApiError(f"expected a body of at most {BODY_LIMIT} bytes", status=413, code="request_too_large")
    except TimeoutError:
        raise ApiError(f"expected the whole body within {BODY_SECONDS:g} s", status=408, code="request_timeout") from None
    if _names(encoding := request.headers.get("content-encoding", "")):
        return await asyncio.to_thread(_unpacked, bytes(content), encoding, BODY_LIMIT)
    return bytes(content)


def data_of(content: bytes) -> Mapping[str, Any]:
    return data_and_left_out(content)[0]


def data_and_left_out(content: bytes) -> tuple[Mapping[str, Any], list[str]]:
    """Read a body; also return the words for which fields were left out."""
    try:
        return one_reading(object_of(content))
    except ValueError as error:
        raise ApiError(str(error)) from None


def object_of(content: bytes | bytearray) -> dict[str, Any]:
    try:
        data = json.loads(content, parse_constant=refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON body: {str(error)[:200] or 'it is nested too deeply'}") from None
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object as the body, got {json.dumps(data)[:80]}")
    if deeper_than(DEPTH_LIMIT, data):
        raise ValueError(f"expected a body of at most {DEPTH_LIMIT} levels")
    return data


def _finite(text: str) -> float:
    """Read a number; refuse one that is too large for a double."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def refuse_many(data: Mapping[str, Any]) -> None:
    if sum(map(len, layers(data))) > VALUE_LIMIT:
        raise ApiError(f"expected a body of at most {VALUE_LIMIT} values", status=413, code="request_too_large")


# -- one reading --------------------------------------------------------------------------------------------------------

_BODIES: Final = (ChatBody, ResponsesBody, MessagesBody, OllamaChatBody, OllamaGenerateBody)
_NAMES: Final = frozenset(
    {
        *(name for body in (*_BODIES, ChatMessage, OllamaMessage, OllamaOptions) for name in body.model_fields),
        *("function_call", "functions", "input", "name", "num_ctx", "query"),
    }
)
# Words in the names of fields that are in none of our formats, by what a model server would take from them. Each server and
# gateway has fields of its own (LiteLLM's `user_config`, OpenRouter's `preset`, SGLang's `lora_path` and `bootstrap_host`, vLLM's
# `kv_transfer_params`), and new ones keep appearing. No sampling field contains any of these words.
_WORDS: Final = {
    "another model": "adapter adapters deployment draft engine fallback fallbacks lora loras model models preset presets",
    "an address": "address api apibase azure aws base baseurl bootstrap endpoint endpoints host hosts hostname litellm port "
    "proxy provider providers remote router server servers source sources transfer uri uris url urls vertex webhook webhooks",
    "a key": "apikey credential credentials header headers key keys langfuse password secret",
    "a file": "dir directory file filename files folder path paths",
    "a program": "callback callbacks config plugin plugins processor processors template templates",
    "anything": "extra mock override overrides",
}
_ELSEWHERE: Final = frozenset(word for words in _WORDS.values() for word in words.split())
_HARMLESS: Final = frozenset({"chat_template_kwargs", "mm_processor_kwargs", "prompt_cache_key"})
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9\u017f\u212a]+")  # Go folds the long s and the Kelvin sign, too


def one_reading(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Give each field a unique name, and leave out what could redirect a model server; return also the telling words."""
    named = _named(data)
    words = {name: word for name in named if (word := _word_of_elsewhere(name))}
    body = {name: value for name, value in named.items() if name not in words}
    if isinstance(options := body.get("options"), dict):
        body["options"] = _named(options)
    if isinstance(messages := body.get("messages"), list):
        body["messages"] = [_named(message) if isinstance(message, dict) else message for message in messages]
    return body, sorted({*words.values()})


def _word_of_elsewhere(name: str) -> str:
    """Return the word in a field's name that refers to another model, an address or a file; "" if there is none."""
    if name in _NAMES or name.casefold() in _HARMLESS:
        return ""
    return next((word for part in _HUMP.split(name) if (word := part.casefold()) in _ELSEWHERE), "")


def _named(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write known names in lower case; if the lower-case name is also present, it takes priority."""
    if fields.keys() <= _NAMES:
        return fields
    found: dict[str, Any] = {}
    for name, value in fields.items():
        folded = name.casefold()  # also the long s and the Kelvin sign, which Go folds, too
        meant = folded if folded in _NAMES else name
        if meant == name or meant not in fields:
            found[meant] = value
    return found


# -- packed bodies -----------------------------------------------------------------------------------------------------


def _unpacked(content: bytes, encoding: str, limit: int) -> bytes:
    """Unpack a body; fails with 415 for an unknown encoding, 400 for a damaged body and 413 for more than the limit."""
    names = _names(encoding)
    unknown = next((name for name in names if name not in _READERS), "")
    if unknown or len(names) > _MAX_ENCODINGS:
        raise _unsupported(f"expected a Content-Encoding of {', '.join(_READERS)} or none, got {unknown or encoding!r:.60}")
    for name in reversed(names):
        content = _READERS[name](content, limit)
        if len(content) > limit:
            raise ApiError(f"expected a body that unpacks to at most {limit} bytes", status=413, code="request_too_large")
    return content


def _names(encoding: str) -> list[str]:
    names = (name.strip().lower() for name in encoding.split(","))
    return [name for name in names if name not in ("", "identity")]


def _unsupported(message: str) -> ApiError:
    return ApiError(message, status=415, code="unsupported_content_encoding")


def _damaged(name: str, why: object) -> ApiError:
    return ApiError(f"expected a body packed as {name}: {str(why)[:100]}")


def _gzip(content: bytes, limit: int) -> bytes:
    found = b""
    for _ in range(_MAX_MEMBERS):
        piece, content = _inflated(content, limit + 1 - len(found), 31, "gzip")
        found += piece
        if not content or len(found) > limit:
            return found
    raise _damaged("gzip", f"it has more than {_MAX_MEMBERS} members")


def _deflate(content: bytes, limit: int) -> bytes:
    """Unpack the zlib format, or raw deflate, which some clients send instead (RFC 9110, 8.4.1.2)."""
    is_zlib = len(content) > 1 and content[0] & 15 == 8 and (content[0] << 8 | content[1]) % 31 == 0
    return _inflated(content, limit + 1, 15 if is_zlib else -15, "deflate")[0]


def _inflated(content: bytes, most: int, window: int, name: str) -> tuple[bytes, bytes]:
    """Return at most `most` unpacked bytes, and the input that follows the packed data."""
    reader = zlib.decompressobj(window)
    try:
        found = reader.decompress(content, most)
    except zlib.error as error:
        raise _damaged(name, error) from None
    if not reader.eof and len(found) < most:
        raise _damaged(name, "it ends too early")
    return found, reader.unused_data


def _zstd(content: bytes, limit: int) -> bytes:
    for module, read in (("compression.zstd", _by_python), ("zstandard", _by_package)):
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        try:
            return read(library, content, limit + 1)
        except (library.ZstdError, EOFError, MemoryError) as error:
            raise _damaged("zstd", error) from None
    raise _unsupported(f"{_MISSING}: send the body plain or as gzip")


def _by_python(library: Any, content: bytes, most: int) -> bytes:  # from Python 3.14 on
    options = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW.bit_length() - 1}
    reader = library.ZstdDecompressor(options=options)
    found: bytes = reader.decompress(content, max_length=most)
    if not reader.eof and len(found) < most:
        raise EOFError("it ends too early")
    return found


def _by_package(library: Any, content: bytes, most: int) -> bytes:
    reader = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(io.BytesIO(content))
    found: bytes = reader.read(most)
    return found


_READERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}
