"""Fetch the Python files of engines that their tool parsers import, into build/engines.

    python tests/engines/fetch.py [NAME==VERSION ...]

A wheel of vLLM has 336 MB, and the parser's interface 3 MB of it. A wheel is a zip file: its list of contents stands at its end,
and each file can be read alone. So pip is asked where the wheel is, and only those parts are read (HTTP ranges). Nothing is
installed, and nothing of what is fetched is run here.
"""

import io
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import httpx

FOLDER: Final = Path(__file__).parents[2] / "build" / "engines"
RELEASES: Final = (
    ("vllm", "0.33.0"),
    ("vllm", "0.32.0"),
    ("vllm", "0.31.0"),
    ("sglang", "0.5.23"),
    ("sglang", "0.5.22"),
    ("sglang", "0.5.21"),
)
"""Engine and version: the newest three of each (2026-11-24)."""

LIMIT: Final = 20_000_000  # bytes that are read of one wheel
SECONDS: Final = 120  # for pip, and for each range
BLOCK: Final = 1 << 20  # bytes of a range

# engine -> files that the parser's interface imports, and those that drive it
WANTED: Final = {
    "vllm": r"vllm/((parser|parser/engine|parser/chat_parsing|plugins|reasoning|tool_parsers|logging_utils|utils"
    r"|entrypoints(/(generate|generate/base|mcp|serve|serve/engine|serve/exception_handling))?"
    r"|entrypoints/openai(/(chat_completion|responses|parser))?)/)?[^/]+\.py",
    "sglang": r"sglang/([^/]+\.py|srt/([^/]*/)?__init__\.py|srt/environ\.py|srt/plugins/[^/]+\.py"
    r"|srt/(function_call|parser|parser/chat_parsing|entrypoints/openai)/[^/]+\.py)",
}


def folder_of(engine: str, version: str) -> Path:
    """Return the folder that the files of a release stand in."""
    return FOLDER / f"{engine}-{version}"


class RangeFile(io.RawIOBase):
    """A file behind an address, read in parts."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self.count = 0
        self._client, self._url, self._place = client, url, 0
        self._size = int(self._get(0, 0).headers["content-range"].rpartition("/")[2])

    def _get(self, first: int, last: int) -> httpx.Response:
        response = self._client.get(self._url, headers={"Range": f"bytes={first}-{last}"})
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            raise SystemExit(
                f"expected a part of the wheel, got status {response.status_code}: the index serves whole files only"
            )
        self.count += len(response.content)
        if self.count > LIMIT:
            raise SystemExit(f"more than {LIMIT:,} bytes of one wheel: the pattern of what is wanted is too wide")
        return response

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        last = min(self._place + len(buffer), self._size) - 1
        if last < self._place:
            return 0
        content = self._get(self._place, last).content
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


def wheel_of(engine: str, version: str) -> str:
    """Ask pip where a wheel is, whatever index it is set up for."""
    report = [sys.executable, "-m", "pip", "-q", "install", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
    command = [*report, "--only-binary", ":all:", "--use-feature=fast-deps", f"{engine}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"pip knows no wheel of {engine} {version} for this machine: {done.stderr.strip()[-400:]}")
    url: str = json.loads(done.stdout)["install"][0]["download_info"]["url"]
    return url


def client() -> httpx.Client:
    """Make a client that trusts what pip is told to trust."""
    context = ssl.create_default_context()
    if own := os.environ.get("PIP_CERT"):
        context.load_verify_locations(own)
    return httpx.Client(verify=context, follow_redirects=True, timeout=SECONDS)


def fetch(engine: str, version: str) -> None:
    """Fetch one release, if it is not there."""
    folder = folder_of(engine, version)
    if folder.exists():
        return
    part, wanted = folder.with_suffix(".part"), re.compile(WANTED[engine])
    shutil.rmtree(part, ignore_errors=True)
    with client() as asking:
        remote = RangeFile(asking, wheel_of(engine, version))
        with zipfile.ZipFile(io.BufferedReader(remote, BLOCK)) as wheel:
            names = sorted(
                (each for each in wheel.infolist() if wanted.fullmatch(each.filename)), key=lambda each: each.header_offset
            )
            for each in names:
                wheel.extract(each, part)  # takes `..` out of names
    (part / "count.json").write_text(json.dumps({"files": len(names), "bytes read": remote.count}))
    part.rename(folder)
    print(f"{engine} {version}: {len(names)} files, {remote.count / 1e6:.1f} MB read")


def main(arguments: list[str]) -> None:
    asked = [tuple(each.split("==")) for each in arguments] or list(RELEASES)
    for engine, version in asked:
        fetch(engine, version)


if __name__ == "__main__":
    main(sys.argv[1:])
