"""What checks of model servers found (`turn.way`), remembered by the model's fingerprint and the server's build.

A name says too little of a model, so a model that is known by its name alone is checked by each program. So is one whose server
did not answer in time. The file is a cache: if it cannot be read or written, the model is checked again.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast, get_args

from ..turn.way import Finding
from ..types.completion import Capabilities
from .profile import folder

log: Final = logging.getLogger("xmlcall.profiles")

FINDINGS: Final = frozenset(get_args(Finding))
VERSION: Final = 1  # of the check: findings of another one do not count
DAYS: Final = 30  # the server may have been updated since
MOST: Final = 200  # findings
MOST_BYTES: Final = 100_000


def checks_file() -> Path:
    """Return the file of findings, in the folder of the user's profiles."""
    return folder() / "checked.json"


def remembered(server: Capabilities, today: date | None = None) -> Finding | None:
    """Return what the last check of a model found; None if there was none lately."""
    key, oldest = _key(server), (today or _today()) - timedelta(days=DAYS)
    row = _read().get(key) if key else None
    return cast(Finding, row["found"]) if row and row["on"] >= oldest.isoformat() else None


def remember(server: Capabilities, finding: Finding, today: date | None = None) -> None:
    """Keep what a check of a model found."""
    key = _key(server)
    if not key or finding in ("slow", "no_tools", "refused"):  # the same build may take tools after a restart (`--jinja`)
        return
    rows = {**_read(), key: {"found": finding, "on": (today or _today()).isoformat()}}
    kept = dict(sorted(rows.items(), key=lambda row: row[1]["on"])[-MOST:])
    file = checks_file()
    part = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"version": VERSION, "checks": kept}, indent=1), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        log.info("cannot remember the check of the model server in %s: %s", file, error.strerror or error)


def _today() -> date:
    return datetime.now(UTC).date()


def _key(server: Capabilities) -> str:
    known = next((each for each in server.fingerprints if not each.startswith("model:")), "")
    return f"{known} {server.build}".strip() if known else ""


def _read() -> dict[str, dict[str, str]]:
    """Read the findings; none from a file that is missing, broken or of another version."""
    try:
        with checks_file().open("rb") as file:
            data: Any = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = data.get("checks") if isinstance(data, dict) and data.get("version") == VERSION else None
    return {key: row for key, row in rows.items() if _is_row(row)} if isinstance(rows, dict) else {}


def _is_row(row: Any) -> bool:
    return isinstance(row, Mapping) and isinstance(row.get("on"), str) and row.get("found") in FINDINGS
