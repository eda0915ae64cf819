"""A profile: the settings with which a model is asked for calls, the measurements that they rest on, and the file with both.

The language of the prompt is not part of a profile, because it is the user's choice. Missing settings have the current defaults,
so a profile can be as short as the name of a model and one setting.

The user's own profiles come first, then those that ship with the package. A profile's name is the name of its file without
`.toml`. When a profile is searched by fingerprint, an unreadable file of the user is reported and skipped, because it may be
about another model; when it is requested by name, it is an error.

A file may come from anybody, so it is read strictly: its size is limited, and it is checked against a schema before use. An
unknown key is an error, because a misspelled setting, or one of a later version, would otherwise be ignored silently. A file is
written completely or not at all.
"""

import difflib
import json
import logging
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from ..errors import UsageError
from ..private_folders import user_path
from ..prompting.format import ENGLISH
from ..toml_file import read_toml, toml_text
from ..turn.asking import Asking, AskingFields, Finding, Sampling
from ..types.completion import SAMPLED, Capabilities

PROFILED: Final = ("mode", "dialect", "family", "call_threshold")
"""The fields of `Asking` that a profile sets, beside those of sampling."""

ProfileWay = Literal["xml", "native", "none"]
WAYS: Final[tuple[ProfileWay, ...]] = ("xml", "native", "none")

