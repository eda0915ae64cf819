"""A hint to install more names what the person has: a checkout, a wheel, a repository or an index; and their own installer."""

import json
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest

from xmlcall.installed import install_command, missing_extra

INDEX = None
CHECKOUT = {"url": "file://{here}", "dir_info": {}}
EDITABLE = {"url": "file://{here}", "dir_info": {"editable": True}}
ELSEWHERE = {"url": "file://{home}/my%20code", "dir_info": {}}
WHEEL = {"url": "file://{here}/dist/xmlcall-1-py3-none-any.whl", "archive_info": {}}
GONE = {"url": "file://{home}/gone.whl", "archive_info": {}}
GIT = {"url": "https://example.com/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc1"}}
REMOTE = {"url": "https://example.com/xmlcall-1.whl", "archive_info": {}}

VENV, BESIDE, UV, UVX, PIPX = "venv", "another venv", "uv tool", "archive-v0/x", "pipx"
MARKERS = {UV: "uv-receipt.toml", PIPX: "pipx_metadata.json"}

CASES: list[tuple[Any, str, str]] = [
    (INDEX, VENV, "pip install 'xmlcall[local]'"),
    (CHECKOUT, VENV, "pip install '.[local]'"),
    (EDITABLE, VENV, "pip install -e '.[local]'"),
    (ELSEWHERE, VENV, "pip install '{home}/my code[local]'"),
    (WHEEL, VENV, "pip install './dist/xmlcall-1-py3-none-any.whl[local]'"),
    (GONE, VENV, "pip install 'llama<3,>=2'"),
    (GIT, VENV, "pip install 'xmlcall[local] @ git+https://example.com/x.git@abc1'"),
    (REMOTE, VENV, "pip install 'xmlcall[local] @ https://example.com/xmlcall-1.whl'"),
    (CHECKOUT, BESIDE, "{home}/beside/bin/python -m pip install '.[local]'"),
    (INDEX, UV, "uv tool install 'xmlcall[local]'"),
    (CHECKOUT, UV, "uv tool install '.[local]'"),
    (EDITABLE, UV, "uv tool install -e '.[local]'"),
    (WHEEL, UV, "uv tool install './dist/xmlcall-1-py3-none-any.whl[local]'"),
    (GONE, UV, "uv pip install --python '{home}/uv tool' 'llama<3,>=2'"),
    (INDEX, UVX, "uvx --from 'xmlcall[local]' xmlcall"),
    (CHECKOUT, UVX, "uvx --from '.[local]' xmlcall"),
    (CHECKOUT, PIPX, "pipx install --force '.[local]'"),
    (WHEEL, PIPX, "pipx install --force './dist/xmlcall-1-py3-none-any.whl[local]'"),
]


class Installed:
    """The metadata of a package that was installed from somewhere."""

    requires = ("lxml>=5", 'llama<3,>=2; (sys_platform != "win32") and extra == "local"', 'ray>=2; extra == "ray"')

    def __init__(self, origin: Any, **places: Path) -> None:
        self._written = json.dumps(origin).replace("{here}", str(places["here"])).replace("{home}", str(places["home"]))
        self._is_there = origin is not INDEX

    def read_text(self, name: str) -> str | None:
        return self._written if self._is_there and name == "direct_url.json" else None


@pytest.mark.parametrize(("origin", "environment", "command"), CASES)
def test_the_command_fits_origin_and_environment(
    origin: Any, environment: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, prefix = tmp_path / "here", tmp_path / ("beside" if environment == BESIDE else environment)
    for folder in (here / "dist", tmp_path / "my code", prefix):
        folder.mkdir(parents=True)
    (here / "dist" / "xmlcall-1-py3-none-any.whl").touch()
    if marker := MARKERS.get(environment):
        (prefix / marker).touch()
    has_pip = environment in (VENV, BESIDE)
    monkeypatch.setattr(util, "find_spec", lambda name: has_pip or None)
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(origin, here=here, home=tmp_path))
    monkeypatch.setattr(metadata, "requires", lambda _: Installed.requires)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", str(prefix / "bin" / "python"))
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix if environment == VENV else here))
    monkeypatch.chdir(here)
    assert install_command("local") == command.format(home=tmp_path)


def test_a_checkout_without_metadata_is_named_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    monkeypatch.chdir(Path(__file__).parent.parent)
    assert missing_extra("a model needs llama", "local").endswith(" install '.[local]'")
