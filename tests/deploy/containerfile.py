"""A Containerfile read as its instructions, stage by stage."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Stage", "stages_of"]


@dataclass(slots=True)
class Stage:
    """One `FROM` and what follows it: each instruction as its name and the rest of its line."""

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        """Return the instructions of a name."""
        return [rest for each, rest in self.steps if each == name]

    def one(self, name: str) -> str:
        """Return the only instruction of a name."""
        [rest] = self.all(name)
        return rest

    def command(self, name: str) -> list[str]:
        """Return an instruction that is a list of words, such as `CMD ["serve"]`."""
        words = json.loads(self.one(name))
        assert isinstance(words, list)
        return [str(word) for word in words]

    def pairs(self, name: str) -> dict[str, str]:
        """Return the `NAME=value` of all `ENV`, `ARG` or `LABEL`."""
        words = (word for rest in self.all(name) for word in shlex.split(rest))
        return {key: value for key, _, value in (word.partition("=") for word in words)}


def stages_of(path: Path) -> list[Stage]:
    """Read a file; an `ARG` before the first `FROM` is put into the names of images."""
    before = Stage("")
    stages = [before]
    for name, rest in _instructions(path.read_text(encoding="utf-8")):
        if name == "FROM":
            base = re.sub(r"\$\{(\w+)\}", lambda found: before.pairs("ARG")[found[1]], rest.split()[0])
            stages.append(Stage(base))
        else:
            stages[-1].steps.append((name, rest))
    return stages[1:]


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name.upper(), rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]
