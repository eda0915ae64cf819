"""The table of clients, and what came of each: `clients.toml`, `results.json`, and the table of docs/reference/clients.md."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

__all__ = ["CLIENTS", "PROGRAMS", "WIRES", "Client", "Result", "keep", "kept", "page_with_table", "table"]

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
RESULTS = HERE / "results.json"
BEGIN, END = "<!-- begin of the table of clients: written by make clients WRITE=1 -->", "<!-- end of the table of clients -->"

WIRES: Mapping[str, str] = {
    "openai": "chat completions",
    "openai-responses": "responses",
    "anthropic": "messages",
    "ollama": "Ollama",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that talks to the proxy; clients.toml tells what each field means."""

    name: str
    program: str
    package: str
    wire: str
    ways: Sequence[str]
    requires: Sequence[str] = ()
    npm: Sequence[str] = ()
    python: str = ""
    without: Sequence[str] = ()
    path: str = ""
    call: Mapping[str, Any] = field(default_factory=lambda: {"name": "multiply", "arguments": {"a": 1234, "b": 5678}})
    setting: str = ""
    snippet: bool = False

    @property
    def version(self) -> str:
        """The version that is run."""
        pins = [pin.replace("==", "@") for pin in (*self.requires, *self.npm)]
        versions = {name.partition("[")[0]: version for name, _, version in (pin.rpartition("@") for pin in pins)}
        return versions[self.package]


CLIENTS = tuple(Client(**row) for row in tomllib.loads((HERE / "clients.toml").read_text(encoding="utf-8"))["client"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a client.

    Args:
        version: of its package.
        date: of the day, ISO 8601.
        ways: way -> "ok", or what went wrong.
    """

    version: str
    date: str
    ways: Mapping[str, str]


def kept() -> dict[str, Result]:
    """Read what came of each client when it was last run."""
    return {name: Result(**result) for name, result in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def keep(outcomes: Mapping[str, Mapping[str, str]]) -> None:
    """Keep what came of the clients that were run today."""
    versions = {client.name: client.version for client in CLIENTS}
    today = date.today().isoformat()
    new = {name: Result(version=versions[name], date=today, ways=ways) for name, ways in outcomes.items()}
    merged = kept() | new
    rows = {client.name: asdict(merged[client.name]) for client in CLIENTS if client.name in merged}
    RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page_with_table(page: str) -> str:
    """Put the table into docs/reference/clients.md, in place of the one that it has."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}{END}{rest.split(END)[1]}"


def table() -> str:
    """Write the table in Markdown: a row for each client that was run."""
    results = kept()
    rows = [_row(client, results[client.name]) for client in CLIENTS if client.name in results]
    return "\n".join(["| client | speaks | ways | result | run on |", "|---|---|---|---|---|", *rows]) + "\n"


def _row(client: Client, result: Result) -> str:
    named = f"[{client.package} {result.version}{' (npm)' if client.npm else ''}](../../tests/clients/programs/{client.program})"
    cells = (named, WIRES[client.wire], ", ".join(result.ways), _verdict(client, result), result.date)
    return f"| {' | '.join(cells)} |"


def _verdict(client: Client, result: Result) -> str:
    failed = [f"{way}: {outcome}" for way, outcome in result.ways.items() if outcome != "ok"]
    works = f"works with a setting: {client.setting}" if client.setting else "works"
    if not failed:
        return works
    begun = "" if len(failed) == len(result.ways) else f"{works}; "
    return f"{begun}does not: {'; '.join(failed)}".replace("|", "/")
