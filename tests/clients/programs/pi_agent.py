"""pi: python tests/clients/programs/pi_agent.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import json
from pathlib import Path

import coding

MODEL = {"id": "local", "contextWindow": 32768, "maxTokens": 4096}


def ask(url, folder, question):
    home = Path.home() / ".pi" / "agent"
    home.mkdir(parents=True, exist_ok=True)
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [MODEL]}
    (home / "models.json").write_text(json.dumps({"providers": {"xmlcall": provider}}))
    argv = ["pi", "--provider", "xmlcall", "--model", "local", "--mode", "json", "--print", question]
    return last_said(coding.run(argv, folder, {"PI_OFFLINE": "1"}))


def last_said(events):
    """Return the last message; with `--mode text` an error is not shown."""
    read = [json.loads(line) for line in events.splitlines() if line.startswith("{")]
    ended = [event["message"] for event in read if event["type"] == "message_end"]
    said = [message for message in ended if message["role"] == "assistant"]
    return (said[-1].get("errorMessage") or "".join(part.get("text", "") for part in said[-1]["content"])) if said else events


if __name__ == "__main__":
    coding.main(ask)
