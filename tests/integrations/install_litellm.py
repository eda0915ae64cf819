"""Install LiteLLM's proxy with this package into build/litellm: python tests/integrations/install_litellm.py

An environment of its own, because LiteLLM pins many packages. Its extra `proxy` asks for packages of the same makers in exact
versions, of which an index may lack the newest: `litellm-proxy`, `litellm-proxy-extras` (tables of the database) and
`litellm-enterprise`. The proxy runs without them where there is no database, so they are left out; all else that the extra asks
for is installed beside what this package needs, and `pip check` has to find nothing wrong.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

__all__ = ["ENVIRONMENT", "VERSION"]

VERSION: Final = "1.110.2"
ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENT: Final = ROOT / "build" / "litellm"
SECONDS: Final = 1200
_TOLD: Final = "import importlib.metadata, json; print(json.dumps(importlib.metadata.requires('litellm')))"


def python(*arguments: str) -> str:
    """Run a program in the environment; give what it prints."""
    command = [str(ENVIRONMENT / "bin" / "python"), *arguments]
    return subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.PIPE, text=True).stdout


def pip_install(*arguments: str) -> None:
    """Install into the environment."""
    python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def asked_for(extra: str) -> list[str]:
    """Return what the installed LiteLLM asks for with an extra, here and by others than its own makers."""
    listed = [Requirement(line) for line in json.loads(python("-c", _TOLD))]
    wanted = [each for each in listed if each.marker and each.marker.evaluate({"extra": extra})]
    return [f"{each.name}{_extras(each)}{each.specifier}" for each in wanted if not each.name.startswith("litellm")]


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def install() -> None:
    """Make the environment; a second run brings it up to date."""
    venv.create(ENVIRONMENT, with_pip=True, symlinks=True)
    pip_install(f"litellm=={VERSION}")
    pip_install("--editable", str(ROOT), f"litellm=={VERSION}", *asked_for("proxy"))
    python("-m", "pip", "check")


if __name__ == "__main__":
    install()
    print(f"LiteLLM {VERSION} in {ENVIRONMENT}", file=sys.stderr)
