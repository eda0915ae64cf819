"""A window with the page in it, and all that it complains of."""

import re
from typing import Any

from page_stage import Program

__all__ = ["Window"]

PATIENCE = 30_000  # milliseconds that anything may take to appear, also beside tests that keep all cores busy


class Window:
    """A page of Playwright's.

    Args:
        page: to open it in.
        of: the program that serves it.
    """

    def __init__(self, page: Any, of: Program) -> None:
        self.page, self.program = page, of
        self._said: list[str] = []
        self._borne: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self._said.append(f"console, {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self._said.append(f"error: {error}"))
        page.on("dialog", self._dismiss)
        page.on("request", self._watch)

    def open(self, path: str = "") -> None:
        """Go to the page as a person who was given its address, then to a view such as `#/chat`."""
        self.page.goto(self.program.page)
        if path:
            self.page.goto(f"{self.program.origin}/ui/{path}")

    def bears(self, pattern: str) -> None:
        """Expect complaints that match from now on, such as those of a connection that a test breaks."""
        self._borne.append(pattern)

    @property
    def complaints(self) -> list[str]:
        """Messages on the console, errors, dialogs, and requests to elsewhere."""
        return [said for said in self._said if not any(re.search(pattern, said) for pattern in self._borne)]

    def _dismiss(self, dialog: Any) -> None:
        self._said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _watch(self, request: Any) -> None:
        if not request.url.startswith((f"{self.program.origin}/ui/", "data:", "blob:")):
            self._said.append(f"request: {request.url}")
