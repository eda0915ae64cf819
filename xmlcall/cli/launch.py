"""`xmlcall launch`: a client, with its settings, on a proxy that is started for it if none runs.

The settings are variables, arguments, and files in a folder that is removed at the end, so none of the person's own files is
changed. The proxy runs in a session of its own: Ctrl-C at the terminal is for the client, and the proxy ends when the client has
ended.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from ..errors import UsageError, XmlcallError
from ..systems import END_SIGNALS, assignment, on_signals
from .exits import OK, complain
from .launch_clients import CLIENTS, CONTEXT, NO_KEY, ClientRow, ClientSettings, ProxyAddress
from .options import number, unknown
from .plain import json_text, visible
from .running import SERVE_PORT, Running, proxy_at, served

DESCRIPTION = "Start a client, such as Claude Code, with the settings for xmlcall's proxy, and the proxy unless one runs."
EPILOG = """examples:
  xmlcall launch                                     # list the clients
  xmlcall launch claude --model ollama:gemma3:4b
  xmlcall launch codex -- exec "What does this project do?"
  xmlcall launch opencode --print                    # show the settings, start nothing

The client gets its settings as variables, as arguments, and as files in a temporary folder, so your own settings of it stay as
they are. If no proxy runs at the port, `xmlcall serve` is started with --model and --context, and ends with the client. To give
it other options, start `xmlcall serve` yourself first. If it has a key, set XMLCALL_API_KEY. What comes after -- is for the
client. The exit code is the client's.
"""

PASSES_ON: Final = True
_HOST: Final = "127.0.0.1"
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_KEY_SHOWN: Final = "YOUR_XMLCALL_API_KEY"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "client", metavar="CLIENT", nargs="?", help="the client to start, such as claude; without it, all clients are listed"
    )
    parser.usage = "xmlcall launch [CLIENT] [OPTION ...] [-- ARGUMENT ...]"
    serve = parser.add_argument_group("the proxy")
    serve.add_argument(
        "--port",
        metavar="N",
        type=number(int, least=0),
        default=SERVE_PORT,
        help="the port of the proxy; 0 takes a free one (default: %(default)s)",
    )
    serve.add_argument("--model", help="the model of the proxy, if one is started; as for `xmlcall serve` (default: local)")
    serve.add_argument("--context", type=number(int, least=1), metavar="N", help="context size of that model, in tokens")
    serve.add_argument("--name", help="the model that the client asks, if the proxy has several (default: the first one)")
    instead = parser.add_argument_group("instead of starting").add_mutually_exclusive_group()
    instead.add_argument("--print", action="store_true", help="print the client's settings, to copy")
    instead.add_argument(
        "--write",
        action="store_true",
        help="write the client's settings files to where it reads them; a file that is there already stays as it is",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: the list, or with --print the settings")


def execute(options: argparse.Namespace) -> int:
    if options.client is None:
        return _list(options)
    if options.client not in CLIENTS:
        raise unknown("a client", options.client, CLIENTS)
    client = CLIENTS[options.client]
    if options.print:
        return _print(client, options)
    return _write(client, options) if options.write else _launch(client, options)


# -- shown and written ----------------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    if options.json:
        rows = {name: {"title": client.title, "program": _found(client), "get": client.get} for name, client in CLIENTS.items()}
        print(json_text({"clients": rows}))
        return OK
    for name, client in CLIENTS.items():
        state = "here" if _found(client) else "settings only" if not client.programs else "not installed"
        print(f"{name:11} {client.title:22} {state:14} {client.get}".rstrip())
    return OK


def _found(client: ClientRow) -> str | None:
    return next(filter(None, map(shutil.which, client.programs)), None)


def _known(options: argparse.Namespace, *, key: str) -> ProxyAddress:
    """Return what a client needs to know of the proxy at the port; nothing is started."""
    running = proxy_at(_url(options), _key()) if options.port else None
    if running:
        return _proxy(running, options, key=key)
    port = None if options.port in (0, SERVE_PORT) else options.port
    line = shlex.join(["xmlcall", "serve", *_given(model=options.model or "local", port=port, context=options.context)])
    complain(f"no proxy runs at {_url(options)} yet; start one before the client: {line}")
    return ProxyAddress(url=_url(options), key=key, model=options.name or "local", context=options.context or CONTEXT)


def _given(**options: str | int | None) -> list[str]:
    """Return the arguments of `xmlcall serve` for the options that are given."""
    return [part for name, value in options.items() if value is not None for part in (f"--{name}", f"{value}")]


def _print(client: ClientRow, options: argparse.Namespace) -> int:
    key = _KEY_SHOWN if _key() else NO_KEY
    settings = client.settings(_known(options, key=key))
    files = {client.places[path]: text for path, text in settings.files.items() if path in client.places}
    arguments = [*settings.arguments, *(options.passed_on or settings.usual)]
    command = [*client.programs[:1], *arguments] if client.programs else []
    if options.json:
        shown = {"env": settings.env, "unset": settings.unset, "files": files, "before": settings.before, "command": command}
        print(json_text({"client": options.client, **shown}))
    else:
        print("\n".join(_lines(client, settings, files, command)))
    return OK


def _lines(client: ClientRow, settings: ClientSettings, files: Mapping[str, str], command: Sequence[str]) -> Iterator[str]:
    yield f"# {client.title}: {client.get}"
    if client.note:
        yield f"# {client.note}"
    if _key():
        yield f"# {_KEY_SHOWN}: the value of XMLCALL_API_KEY"
    for place, text in files.items():
        yield f"\n# {place}\n{text.rstrip()}\n"
    yield from (assignment(name, None) for name in settings.unset)
    yield from (assignment(name, value) for name, value in settings.env.items())
    if settings.before:
        yield shlex.join([*client.programs[:1], *settings.before])
    if command:
        yield shlex.join(command)


def _write(client: ClientRow, options: argparse.Namespace) -> int:
    settings = client.settings(_known(options, key=_key() or NO_KEY))
    files = {Path(client.places[path]).expanduser(): text for path, text in settings.files.items() if path in client.places}
    if not files:
        raise UsageError(f"{client.title} takes variables and arguments, and needs no file: see --print")
    if there := [str(path) for path in files if path.exists()]:
        raise UsageError(f"{', '.join(there)}: exists already and is not overwritten: add what --print shows")
    for path, text in files.items():
        _write_privately(path, text)
        complain(f"written: {path}")
    return OK


def _write_privately(path: Path, text: str) -> None:
    """Write a new file that only its owner can read: it may have a key in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


