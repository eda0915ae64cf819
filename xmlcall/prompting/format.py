"""How a model is prompted: the format that calls are written in, the language, and how many calls a reply may hold."""

from dataclasses import dataclass

from ..dialects import Dialect, select

__all__ = ["PromptFormat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFormat:
    """How a model is prompted.

    Args:
        dialect: name of the format in which the model is asked to write calls.
        lang: language of the prompts, `en` or `zh`.
        parallel: whether one reply may hold several calls.
    """

    dialect: str = "function_calls"
    lang: str = "en"
    parallel: bool = True

    @property
    def row(self) -> Dialect:
        """The format of calls, as a row of `dialects`."""
        return select(self.dialect)[0]
