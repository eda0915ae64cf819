"""A run on disk: one folder, written once and only added to.

`run.json` says what was measured with what. `cases.jsonl` holds the cases, so that a run can be read, judged and shown again
without the data that it was drawn from. `replies.jsonl` has a line a case and way, written when the reply is complete: a crash
loses at most the replies under way, and a line that it cut in two is dropped on the next start. A line's key is the hash of its
request, so that another request never passes for one that was answered.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import filelock

from ..errors import UsageError, XmlcallError
from ..tool import Tool
from ..types import Message
from .case import Case
from .ways import Settings, Way

__all__ = ["Run", "RunError", "create_or_resume", "read_run", "request_key"]

_FORMAT = 1  # of the files; it grows when a reader of the old ones would go wrong
_DESCRIPTIVE = ("started", "command", "commit", "machine", "python")  # may differ when a run is taken up again


class RunError(XmlcallError):
    """A run cannot be read or added to."""


class Run:
    """An open run.

    Args:
        folder: where it is.
        about: what `run.json` says.
        cases: in the order drawn.
        replies: lines of `replies.jsonl`.
    """

    def __init__(self, folder: Path, about: dict[str, Any], cases: list[Case], replies: list[dict[str, Any]]) -> None:
        self.folder, self.about, self.cases, self.replies = folder, about, cases, replies
        self.by_id = {case.id: case for case in cases}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from adding to the run, and begin with what is there: a line that was cut is taken away.

        Raises:
            RunError: one is at it.
        """
        lock = filelock.FileLock(self.folder / "lock", timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise RunError(
                f"another process is adding to the run in {self.folder}: wait for it, or give another folder"
            ) from None
        try:
            file = self.folder / "replies.jsonl"
            if file.exists():
                os.truncate(file, len(_whole_lines(file)))
            self.replies = _read_replies(file)
            yield
        finally:
            lock.release()

    @property
    def settings(self) -> Settings:
        """The settings that all replies were generated with."""
        return Settings(**self.about["settings"])

    def done(self) -> set[str]:
        """Return the keys of all requests that were answered."""
        return {reply["key"] for reply in self.replies}

    def add(self, reply: dict[str, Any]) -> None:
        """Write a reply; when this returns, it is on its way to the disk whole.

        Args:
            reply: a JSON object with `key`.
        """
        self.replies.append(reply)
        line = json.dumps(reply, ensure_ascii=False) + "\n"
        with open(self.folder / "replies.jsonl", "ab") as file:
            file.write(line.encode("utf-8", "surrogatepass"))

    def of_way(self, way: str) -> list[tuple[Case, dict[str, Any]]]:
        """Return the cases of a way that have a reply, in the order drawn.

        Args:
            way: its name.
        """
        found = {reply["case"]: reply for reply in self.replies if reply["way"] == way}
        return [(case, found[case.id]) for case in self.cases if case.id in found]


def create_or_resume(folder: Path, about: Mapping[str, Any], cases: Iterable[Case]) -> Run:
    """Begin a run, or go on with the one in a folder.

    Args:
        folder: new, empty, or a run of the same configuration.
        about: what is measured with what.
        cases: to be asked.

    Raises:
        UsageError: the folder holds something else, or a run of another configuration.
    """
    about = {"format": _FORMAT, **about}
    if not (folder / "run.json").exists():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"expected a new folder or a run in {folder}, got a folder with other files in it")
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "cases.jsonl", "".join(json.dumps(_case_to_json(case), ensure_ascii=False) + "\n" for case in cases))
        _write(folder / "run.json", json.dumps(about, ensure_ascii=False, indent=1) + "\n")
        return read_run(folder)
    run = read_run(folder)
    known = json.loads(json.dumps(about))
    # What an earlier version did not record yet cannot be compared.
    changed = [key for key in (run.about.keys() & known.keys()) - {*_DESCRIPTIVE} if run.about[key] != known[key]]
    if changed:
        told = "; ".join(f"{key}: was {run.about[key]!r:.80}, is {known[key]!r:.80}" for key in sorted(changed))
        raise UsageError(f"the run in {folder} was made with another configuration ({told}): give another folder with --out")
    return run


def read_run(folder: Path) -> Run:
    """Read a run.

    Args:
        folder: of `xmlcall bench run --out`.

    Raises:
        UsageError: there is none, or it is of a newer version.
        RunError: it is damaged.
    """
    if not (folder / "run.json").is_file():
        raise UsageError(f"expected the folder of a run of `xmlcall bench run`, got {folder}, which has no run.json")
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        cases = [_case_from_json(line) for line in _lines(folder / "cases.jsonl")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"the run in {folder} is damaged: {type(error).__name__}: {error}") from error
    if about.get("format") != _FORMAT:
        raise UsageError(f"the run in {folder} has format {about.get('format')!r}, this version reads {_FORMAT}")
    return Run(folder, about, cases, _read_replies(folder / "replies.jsonl"))


def _read_replies(file: Path) -> list[dict[str, Any]]:
    """Read the replies without a last line that was cut, or that another process is writing."""
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in _whole_lines(file).decode("utf-8", "surrogatepass").split("\n") if line]
    except ValueError as error:
        raise RunError(f"{file} is damaged ({error}): take the line out, or begin a new run") from error


def _whole_lines(file: Path) -> bytes:
    content = file.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def _write(file: Path, text: str) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def _case_to_json(case: Case) -> dict[str, Any]:
    return asdict(case)


def _case_from_json(data: dict[str, Any]) -> Case:
    return Case(
        **{
            **data,
            "messages": tuple(data["messages"]),
            "tools": tuple(Tool(**tool) for tool in data["tools"]),
            "answers": tuple(data["answers"]),
            "exact": tuple((name, arguments) for name, arguments in data["exact"]),
        }
    )


def request_key(way: Way, case: Case, messages: Iterable[Message], settings: Settings, model: str) -> str:
    """Hash a request: the same key, the same reply to expect.

    Args:
        way: how tools are offered.
        case: whose tools are sent, if the way is native.
        messages: the conversation.
        settings: of the run.
        model: its name.
    """
    tools = [[tool.name, tool.description, tool.input_schema] for tool in case.tools] if way.is_native else []
    request = [model, way.name, case.id, [[message.role, message.content] for message in messages], tools, settings.to_json()]
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()
