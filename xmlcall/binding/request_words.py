"""The words of requests in `request_words.toml`, and the patterns of its tables."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

WORDS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("request_words.toml").read_text("utf-8"))


def pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a table."""
    row = WORDS[name]
    endings = f"(?:{'|'.join(row['endings'])})?" if "endings" in row else ""
    english = rf"\b(?:{'|'.join(row['english'])}){endings}\b"
    return re.compile(f"{english}|{row['other']}" if "other" in row else english, re.IGNORECASE)
