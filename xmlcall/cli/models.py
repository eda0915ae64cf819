"""`xmlcall models`: the local models that xmlcall knows by name."""

import argparse
import contextlib
from typing import Final

from ..models import known as models
from ..models.known import KnownModel
from .exits import FAILED, OK, complain
from .options import Action, takes
from .plain import json_text

DESCRIPTION = "List, fetch and remove the local models that xmlcall knows by name."
EPILOG = f"""examples:
  xmlcall models list
  xmlcall models pull                  (the default one, {models.DEFAULT_MODEL})
  llama-server -m "$(xmlcall models path)"

Models are kept in $XMLCALL_MODELS, else in the user's cache folder. Any other GGUF file works as `--model path/to.gguf`.
"""


def _name(options: argparse.Namespace) -> str:
    return models.DEFAULT_MODEL if options.name == "local" else models.known(options.name).name


def _list(options: argparse.Namespace) -> int:
    if options.json:
        print(json_text({"folder": str(models.folder()), "models": [_described(model) for model in models.KNOWN.values()]}))
        return OK
    for model in models.KNOWN.values():
        state = "here" if models.path(model.name) else "not fetched"
        default = "  (default)" if model.name == models.DEFAULT_MODEL else ""
        print(f"{model.name:20} {_megabytes(model):>8}  {model.license:12} {state}{default}")
    return OK


def _described(model: KnownModel) -> dict[str, object]:
    found = models.path(model.name)
    return {
        "name": model.name,
        "size": model.size,
        "license": model.license,
        "default": model.name == models.DEFAULT_MODEL,
        "present": found is not None,
        "path": str(found) if found else None,
    }


def _megabytes(model: KnownModel) -> str:
    return f"{model.size / 1e6:.0f} MB"


def _pull(options: argparse.Namespace) -> int:
    from .waiting import DownloadBar, error_console

    name = _name(options)
    with contextlib.closing(DownloadBar(error_console(), name)) as bar:
        path = models.pull(name, progress=bar)
    print(json_text({"name": name, "path": str(path)}) if options.json else path)
    return OK


def _path(options: argparse.Namespace) -> int:
    name = _name(options)
    path = models.path(name)
    if path is None:
        complain(f"{name} is not in {models.folder()}; fetch it with: xmlcall models pull {name}")
        return FAILED
    print(json_text({"name": name, "path": str(path)}) if options.json else path)
    return OK


def _remove(options: argparse.Namespace) -> int:
    name = _name(options)
    removed = models.remove(name)
    if options.json:
        print(json_text({"name": name, "removed": removed}))
    elif removed:
        print(f"removed {name} ({_megabytes(models.KNOWN[name])}) from {models.folder()}")
    else:
        print(f"nothing to remove: {name} is not in {models.folder()}")
    return OK


_A_MODEL: Final = "a name from `xmlcall models list`"
_OR_USUAL: Final = takes("name", nargs="?", default="local", help=f"{_A_MODEL}; local is the default one")
ACTIONS: Final = {
    "list": Action(_list, "list the known models, and which of them are downloaded"),
    "pull": Action(_pull, "download a model, if it is not there yet", _OR_USUAL),
    "path": Action(_path, "print the path of a model's file", _OR_USUAL),
    "rm": Action(_remove, "remove a model's file", takes("name", help=_A_MODEL)),
}
