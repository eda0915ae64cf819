"""Finds, reads and writes profiles, and selects the one that belongs to a model.

The user's own profiles come first, then those that ship with the package. A profile's name is the name of its file without
`.toml`. When a profile is searched by fingerprint, an unreadable file of the user is reported and skipped, because it may be
about another model; when it is requested by name, it is an error.

A file may come from anybody, so it is read strictly: its size is limited, and it is checked against a schema before use. An
unknown key is an error, because a misspelled setting, or one of a later version, would otherwise be ignored silently. A file is
written completely or not at all.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from ..errors import UsageError
from ..toml_file import read_toml, toml_text
from .profile import WAYS, Figure, Measurement, Profile, Rate

__all__ = [
    "FoundProfile",
    "chosen",
    "file_of",
    "find",
    "folder",
    "listed",
    "named",
    "read_profile",
    "shipped",
    "shipped_folder",
    "write_profile",
]

MOST_FILES: Final = 1000
_NAME: Final = re.compile(r"[\w\-][\w.\-]{0,99}")
_OTHERS: Final = re.compile(r"[^\w.\-]+")

Source = Literal["yours", "shipped", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProfile:
    """A profile and where it comes from."""

    name: str
    source: Source  # `file`: given by its path
    path: Path
    profile: Profile | None = None
    problem: str = ""


def folder() -> Path:
    """Return the folder of the user's profiles: `$XMLCALL_PROFILES`, else one in the user's configuration folder."""
    if chosen := os.environ.get("XMLCALL_PROFILES"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_config_path("xmlcall") / "profiles"


def shipped_folder() -> Path:
    """Return the folder of the package's profiles."""
    return Path(__file__).with_name("known")


def file_of(model: str) -> Path:
    """Return the file in which a model's profile is kept, named after the last part of its name, file or address."""
    name = _OTHERS.sub("-", re.split(r"[/\\]", model.strip())[-1]).strip("-.") or "model"
    return folder() / f"{name[:100]}.toml"


def listed() -> Iterator[FoundProfile]:
    """Yield all profiles, the user's first; a shipped one is left out if the user has one of the same name."""
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
    """Find the first profile that has a fingerprint in common with a model."""
    if not fingerprints:
        return None
    for found in listed():
        if found.profile is None:
            refused(found.problem)
        elif {*found.profile.fingerprints} & {*fingerprints}:
            return found
    return None


def chosen(name: str, fingerprints: Collection[str], tell: Callable[[str], None]) -> FoundProfile | None:
    """Return the profile that the user chose for a model.

    Args:
        name: the profile's name or file; `auto` for the one that was measured with the model, `off` for none.
        tell: called with a sentence for unreadable files, and for a profile that was measured with another model.
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
    """Return the profile that ships for a model, whatever profiles the user has; None if there is none."""
    ours = (_read(path, "shipped").profile for path in sorted(shipped_folder().glob("*.toml")))
    return next((profile for profile in ours if profile and {*profile.fingerprints} & {*fingerprints}), None)


def named(name: str) -> FoundProfile:
    """Return a profile by its name, as `xmlcall profiles list` shows it, or by the path of its file, which ends in `.toml`."""
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


_SHOWN: Final = 200  # characters of a message that others chose
_GONE: Final = frozenset({"constrain"})  # earlier versions wrote it into every profile; it means nothing any more


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


_TEXT: Final = {"type": "string", "maxLength": 500}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 10**9}
_SHARE: Final = {"type": "number", "minimum": 0, "maximum": 1}
_RATE: Final = _object("right total low high", right=_COUNT, total=_COUNT, low=_SHARE, high=_SHARE)
_SCHEMA: Final = _object(
    "model",
    model={**_TEXT, "minLength": 1},
    fingerprints={"type": "array", "items": {**_TEXT, "pattern": r"^[\w.\-]+:\w+$"}, "maxItems": 20},
    way={"enum": list(WAYS)},
    dialect=_TEXT,
    family=_TEXT,
    call_threshold={"anyOf": [{"type": "number"}, {"enum": ["auto", "off"]}]},
    measured=_object(
        "on version cases",
        on={"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"},
        version=_TEXT,
        cases=_TEXT,
        figures={"type": "array", "maxItems": 100, "items": _object("way calls none", way=_TEXT, calls=_RATE, none=_RATE)},
    ),
)


def read_profile(file: Path) -> Profile:
    """Read a profile; an error names the file, the key or line, and what was expected."""
    data = {key: value for key, value in read_toml(file, "a profile").items() if key not in _GONE}
    _check(data, file)
    try:
        return _profile(data)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def _check(data: Mapping[str, Any], file: Path) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if unknown := sorted(data.keys() - _SCHEMA["properties"].keys()):
        known = ", ".join(_SCHEMA["properties"])
        raise UsageError(f"{file}: {unknown[0][:80]}: unknown key; expected {known}")
    if error := best_match(Draft202012Validator(_SCHEMA).iter_errors(data)):
        raise UsageError(f"{file}: {error.json_path.removeprefix('$.')[:80]}: {_shortened(error.message)}")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"


def _profile(data: Mapping[str, Any]) -> Profile:
    told = data.get("measured")
    figures = [
        Figure(way=row["way"], calls=Rate(**row["calls"]), none=Rate(**row["none"])) for row in (told or {}).get("figures", ())
    ]
    measured = Measurement(**{**told, "figures": tuple(figures)}) if told else None
    return Profile(**{**data, "fingerprints": tuple(data.get("fingerprints", ())), "measured": measured})


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile; readers see the old file or the new one, never a part."""
    part = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(toml_text(_told(profile)), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise UsageError(f"cannot write the profile {file}: {error.strerror or error}") from error


def _told(profile: Profile) -> dict[str, Any]:
    """Return the data to write: TOML has no null, and simple keys come before tables."""
    rows = {field.name: getattr(profile, field.name) for field in fields(Profile) if field.name != "measured"}
    return rows | ({"measured": asdict(profile.measured)} if profile.measured else {})
