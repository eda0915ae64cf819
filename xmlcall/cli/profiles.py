"""`xmlcall profiles`: the profiles of models, which set prompt and call format."""

import argparse
from dataclasses import asdict
from typing import Final

from ..errors import UsageError
from ..models.recommended import in_words, recommended
from ..profiles.profile import FoundProfile, Profile, asking_by, folder, listed, named
from ..turn.asking import Asking
from ..types.completion import Capabilities
from .exits import OK, complain
from .options import Action, takes
from .plain import json_text, visible

DESCRIPTION = "List, show and remove profiles: the prompt and call format of each model. `xmlcall probe` measures one."
EPILOG = """examples:
  xmlcall profiles list
  xmlcall profiles show qwen2.5-coder-0.5b
  cp theirs.toml "$(xmlcall profiles path)"

They are kept in $XMLCALL_PROFILES, else in the user's configuration folder. Those that ship with xmlcall are used where you have
none.
"""


def _list(options: argparse.Namespace) -> int:
    every = list(listed())
    if options.json:
        print(json_text({"folder": str(folder()), "profiles": [_described(found) for found in every]}))
        return OK
    for found in every:
        settings = found.profile.words if found.profile else "cannot be read"
        measured = f"  measured {found.profile.measured.on}" if found.profile and found.profile.measured else ""
        print(visible(f"{found.name:28} {found.source:8} {settings}{measured}"))
        if found.problem:
            complain(found.problem)
    return OK


def _described(found: FoundProfile) -> dict[str, object]:
    row = {"name": found.name, "source": found.source, "path": str(found.path), "problem": found.problem}
    known = recommended(found.profile.model) if found.profile else None
    return row | {"profile": asdict(found.profile) if found.profile else None, "recommended": asdict(known) if known else None}


def _show(options: argparse.Namespace) -> int:
    found = named(options.name)
    assert found.profile is not None
    if options.json:
        print(json_text(_described(found)))
        return OK
    profile, measured = found.profile, found.profile.measured
    rows = [
        ("profile", f"{found.name} ({found.source})"),
        ("model", profile.model),
        ("asked by", profile.words),
        ("found by", ", ".join(profile.fingerprints) or "its name only"),
        ("sampling", _sampling(profile)),
        ("makers", _makers(profile)),
        (
            "measured",
            f"{measured.on}, xmlcall {measured.version}, {measured.cases}" if measured else "not yet: these are defaults",
        ),
    ]
    for label, text in rows:
        print(visible(f"{label:9} {text}"))
    for figure in measured.figures if measured else ():
        rates = [(name, rate) for name, rate in (("right calls", figure.calls), ("rightly none", figure.none)) if rate.total]
        shown = [f"{name} {rate.right} of {rate.total} [{100 * rate.low:.0f}-{100 * rate.high:.0f} %]" for name, rate in rates]
        print(visible(f"  {figure.way}: {'; '.join(shown)}"))
    return OK


def _sampling(profile: Profile) -> str:
    row = recommended(profile.model)
    values = asking_by(Asking(), {}, profile).sampled(Capabilities(server="", recommended=row.values if row else {}))
    shown = in_words(values) or "the server's own"
    if profile.sampled:
        return f"{shown} (this profile)"
    return "temperature 0, in Python where a model is given by its name; what each request says in serve (defaults)"


def _makers(profile: Profile) -> str:
    row = recommended(profile.model)
    if row is None:
        return "no recommendation known"
    way = "in use" if profile.sampling == "recommended" else "use it with --ask sampling=recommended"
    return f"recommend {in_words(row.values)} for {row.family} ({row.source}, read {row.read}); {way}"


def _path(options: argparse.Namespace) -> int:
    path = named(options.name).path if options.name else folder()
    print(json_text({"path": str(path)}) if options.json else path)
    return OK


def _remove(options: argparse.Namespace) -> int:
    found = next((each for each in listed() if each.name == options.name and each.source == "yours"), None)
    if found is None:
        named(options.name)
        raise UsageError(f"{options.name} ships with xmlcall and cannot be removed; use `--profile off` to ignore it")
    try:
        found.path.unlink()
    except OSError as error:
        raise UsageError(f"cannot remove {found.path}: {error.strerror or error}") from error
    print(json_text({"name": found.name, "removed": True}) if options.json else f"removed {found.name} from {folder()}")
    return OK


_A_PROFILE: Final = "a name from `xmlcall profiles list`"
ACTIONS: Final = {
    "list": Action(_list, "list the profiles, yours and those that ship with xmlcall"),
    "show": Action(_show, "show the settings of a profile, and what was measured", takes("name", help=_A_PROFILE)),
    "path": Action(_path, "print where a profile's file is, or the folder of yours", takes("name", nargs="?", help=_A_PROFILE)),
    "rm": Action(_remove, "remove a profile of yours", takes("name", help=_A_PROFILE)),
}
