"""Import an engine's parser interface without the engine: its own files for real, what runs models stood in for.

A stand-in is a module whose every name is an empty class. The parser's interface needs them for type hints, for parsers of other
formats, and for parts of requests that these tests do not send; what is stood in is in the tables below, and nothing else is.
The package's own `__init__` does not run: it sets up torch.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["STOOD_IN", "prepare"]

_OTHERS_OF_VLLM: Final = ["msgspec", "openai_harmony", "partial_json_parser", "torch", "transformers", "xgrammar"]
_RUNS_MODELS: Final = ["config", "distributed", "entrypoints.chat_utils", "lora", "platforms", "renderers", "tokenizers", "v1"]
STOOD_IN: Final = {
    "vllm": [*_OTHERS_OF_VLLM, *(f"vllm.{name}" for name in _RUNS_MODELS)],
    "sglang": ["IPython", "msgspec", "orjson", "partial_json_parser", "pybase64", "tqdm", "xgrammar"],
}
"""Engine -> modules that are stood in for, with all below them."""


_VALUES: Final = {"make_tool_call_id": lambda *_, **__: "call_of_vllm"}  # what has to be more than empty


class _Empty(type):
    """A class of which every name is such a class, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (_Base,), {})

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__


class _Base(metaclass=_Empty):
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __init_subclass__(cls, **_: object) -> None:
        pass  # msgspec takes options there

    def __class_getitem__(cls, _: object) -> Any:
        return cls

    def __call__(self, *arguments: Any, **_: object) -> Any:
        return arguments[0] if arguments and callable(arguments[0]) else self  # a decorator

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _Module(types.ModuleType):
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _VALUES.get(name) or _Empty(name, (_Base,), {})
        setattr(self, name, value)
        return value


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(name == each or name.startswith(f"{each}.") for each in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def prepare(engine: str, folder: Path) -> None:
    """Make an engine importable in this process."""
    package = types.ModuleType(engine)
    package.__path__ = [str(folder / engine)]
    sys.modules[engine] = package
    sys.meta_path.insert(0, _StandIns(STOOD_IN[engine]))
