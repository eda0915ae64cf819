"""Where profiles are, and which one belongs to a model: the person's own first, then those that ship with the package.

A profile's name is the name of its file without `.toml`. A file of the person's that cannot be read is told of and passed over
when a profile is looked for by fingerprint, since it may be about another model; asked for by its name, it is refused.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from ..errors import UsageError
from .profile import Profile
from .toml_file import read_profile

__all__ = ["FoundProfile", "chosen", "file_of", "find", "folder", "listed", "named", "shipped", "shipped_folder"]

MOST_FILES: Final = 1000
_NAME: Final = re.compile(r"[\w\-][\w.\-]{0,99}")
_OTHERS: Final = re.compile(r"[^\w.\-]+")

Source = Literal["yours", "shipped", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProfile:
    """A profile and where it comes from.

    Args:
        source: `yours`, `shipped`, or `file` for one that was given by its path.
    """

    name: str
    source: Source
    path: Path
    profile: Profile | None = None
    problem: str = ""


def folder() -> Path:
    """Say where the person's profiles are: `$XMLCALL_PROFILES`, else a folder of the user's configuration."""
    if chosen := os.environ.get("XMLCALL_PROFILES"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_config_path("xmlcall") / "profiles"


def shipped_folder() -> Path:
    """Say where the profiles of the package are."""
    return Path(__file__).with_name("known")


def file_of(model: str) -> Path:
    """Return the file in which a model's profile is kept.

    Args:
        model: its name; of a file or an address, the last part is taken.
    """
    name = _OTHERS.sub("-", re.split(r"[/\\]", model.strip())[-1]).strip("-.") or "model"
    return folder() / f"{name[:100]}.toml"


def listed() -> Iterator[FoundProfile]:
    """Yield all profiles, the person's first; of shipped ones, those that none of the person's replaces by its name."""
    seen: set[str] = set()
    places: tuple[tuple[Source, Path], ...] = (("yours", folder()), ("shipped", shipped_folder()))
    for source, place in places:
        for path in sorted(islice(place.glob("*.toml"), MOST_FILES)):
            if path.stem not in seen:
                seen.add(path.stem)
                yield _read(path, source)


def _read(path: Path, source: Source) -> FoundProfile:
    try:
        return FoundProfile(name=path.stem, source=source, path=path, profile=read_profile(path))
    except UsageError as error:
        return FoundProfile(name=path.stem, source=source, path=path, problem=str(error))


def find(fingerprints: Collection[str], refused: Callable[[str], None] = lambda problem: None) -> FoundProfile | None:
    """Find the profile of a model.

    Returns:
        The first with a fingerprint in common; None if there is none.
    """
    if not fingerprints:
        return None
    for found in listed():
        if found.profile is None:
            refused(found.problem)
        elif {*found.profile.fingerprints} & {*fingerprints}:
            return found
    return None


def chosen(name: str, fingerprints: Collection[str], tell: Callable[[str], None]) -> FoundProfile | None:
    """Return the profile that a person chose for a model.

    Args:
        name: of it, or its file; `auto` for the one that was measured with the model, `off` for none.
        tell: told of files that cannot be read, and of a profile that was measured with another model.

    Raises:
        UsageError: one was asked for that there is not, or that cannot be read.
    """
    if name == "off":
        return None
    if name == "auto":
        return find(fingerprints, tell)
    found = named(name)
    known = found.profile.fingerprints if found.profile else ()
    if known and not {*known} & {*fingerprints}:
        tell(f"the profile {found.name} was measured with another model")
    return found


def shipped(fingerprints: Collection[str]) -> Profile | None:
    """Return the profile that ships for a model, whatever the person has; None if none does."""
    ours = (_read(path, "shipped").profile for path in sorted(shipped_folder().glob("*.toml")))
    return next((profile for profile in ours if profile and {*profile.fingerprints} & {*fingerprints}), None)


def named(name: str) -> FoundProfile:
    """Return a profile by its name, or by the path of its file.

    Args:
        name: as `xmlcall profiles list` shows it, or a path that ends in `.toml`.
    """
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        return FoundProfile(name=path.stem, source="file", path=path, profile=read_profile(path))
    every = {found.name: found for found in listed()}
    if not _NAME.fullmatch(name) or name not in every:
        near = difflib.get_close_matches(name[:100].lower(), every, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        known = ", ".join(every) or "none"
        raise UsageError(f"expected the name of a profile, or its file (NAME.toml), got {name[:100]!r}.{hint} Known: {known}.")
    if (found := every[name]).profile is None:
        raise UsageError(found.problem)
    return found
