"""What the files of `deploy/` rely on, in one place: paths, options, settings and names that the rest of xmlcall gives them."""

from pathlib import Path
from typing import Final

__all__ = ["ALIVE", "DEPLOY", "HOME", "METRIC", "METRICS", "PORT", "READY", "ROOT", "TELL_SECONDS", "USER", "VENV"]

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"

PORT: Final = 8485
ALIVE: Final = "/health"  # the process lives; without a key
READY: Final = "/ready"  # a model can be reached; without a key
METRICS: Final = "/metrics"
METRIC: Final = "xmlcall_open_streams"
TELL_SECONDS: Final = 2  # after --grace, for telling callers that their answers end (`cli.listening`)

# The image.
USER: Final = 65532
VENV: Final = "/opt/xmlcall"
HOME: Final = "/var/lib/xmlcall"
