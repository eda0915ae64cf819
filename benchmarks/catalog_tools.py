"""Record the tools of real MCP servers for the suite `catalog`: `python benchmarks/catalog_tools.py FOLDER`.

The servers are installed into FOLDER (about 2 GB, nothing of it into the project). Each is started in a home folder of its own
with made-up keys, asked for its tools and ended; no tool is run. The result is `xmlcall/bench/catalog.json`, a tool a line.

Left out are tools that would crowd out the others in a prompt, and names that an earlier server has. Only servers whose licence
allows a copy of their words are recorded, with version, licence and copyright as their package states them.
"""

import argparse
import asyncio
import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.server import StdioServer
from xmlcall.types.calls import Tool

OUTPUT = Path(__file__).resolve().parent.parent / "xmlcall" / "bench" / "catalog.json"
ABOUT = (
    "Tools of real MCP servers, as tools/list gave them to benchmarks/catalog_tools.py: name, description and inputSchema. "
    "They are under the licence and copyright of their server's package. Left out are tools with a description of more than "
    "1,500 characters or a schema of more than 2,500, and names that an earlier server has."
)
SECONDS = 30
MAX_DESCRIPTION, MAX_SCHEMA = 1500, 2500  # characters: a tool of 10,000 takes the place of twenty, and a prompt has to hold 200

# Some servers do not start without keys, although nobody asks for them until a tool runs.
OAUTH = {"installed": {"client_id": "none", "client_secret": "none", "redirect_uris": ["http://localhost:3000/oauth2callback"]}}
OAUTH_FILES = (".gmail-mcp/gcp-oauth.keys.json", "oauth.json")
ENVIRONMENT = {
    "AIRTABLE_API_KEY": "pat.none",
    "CI": "1",
    "DO_NOT_TRACK": "1",
    "GOOGLE_MAPS_API_KEY": "none",
    "MDB_MCP_TELEMETRY": "disabled",
    "SLACK_BOT_TOKEN": "none",
    "SLACK_TEAM_ID": "none",
    "TRELLO_API_KEY": "none",
    "TRELLO_TOKEN": "none",
}

