"""pi: python tests/clients/programs/pi_agent.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import json

import coding


def ask(url, folder, question):
    argv = ["--mode", "json", "--print", question]
    return last_said(coding.launch("pi", url, folder, argv, {"PI_OFFLINE": "1"}))


def last_said(events):
    """Return the last message; with `--mode text` an error is not shown."""
    read = [json.loads(line) for line in events.splitlines() if line.startswith("{")]
    ended = [event["message"] for event in read if event["type"] == "message_end"]
    said = [message for message in ended if message["role"] == "assistant"]
    return (said[-1].get("errorMessage") or "".join(part.get("text", "") for part in said[-1]["content"])) if said else events


if __name__ == "__main__":
    coding.main(ask)
