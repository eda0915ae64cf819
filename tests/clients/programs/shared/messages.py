"""The questions as messages of a chat."""

from shared import QUESTION as TEXT

QUESTION = {"role": "user", "content": TEXT}
OBJECT = {"role": "user", "content": f"{TEXT} Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}
