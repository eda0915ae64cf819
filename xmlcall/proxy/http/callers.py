"""What a proxy serves, and what of it one caller has: the models that its key may use, under the names that callers know.

One model without a name of its own answers for every name: clients have names that they cannot change. Several are told apart by
their names and aliases. A model that a key may not use is not there for it: it is in no list, and asking for it gives the same
error as a name that means nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from ..engine.engine import Engine
from ..formats.contract import ApiError
from ..formats.ollama import is_named
from .access import Key

__all__ = ["Caller", "ServedModel", "ServedModels", "serving"]

SHOWN: Final = 80  # characters of a name that somebody sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model under a name.

    Args:
        given_name: under which callers know it; "" for that of the model server.
    """

    engine: Engine
    given_name: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name under which callers know it."""
        return self.given_name or self.engine.model

    def is_meant(self, name: str) -> bool:
        """Say whether a name means this model, by its own name or Ollama's with the tag `latest`."""
        return is_named(self.name, name)

    def is_alias(self, name: str) -> bool:
        """Say whether another name means this model."""
        return any(fnmatchcase(name, alias) for alias in self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """All that a proxy serves.

    Args:
        models: at least one; the first is that of requests which name none and could name several.
    """

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
    """Who asks."""

    served: ServedModels
    key: Key | None = None

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """The models that are there for this caller."""
        return tuple(self._models())

    def _models(self) -> Iterator[ServedModel]:
        return (model for model in self.served.models if self.key is None or self.key.may_use(model.name))

    def model(self, name: Any) -> ServedModel:
        """Return the model that a request means.

        Args:
            name: as it came, of any type; a request without one means the first model.
        """
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

    def first(self) -> ServedModel:
        """Return the model that paths without a name are about."""
        return self.model(None)
