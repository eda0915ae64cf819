"""A profile as a TOML file: read strictly, since it may come from anybody, and written whole or not at all.

What is read is bounded in size, and checked against a schema before anything is made of it. A key that is not known is refused
and not passed over: a setting that is misspelled, or of a later version, would otherwise do nothing, in silence.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from ..errors import UsageError
from ..toml_file import read_toml
from .profile import WAYS, Figure, Measurement, Profile, Rate

__all__ = ["read_profile", "write_profile"]

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
    """Read a profile.

    Raises:
        UsageError: it cannot be read, or it is no profile; says the file, the key or line, and what was expected there.
    """
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
        raise UsageError(f"{file}: {unknown[0][:80]}: there is no such key in a profile; expected {known}")
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
    import tomli_w

    part = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(tomli_w.dumps(_told(profile)), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise UsageError(f"cannot write the profile {file}: {error.strerror or error}") from error


def _told(profile: Profile) -> dict[str, Any]:
    """Return what is written: TOML has no null, and simple keys stand before tables."""
    rows = {field.name: getattr(profile, field.name) for field in fields(Profile) if field.name != "measured"}
    return rows | ({"measured": asdict(profile.measured)} if profile.measured else {})
