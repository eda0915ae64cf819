"""How this package was installed, and so the command that adds an extra to it.

PEP 610 defines how an installer records the origin; a package without such a record came from a package index.
"""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

# A file of an environment -> the command that installs into it.
_MADE_BY: Final = (("uv-receipt.toml", "uv tool install"), ("pipx_metadata.json", "pipx install --force"))
_join: Final = subprocess.list2cmdline if os.name == "nt" else shlex.join
_UVX: Final = re.compile(r"archive-v\d+")  # the folder of environments in uv's cache


def missing_extra(need: str, extra: str) -> str:
    """Say in one sentence which package is missing and which command installs it."""
    return f"{need}: install it with: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that installs this package again as it is, with an extra."""
    origin = _origin()
    wanted = _wanted(origin, extra)
    if not wanted:  # a folder or file that is gone: what the extra needs, without this package
        return _join([*_installer(), *_needs(extra)])
    if _UVX.fullmatch(Path(sys.prefix).parent.name):
        return _join(["uvx", "--from", wanted, "xmlcall"])
    tool = next((tool.split() for file, tool in _MADE_BY if Path(sys.prefix, file).exists()), _installer())
    editable = ["-e"] if origin.get("dir_info", {}).get("editable") else []
    return _join([*tool, *editable, wanted])


def _installer() -> list[str]:
    """Return the command that installs packages into this environment."""
    if importlib.util.find_spec("pip") is None:
        return ["uv", "pip", "install", "--python", sys.prefix]
    is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return [*(["pip"] if is_active else [sys.executable, "-m", "pip"]), "install"]


def _origin() -> dict[str, Any]:
    try:
        written = metadata.distribution("xmlcall").read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        return {"url": Path(__file__).resolve().parents[1].as_uri()}
    return json.loads(written) if written else {}


def _wanted(origin: dict[str, Any], extra: str) -> str:
    """Write an origin as a requirement with an extra; nothing if it is a path that is no longer there."""
    url, vcs = origin.get("url", ""), origin.get("vcs_info")
    if not url:
        return f"xmlcall[{extra}]"
    if vcs:
        return f"xmlcall[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if not url.startswith("file:"):
        return f"xmlcall[{extra}] @ {url}"
    path, here = Path(url2pathname(urlsplit(url).path)), Path.cwd()
    if not path.exists():
        return ""
    shown = path if not path.is_relative_to(here) else "." if path == here else f".{os.sep}{path.relative_to(here)}"
    return f"{shown}[{extra}]"


def _needs(extra: str) -> Iterator[str]:
    for each in metadata.requires("xmlcall") or ():
        name, _, condition = each.partition(";")
        if re.search(rf"\bextra == ['\"]{extra}['\"]", condition):
            yield name.strip()
