"""A log that programs read: one JSON object a line.

The names are those that collectors of logs know: `time` (ISO 8601, UTC), `level`, `logger`, `message`. What a record says of a
request stands beside them (see `Observing.over`): no bodies, no headers, no keys. JSON escapes line ends, so nobody can write a
line of their own into the log; everything beyond ASCII is escaped, too, since a terminal obeys some of it.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonFormatter"]


class JsonFormatter(logging.Formatter):
    """Writes records as JSON; what a record has as `facts` comes with them."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= getattr(record, "facts", {})
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said)
