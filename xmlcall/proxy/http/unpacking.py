"""Bodies that come packed (RFC 9110, 8.4): gzip and deflate always, zstd where a library for it is installed.

What a body unpacks to is bounded like a body that comes plain, for a small one can unpack to any size.
"""

import importlib
import io
import zlib
from collections.abc import Callable
from typing import Any, Final

from ..formats.contract import ApiError

__all__ = ["is_packed", "unpacked"]

_MAX_ENCODINGS: Final = 3
_MAX_MEMBERS: Final = 16  # of gzip, each of which costs a copy of the rest
_ZSTD_WINDOW: Final = 1 << 23  # RFC 8878, 3.1.1.1.2: what a decoder should at least and need at most allow
_MISSING: Final = "zstd is read only where the package zstandard is installed"


def is_packed(encoding: str) -> bool:
    """Tell whether anything has to be done."""
    return bool(_names(encoding))


def unpacked(content: bytes, encoding: str, limit: int) -> bytes:
    """Unpack a body.

    Raises:
        ApiError: 415, the encoding is not known here; 400, the body is damaged; 413, it unpacks to more.
    """
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
    """Unpack zlib's format, or the bare one, which some clients mean (RFC 9110, 8.4.1.2)."""
    is_zlib = len(content) > 1 and content[0] & 15 == 8 and (content[0] << 8 | content[1]) % 31 == 0
    return _inflated(content, limit + 1, 15 if is_zlib else -15, "deflate")[0]


def _inflated(content: bytes, most: int, window: int, name: str) -> tuple[bytes, bytes]:
    """Return at most so many bytes, and what follows them where they are all."""
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


_READERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
