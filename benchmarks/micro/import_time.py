"""How long `import xmlcall` takes, beside what it must not load.

    python benchmarks/micro/import_time.py [REPEATS]

Each import runs in a fresh process; the time of an empty process is subtracted. Prints the median of the repeats in milliseconds.
"""

import statistics
import subprocess
import sys
import time

IMPORTS = ["xmlcall", "xmlcall; xmlcall.parse('x')", "xmlcall; xmlcall.ToolLoop", "mcp", "ollama"]


def seconds(code: str) -> float | None:
    """Return how long a fresh interpreter takes to run a line; None if it fails."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start if done.returncode == 0 else None


def median(code: str, repeats: int) -> float | None:
    """Return the median over several runs; None if it cannot be run."""
    times = [taken for _ in range(repeats) if (taken := seconds(code)) is not None]
    return statistics.median(times) if len(times) == repeats else None


def main() -> None:
    """Print a row an import."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    empty = median("pass", repeats) or 0.0
    for line in IMPORTS:
        taken = median(f"import {line}", repeats)
        print(f"import {line:32} {'not installed' if taken is None else f'{(taken - empty) * 1000:7.1f} ms'}")


if __name__ == "__main__":
    main()