# Licence -> how packages spell it; they allow copies of a tool's words under a note of where they are from.
LICENCES = {"MIT": r"\bMIT\b", "Apache-2.0": r"\bApache(-| License,?\s+(Version )?)2\.0\b", "ISC": r"\bISC\b", "BSD": r"\bBSD\b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server and how to start it.

    Args:
        name: ours.
        registry: `npm` or `PyPI`.
        package: its name there.
        version: exactly.
        run: a file of the npm package, or a command that the PyPI package installs; then arguments, `{home}` for its home folder.
        beside: what has to be installed with it.
    """

    name: str
    registry: str
    package: str
    version: str
    run: tuple[str, ...]
    beside: tuple[str, ...] = ()


def row(name: str, registry: str, package: str, version: str, *run: str, beside: tuple[str, ...] = ()) -> Server:
    return Server(name=name, registry=registry, package=package, version=version, run=run, beside=beside)


# The order decides which of two tools of one name is kept.
SERVERS = (
    row("time", "PyPI", "mcp-server-time", "2026.10.19", "mcp-server-time"),
    row("git", "PyPI", "mcp-server-git", "2026.10.19", "mcp-server-git"),
    row("fetch", "PyPI", "mcp-server-fetch", "2026.10.24", "mcp-server-fetch"),
    row("sqlite", "PyPI", "mcp-server-sqlite", "2025.4.25", "mcp-server-sqlite", "--db-path", "{home}/x.db", beside=("mcp<2",)),
    row("filesystem", "npm", "@modelcontextprotocol/server-filesystem", "2026.8.31", "dist/index.js", "{home}"),
    row("memory", "npm", "@modelcontextprotocol/server-memory", "2026.8.31", "dist/index.js"),
    row("everything", "npm", "@modelcontextprotocol/server-everything", "2026.8.31", "dist/index.js", "stdio"),
    row("github", "npm", "@modelcontextprotocol/server-github", "2025.4.8", "dist/index.js"),
    row("slack", "npm", "@modelcontextprotocol/server-slack", "2025.4.25", "dist/index.js"),
    row("google-maps", "npm", "@modelcontextprotocol/server-google-maps", "0.6.2", "dist/index.js"),
    row("playwright", "npm", "@playwright/mcp", "0.0.83", "cli.js"),
    row("chrome-devtools", "npm", "chrome-devtools-mcp", "1.11.0", "build/src/bin/chrome-devtools-mcp.js"),
    row("kubernetes", "npm", "mcp-server-kubernetes", "4.1.7", "dist/index.js"),
    row("mongodb", "npm", "mongodb-mcp-server", "3.0.4", "dist/esm/index.js"),
    row("google-calendar", "npm", "@cocal/google-calendar-mcp", "2.6.3", "build/index.js"),
    row("gmail", "npm", "@gongrzhe/server-gmail-autoauth-mcp", "1.1.11", "dist/index.js"),
    row("airtable", "npm", "airtable-mcp-server", "1.14.0", "dist/main.js"),
    row("trello", "npm", "@delorenj/mcp-server-trello", "1.8.1", "build/index.js"),
    row("yahoo-finance", "PyPI", "mcp-yahoo-finance", "0.2.0", "mcp-yahoo-finance"),
    row("arxiv", "PyPI", "arxiv-mcp-server", "0.8.2", "arxiv-mcp-server"),
    row("word", "PyPI", "office-word-mcp-server", "1.1.11", "word_mcp_server"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the servers are installed, or to be installed")
    folder = parser.parse_args().folder.resolve()
    install(folder)
    rows, tools = asyncio.run(record(folder))
    OUTPUT.write_text(written(rows, tools), encoding="utf-8")
    print(f"{len(tools)} tools of {len(rows)} servers, {OUTPUT.stat().st_size:,} bytes")
    return 0


def install(folder: Path) -> None:
    """Install all servers; no script of an npm package is run, and a PyPI package gets an environment of its own."""
    (folder / "npm").mkdir(parents=True, exist_ok=True)
    wanted = [f"{server.package}@{server.version}" for server in SERVERS if server.registry == "npm"]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(["npm", "install", "--prefix", str(folder / "npm"), *quiet, *wanted], check=True, timeout=900)
    for server in SERVERS:
        if server.registry == "PyPI" and not (python := folder / f"py-{server.package}" / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True, timeout=300)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, f"{server.package}=={server.version}", *server.beside], check=True, timeout=900)


async def record(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """List the tools of every server; return a row about each server, and the tools that are kept."""
    rows: list[dict[str, Any]] = []
    tools: dict[str, dict[str, Any]] = {}
    for server in SERVERS:
        listed = await listed_by(server, folder)
        kept = {spelled(tool.name): tool for tool in listed if is_short(tool) and spelled(tool.name) not in tools}
        tools |= {key: {"server": server.name} | plain(tool) for key, tool in kept.items()}
        rows.append(about(server, folder) | {"listed": len(listed), "kept": len(kept)})
        print(rows[-1], flush=True)
    return rows, list(tools.values())


async def listed_by(server: Server, folder: Path) -> tuple[Tool, ...]:
    """Start a server, list its tools and end it."""
    home = folder / "home"
    for name in OAUTH_FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps(OAUTH), encoding="utf-8")
    environment = ENVIRONMENT | {"HOME": str(home), "GOOGLE_OAUTH_CREDENTIALS": str(home / "oauth.json")}
    command, *arguments = [part.format(home=home) for part in command_of(server, folder)]
    config = StdioServer(name=server.name, command=command, args=tuple(arguments), env=environment, cwd=str(home))
    async with asyncio.timeout(SECONDS), McpHost(config) as host:
        return await host.tools()


def command_of(server: Server, folder: Path) -> list[str]:
    if server.registry == "npm":
        return ["node", str(folder / "npm" / "node_modules" / server.package / server.run[0]), *server.run[1:]]
    return [str(folder / f"py-{server.package}" / "bin" / server.run[0]), *server.run[1:]]


def spelled(name: str) -> str:
    """Return what a model may take for the same name: `get-current-time` is `get_current_time`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_short(tool: Tool) -> bool:
    return len(tool.description) <= MAX_DESCRIPTION and len(json.dumps(tool.input_schema)) <= MAX_SCHEMA


def plain(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}


def about(server: Server, folder: Path) -> dict[str, Any]:
    """Return where a server is from, and whose it is, as its package says."""
    words, author, licence_text = (npm_package if server.registry == "npm" else pypi_package)(server, folder)
    notice = re.search(r"^\s*(Copyright (?:\(c\)|©|\d)[^\[\n]*)$", licence_text, re.MULTILINE | re.IGNORECASE)
    return {
        "name": server.name,
        "registry": server.registry,
        "package": server.package,
        "version": server.version,
        "licence": licence_in([licence_text[:300], *words], server),
        "copyright": notice[1].strip() if notice else re.sub(r"\s*[<(].*", "", author) or "not stated",
    }


def licence_in(words: Iterable[str], server: Server) -> str:
    """Return the licence that the first telling words name; a server without one that allows copies must leave the table."""
    for text in words:
        for name, spelling in LICENCES.items():
            if re.search(spelling, text):
                return name
    raise SystemExit(f"{server.package}: no licence that allows copies is stated; take it out of the table")


def npm_package(server: Server, folder: Path) -> tuple[list[str], str, str]:
    """Return words about a package's licence, most binding first, its author, and the text of its licence if it has one."""
    here = folder / "npm" / "node_modules" / server.package
    package = json.loads((here / "package.json").read_text(encoding="utf-8"))
    check_version(server, package["version"])
    author = package.get("author", "")
    words = [package.get("license", ""), *telling(text_of(here.glob("README*")))]
    return words, author.get("name", "") if isinstance(author, dict) else author, text_of(here.glob("LICEN[CS]E*"))


def pypi_package(server: Server, folder: Path) -> tuple[list[str], str, str]:
    """Do the same for a package of Python."""
    (packages,) = (folder / f"py-{server.package}" / "lib").glob("python*/site-packages")
    (package,) = distributions(name=server.package, path=[str(packages)])
    check_version(server, package.version)
    head = package.metadata
    stated = [head["License-Expression"] or "", (head["License"] or "").partition("\n")[0], *(head.get_all("Classifier") or ())]
    author = head["Author"] or (head["Author-email"] or "").partition("<")[0].strip()
    texts = (Path(str(file.locate())) for file in package.files or () if re.match(r"LICEN[CS]E", file.name))
    return [*stated, *telling(str(head.json.get("description", "")))], author, text_of(texts)


def check_version(server: Server, version: str) -> None:
    if version != server.version:
        raise SystemExit(f"{server.package}: {version} is installed, not {server.version}; empty the folder")


def telling(readme: str) -> Iterator[str]:
    return (line for line in readme.splitlines() if "licensed under" in line)


def text_of(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def written(rows: Iterable[Any], tools: Iterable[Any]) -> str:
    """Return the file: one server or tool a line, so that a later recording can be compared with this one."""
    lists = {"servers": rows, "tools": tools}
    head = [compact({"about": ABOUT})[1:-1], compact({"recorded": str(datetime.date.today())})[1:-1]]
    parts = [f'"{name}":[\n' + ",\n".join(map(compact, each)) + "\n]" for name, each in lists.items()]
    return "{" + ",\n".join([*head, *parts]) + "}\n"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
