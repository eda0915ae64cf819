"""A place for tokens of OAuth that a test leaves nothing in."""


class MemoryTokens:
    """Keeps tokens for as long as the program runs."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """Return what is kept, None if nothing is."""
        return self._texts.get(key)

    def set(self, key: str, text: str) -> None:
        """Keep a text in place of another."""
        self._texts[key] = text

    def delete(self, key: str) -> bool:
        """Forget; tell whether anything was kept."""
        return self._texts.pop(key, None) is not None
