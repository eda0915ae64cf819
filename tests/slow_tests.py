"""No test of `make test` may take over five seconds without a reason: `python tests/slow_tests.py`, a part of `make check`.

`make test` notes how long each test took, its set-up and its end included; this reads the notes of the last run. What is named
in slow_tests.toml may take longer. Beside other programs a test takes longer than it does: run `make test` again before you name
one.
"""

import json
import os
import sys
import tomllib
from pathlib import Path

NOTES = Path(__file__).parents[1] / "build" / "test-seconds.json"
NAMED = Path(__file__).with_name("slow_tests.toml")
MOST = 20.0 if "CI" in os.environ else 5.0  # a machine of CI may be slower, and does other things too


def main() -> int:
    """Print each slow test without a reason; 1 if there is one."""
    if not NOTES.exists():
        print("slow tests: `make test` was not run here yet, nothing to look at")
        return 0
    seconds: dict[str, float] = json.loads(NOTES.read_text(encoding="utf-8"))
    named = tomllib.loads(NAMED.read_text(encoding="utf-8"))
    slow = {name: took for name, took in seconds.items() if took > MOST and name.partition("[")[0] not in named}
    for name, took in sorted(slow.items(), key=lambda pair: -pair[1]):
        print(
            f"{name} took {took:.1f} s, expected at most {MOST:.0f}: make it quicker, mark it `full`, or name it in {NAMED.name}"
        )
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