CallThreshold = float | Literal["auto", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of some questions were answered correctly."""

    right: int
    total: int
    low: float  # ends of the 95 % interval, shares from 0 to 1
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The results of one way of asking."""

    way: str
    calls: Rate  # questions that need a call, answered with exactly the right calls
    none: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    on: str
    version: str
    cases: str
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a model is asked for calls.

    Args:
        model: its name, for people.
        fingerprints: identifiers of the model (`Capabilities.fingerprints`); one match is enough.
        way: `xml` offers tools in the prompt; `native` uses the server's own function calling, and also reads calls in the text;
            `none` shows the model no tools, because it calls none rightly and answers worse beside them.
        dialect: the wire format of calls that the prompt asks for, with `xml`.
        family: the family of the prompt, with `xml`.
        call_threshold: log-odds of a call above which a message is answered with one (see `tool_need`); `auto`, or `off`.
        sampling: what holds for the sampling options that are None, as in `Asking`; None to leave it to whoever asks.
        temperature, top_p, top_k, min_p, presence_penalty, repeat_penalty: sampling options, as in `Asking`.
        measured: the measurement that these settings rest on; None if they are defaults that were not measured.

    Raises:
        UsageError: unknown setting.
    """

    model: str
    fingerprints: tuple[str, ...] = ()
    way: ProfileWay = "xml"
    dialect: str = ENGLISH.dialect
    family: str = ENGLISH.family
    call_threshold: CallThreshold = "auto"
    sampling: Sampling | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    repeat_penalty: float | None = None
    measured: Measurement | None = None

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise UsageError(f"way: expected one of {', '.join(WAYS)}, got {self.way!r:.80}")
        threshold = self.call_threshold
        number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and math.isfinite(threshold)
        if not number and threshold not in ("auto", "off"):
            raise UsageError(f"call_threshold: expected a finite number, 'auto' or 'off', got {self.call_threshold!r:.80}")
        for name, value in self.sampled.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name}: expected a finite number, got {value}")
        _ = self.asking

    @property
    def asking(self) -> Asking:
        """The settings as the loop, the proxy and the harness take them."""
        threshold = None if self.way != "xml" or self.call_threshold == "off" else self.call_threshold
        asking = Asking(mode=self.way, dialect=self.dialect, family=self.family, call_threshold=threshold)
        return replace(asking, **self.sampled)

    @property
    def sampled(self) -> AskingFields:
        """The sampling settings that the profile has; the program that asks sets the others."""
        found = {name: value for name in ("sampling", *SAMPLED) if (value := getattr(self, name)) is not None}
        return cast(AskingFields, found)

    @property
    def words(self) -> str:
        """The profile in one line, as `run` shows it."""
        return way_in_words(self.way, self.dialect, self.family, self.call_threshold)


def way_in_words(way: str, dialect: str, family: str, call_threshold: CallThreshold) -> str:
    """Describe how a model is asked: `xml, list, threshold auto`; our own wire format is not named."""
    if way != "xml":
        return way
    threshold = call_threshold if isinstance(call_threshold, str) else f"{call_threshold:g}"
    return ", ".join(["xml" if dialect == ENGLISH.dialect else dialect, family, f"threshold {threshold}"])


def asking_in_words(asking: Asking) -> str:
    """Describe how a model is asked (see `way_in_words`)."""
    threshold = "off" if asking.call_threshold is None else asking.call_threshold
    way = {"native-only": "native", "auto": "xml"}.get(asking.mode, asking.mode)
    return way_in_words(way, asking.dialect, asking.family, threshold)


def asking_by(usual: Asking, given: AskingFields, profile: Profile | None = None) -> Asking:
    """Return how to ask a model: as given, else as its profile says, else as usual."""
    asking = replace(usual, **given)
    settled = {name for name in PROFILED if name in given and (name, given[name]) != ("mode", "auto")}
    if profile is not None and not settled:
        asking = replace(asking, mode=profile.way)
    is_native = asking.mode in ("native", "native-only")
    _check(given, is_native=is_native)
    if profile is not None and "sampling" not in given:
        left = {name: value for name, value in profile.sampled.items() if name not in given}
        asking = replace(asking, **cast(AskingFields, left))
    if profile is not None and not is_native:
        asking = replace(asking, dialect=given.get("dialect", profile.dialect), family=given.get("family", profile.family))
    if "call_threshold" in given:
        return asking
    return replace(asking, call_threshold=_threshold(asking, profile, is_native=is_native))


def _threshold(asking: Asking, profile: Profile | None, *, is_native: bool) -> float | Literal["auto"] | None:
    """Return the threshold of a profile, else `auto`; none where no reminder depends on it."""
    if is_native or not asking.reminder or (profile and profile.call_threshold == "off"):
        return None
    # It was measured with one prompt, so it holds for that dialect and family only.
    holds = profile and (asking.dialect, asking.family) == (profile.dialect, profile.family)
    return profile.call_threshold if profile and holds and profile.call_threshold != "off" else "auto"


def _check(given: AskingFields, *, is_native: bool) -> None:
    if is_native and "dialect" in given:
        raise UsageError("dialect is the format of calls in the text, so it cannot be combined with mode=native")
    if given.get("call_threshold") is not None and (is_native or not given.get("reminder", True)):
        raise UsageError("call_threshold needs the reminder, so it cannot be combined with reminder=no or mode=native")


# -- files ------------------------------------------------------------------------------------------------------------

MOST_FILES: Final = 1000
_NAME: Final = re.compile(r"[\w\-][\w.\-]{0,99}")
_OTHERS: Final = re.compile(r"[^\w.\-]+")

Source = Literal["yours", "shipped", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProfile:
    name: str
    source: Source  # `file`: given by its path
    path: Path
    profile: Profile | None = None
    problem: str = ""


def folder() -> Path:
    """Return the folder of the user's profiles: `$XMLCALL_PROFILES`, else one in the user's configuration folder."""
    return user_path("config", "profiles", "XMLCALL_PROFILES")


def shipped_folder() -> Path:
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
    """Return the profile that the user chose for a model; `auto` is the one that was measured with the model, `off` is none.

    `tell` gets a sentence for unreadable files, and for a profile that was measured with another model.
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
    sampling={"enum": list(get_args(Sampling))},
    **{name: {"type": "integer" if name == "top_k" else "number"} for name in SAMPLED},
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
    _check_file(data, file)
    table = data.get("measured")
    figures = ({**row, "calls": Rate(**row["calls"]), "none": Rate(**row["none"])} for row in (table or {}).get("figures", ()))
    measured = Measurement(**{**table, "figures": tuple(Figure(**row) for row in figures)}) if table else None
    try:
        return Profile(**{**data, "fingerprints": tuple(data.get("fingerprints", ())), "measured": measured})
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def _check_file(data: Mapping[str, Any], file: Path) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if unknown := sorted(data.keys() - _SCHEMA["properties"].keys()):
        known = ", ".join(_SCHEMA["properties"])
        raise UsageError(f"{file}: {unknown[0][:80]}: unknown key; expected {known}")
    if error := best_match(Draft202012Validator(_SCHEMA).iter_errors(data)):
        raise UsageError(f"{file}: {error.json_path.removeprefix('$.')[:80]}: {_shortened(error.message)}")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile; readers see the old file or the new one, never a part."""
    part = file.with_name(f"{file.name}.part")
    # TOML has no null, and simple keys come before tables.
    rows = {field.name: getattr(profile, field.name) for field in fields(Profile) if field.name != "measured"}
    rows = {name: value for name, value in rows.items() if value is not None}
    rows |= {"measured": asdict(profile.measured)} if profile.measured else {}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(toml_text(rows), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise UsageError(f"cannot write the profile {file}: {error.strerror or error}") from error


# -- what checks of model servers found --------------------------------------------------------------------------------
# A name says too little of a model, so a model that is known by its name alone is checked by each program. So is one whose
# server did not answer in time. The file is a cache: if it cannot be read or written, the model is checked again.


log: Final = logging.getLogger("xmlcall.profiles")

FINDINGS: Final = frozenset(get_args(Finding))
VERSION: Final = 1  # version of the check: findings of other versions do not count
DAYS: Final = 30  # the server may have been updated since
MOST: Final = 200  # findings
MOST_BYTES: Final = 100_000


def checks_file() -> Path:
    """Return the file of findings, in the folder of the user's profiles."""
    return folder() / "checked.json"


def remembered(server: Capabilities, today: date | None = None) -> Finding | None:
    """Return what the last check of a model found; None if there was none lately."""
    key, oldest = _key(server), (today or _today()) - timedelta(days=DAYS)
    row = _checks().get(key) if key else None
    return cast(Finding, row["found"]) if row and row["on"] >= oldest.isoformat() else None


def remember(server: Capabilities, finding: Finding, today: date | None = None) -> None:
    """Keep what a check of a model found."""
    key = _key(server)
    if not key or finding in ("slow", "no_tools", "refused"):  # the same build may take tools after a restart (`--jinja`)
        return
    rows = {**_checks(), key: {"found": finding, "on": (today or _today()).isoformat()}}
    kept = dict(sorted(rows.items(), key=lambda row: row[1]["on"])[-MOST:])
    file = checks_file()
    part = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"version": VERSION, "checks": kept}, indent=1), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        log.info("cannot remember the check of the model server in %s: %s", file, error.strerror or error)


def _today() -> date:
    return datetime.now(UTC).date()


def _key(server: Capabilities) -> str:
    known = next((each for each in server.fingerprints if not each.startswith("model:")), "")
    return f"{known} {server.build}".strip() if known else ""


def _checks() -> dict[str, dict[str, str]]:
    """Read the findings; none from a file that is missing, broken or of another version."""
    try:
        with checks_file().open("rb") as file:
            data: Any = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = data.get("checks") if isinstance(data, dict) and data.get("version") == VERSION else None
    parts = rows.items() if isinstance(rows, dict) else ()
    tables = {key: row for key, row in parts if isinstance(row, dict)}
    return {key: row for key, row in tables.items() if isinstance(row.get("on"), str) and row.get("found") in FINDINGS}