# -- started --------------------------------------------------------------------------------------------------------------


def _launch(client: ClientRow, options: argparse.Namespace) -> int:
    program = _found(client)
    if program is None:
        raise UsageError(_missing(client))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xmlcall-", ignore_cleanup_errors=True)))
        running = _running(options, folder, stack)
        own = folder / "client"
        own.mkdir(mode=0o700)
        proxy = _proxy(running, options, key=_key() or NO_KEY, folder=own)
        if proxy.context < client.least_context:
            more = (
                f"{client.title} starts with a context of at least {client.least_context} tokens, the model has {proxy.context}"
            )
            raise UsageError(f"{more}: start one with --context {-(-client.least_context // 1024) * 1024}")
        return _run(client, [program], client.settings(proxy), own, options.passed_on)


def _missing(client: ClientRow) -> str:
    if not client.programs:
        return f"{client.title} is not started from here ({client.get}): --print shows its settings, --write writes them"
    return f"{client.title} is not installed: there is no program {' or '.join(client.programs)}; get it: {client.get}"


def _running(options: argparse.Namespace, folder: Path, stack: contextlib.ExitStack) -> Running:
    found = proxy_at(_url(options), _key()) if options.port else None
    if found is None:
        arguments = _given(host=_HOST, port=options.port, model=options.model, context=options.context)
        return stack.enter_context(served(arguments, folder / "serve.log", _key()))
    if options.model is not None or options.context is not None:
        model = visible(", ".join(found.models[:3]))
        raise UsageError(f"a proxy with {model} runs at {found.url} already: leave --model and --context out, or choose a --port")
    return found


def _proxy(running: Running, options: argparse.Namespace, *, key: str, folder: Path | None = None) -> ProxyAddress:
    model, context = running.model(options.name)
    return ProxyAddress(url=running.url, model=model, key=key, context=context or CONTEXT, folder=folder)


def _run(client: ClientRow, program: list[str], settings: ClientSettings, folder: Path, arguments: Sequence[str]) -> int:
    for path, text in settings.files.items():
        _write_privately(folder / path, text)
    env = _environment(settings)
    if settings.before:
        first = subprocess.run(
            [*program, *settings.before], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
        if first.returncode:
            raise XmlcallError(
                f"{client.title} did not store its settings: the run that stores them exited with {first.returncode}"
            )
    command = [*program, *settings.arguments, *(arguments or settings.usual)]
    children: list[subprocess.Popen[bytes]] = []
    with _passed_on(children), subprocess.Popen(command, env=env) as child:
        children.append(child)
        code = child.wait()
    return code if code >= 0 else 128 - code


def _environment(settings: ClientSettings) -> dict[str, str]:
    env = {**{name: value for name, value in os.environ.items() if name not in settings.unset}, **settings.env}
    if any(env.get(name) or env.get(name.lower()) for name in _PROXIES):  # a proxy of the network is not meant for this machine
        for name in ("NO_PROXY", "no_proxy"):
            env[name] = ",".join(filter(None, [env.get(name), _HOST]))
    return env


@contextlib.contextmanager
def _passed_on(children: "list[subprocess.Popen[bytes]]") -> Iterator[None]:
    """Pass termination signals on to the client. Ctrl-C is ignored here, because the terminal sends it to the client, too."""

    def passed(number: int, frame: FrameType | None) -> None:
        for child in children:
            if sys.platform == "win32":
                child.terminate()
            else:
                child.send_signal(number)

    # Not SIG_IGN, which the client would inherit.
    with on_signals((signal.SIGINT,), lambda *_: None), on_signals(END_SIGNALS, passed):
        yield


def _url(options: argparse.Namespace) -> str:
    return f"http://{_HOST}:{options.port or SERVE_PORT}"


def _key() -> str:
    return os.environ.get("XMLCALL_API_KEY", "")
