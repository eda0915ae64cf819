"""What the rest of a reply may be, once a call was begun for the model: a grammar of the tools.

Never before the opener: under a hard form from its first token on, a model calls worse. So only a reply that we begin is held,
and its rest, where it was cut and goes on. A text that the grammar does not know goes on without one.
"""

import functools
from typing import Final

from ..dialects.write import beginning
from ..errors import UsageError
from ..grammars.calls import CallGrammar
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog

__all__ = ["Constraint"]


KEPT: Final = 8  # grammars of catalogs: that of 200 tools takes half a second to make


class Constraint:
    """Grammars for the replies to one catalog; that of the whole is made when the first is asked for.

    Args:
        catalog: what may be called.
        format: in which calls are begun.
    """

    def __init__(self, catalog: Catalog, format: PromptFormat) -> None:
        self._catalog = catalog
        self._format = format
        self._opener = beginning(format.row)

    def after(self, text: str) -> str:
        """Return what may follow a text, as GBNF; "" where nothing is held.

        Args:
            text: of the reply so far.
        """
        if not text.startswith(self._opener):
            return ""
        try:
            return _grammar_of(self._catalog, self._format).after(text)
        except UsageError:  # the text is none of the grammar's, or that would be too large
            return ""


@functools.lru_cache(maxsize=KEPT)
def _grammar_of(catalog: Catalog, format: PromptFormat) -> CallGrammar:
    return CallGrammar(catalog, dialect=format.row, parallel=format.parallel)
