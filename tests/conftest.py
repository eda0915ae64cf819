"""What holds for all tests."""

import asyncio
import atexit
import gc
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import profiles  # noqa: F401 - what `--hypothesis-profile` names
import pytest

# A suite that is started in the background (`nohup make test &`, some schedulers) ignores Ctrl-C or hang-ups, and so would the
# programs that it starts and ends by them: what is ignored stays ignored in a child, what has a handler does not.
for number in signal.Signals:
    if number.name in ("SIGINT", "SIGHUP") and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

_OF_POSIX = re.compile(
    r"^(?:from|import) (?:cli_harness|cli_process|fcntl|fuzz|observed_harness|resource|serving|termios)\b", re.M
)
collect_ignore: list[str] = []
if sys.platform == "win32":  # without forks and terminals of POSIX; the commands are run there by tests/test_systems.py
    tests = Path(__file__).parent.rglob("test_*.py")
    collect_ignore += [str(path) for path in tests if _OF_POSIX.search(path.read_text(encoding="utf-8"))]

records = tempfile.mkdtemp(prefix="xmlcall-records-")  # nothing that tests do is kept for this machine's user
atexit.register(shutil.rmtree, records, ignore_errors=True)
os.environ["XMLCALL_RECORDS"] = records
os.environ["XMLCALL_PROFILES"] = str(Path(records) / "no-profiles")  # not those of this machine's user
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"  # nor their keyring


def _share_contexts(transport: ModuleType) -> None:
    """Let clients share TLS contexts of the same settings: making one takes 22 ms, more than most tests that make a client."""
    make: Any = transport.create_ssl_context
    known: dict[tuple[Any, ...], Any] = {}

    def shared(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        files = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        key = (verify, cert, trust_env, *files)
        if not isinstance(verify, bool):
            return make(verify=verify, cert=cert, trust_env=trust_env)
        if key not in known:
            known[key] = make(verify=verify, cert=cert, trust_env=trust_env)
        return known[key]

    transport.create_ssl_context = shared  # type: ignore[attr-defined]


for name in ("httpx._transports.default", "httpx2._transports.default"):
    _share_contexts(importlib.import_module(name))


gc.disable()  # until all tests are collected


def pytest_collection_finish() -> None:
    """Keep the collector from walking all collected tests again and again."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark properties: they go further in the deep profile."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("sweep")


@pytest.fixture(autouse=True)
def forget_checks() -> None:
    """Let no test know what another one found of a model server: their fakes are the same model."""
    (Path(records) / "no-profiles" / "checked.json").unlink(missing_ok=True)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a model server again at once."""
    from xmlcall.backends import retrying  # few modules need it

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(retrying, "sleep", sleep)


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[Any, str]]:
    """A model server whose part a fake plays, and its address."""
    from servers.run_server import Stage, run_server  # few modules need it

    played = Stage()
    with run_server(played) as url:
        yield played, url


seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long each test takes, with its set-up."""
    seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note the seconds of `make test` for tests/slow_tests.py."""
    notes = os.environ.get("XMLCALL_TEST_SECONDS")
    if notes and not hasattr(session.config, "workerinput"):
        Path(notes).parent.mkdir(exist_ok=True)
        Path(notes).write_text(json.dumps({name: round(took, 2) for name, took in seconds.items()}), encoding="utf-8")


@pytest.fixture
async def no_tasks_left() -> AsyncIterator[None]:
    """Fail a test after which a task of its own still runs."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:  # a generator of the SDK that is no longer used ends in a task of its own
        await asyncio.wait(left, timeout=1)
    assert [task for task in left if not task.done()] == []
