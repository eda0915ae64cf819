"""The models that a proxy serves, and the subset that each caller's key may use, under the names that callers know.

A single model without a name of its own answers to every name, because some clients use a fixed name. Several models are
distinguished by their names and aliases. A model that a key may not use is invisible to its caller: no list contains it, and a
request for it gets the same error as an unknown name.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from ..engine.engine import Engine
from ..formats.contract import ApiError
from ..formats.ollama import is_named
from .access import Key

__all__ = ["Caller", "ServedModel", "ServedModels", "serving"]

SHOWN: Final = 80  # characters of a requested name that an error shows


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model under a name; a `given_name` of "" stands for the model server's name."""

    engine: Engine
    given_name: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name under which callers know it."""
        return self.given_name or self.engine.model

    def is_meant(self, name: str) -> bool:
        """Return whether a name refers to this model, with or without Ollama's tag `latest`."""
        return is_named(self.name, name)

    def is_alias(self, name: str) -> bool:
        """Return whether a name matches one of the aliases."""
        return any(fnmatchcase(name, alias) for alias in self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """All models of a proxy, at least one; the first answers requests that name none, or with `takes_any_name` every name."""

    models: tuple[ServedModel, ...]
    takes_any_name: bool = False

    @property
    def engine(self) -> Engine:
        """The engine of the first model."""
        return self.models[0].engine


def serving(engine: Engine) -> ServedModels:
    """Serve one model under every name."""
    return ServedModels(models=(ServedModel(engine=engine),), takes_any_name=True)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, with the key that it sent."""

    served: ServedModels
    key: Key | None = None

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """The models that this caller may use."""
        return tuple(model for model in self.served.models if self.key is None or self.key.may_use(model.name))

    def model(self, name: Any) -> ServedModel:
        """Return the model that a request names, unchecked; without a name, the first model is meant."""
        models = self.models
        if models and (self.served.takes_any_name or not name):
            return models[0]
        if isinstance(name, str):
            for meant in (ServedModel.is_meant, ServedModel.is_alias):
                if found := next((model for model in models if meant(model, name)), None):
                    return found
        names = ", ".join(repr(model.name) for model in models) or "no model that this key may use"
        message = f"model: expected one of {names}, got {str(name)[:SHOWN]!r}"
        raise ApiError(message, status=404, param="model", code="model_not_found")
