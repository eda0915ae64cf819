"""pi: python tests/clients/programs/pi_agent.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import json
from pathlib import Path

import agents

MODEL = {"id": "local", "contextWindow": 32768, "maxTokens": 4096}


def ask(url, folder, question):
    home = Path.home() / ".pi" / "agent"
    home.mkdir(parents=True, exist_ok=True)
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [MODEL]}
    (home / "models.json").write_text(json.dumps({"providers": {"xmlcall": provider}}))
    argv = ["pi", "--provider", "xmlcall", "--model", "local", "--mode", "json", "--print", question]
    return last_said(agents.run(argv, folder, {"PI_OFFLINE": "1"}))


def last_said(events):
    """Return the last message; with `--mode text` an error is not shown."""
    told = [event for event in map(json.loads, events.splitlines()) if event["type"] == "message_end"]
    message = [event["message"] for event in told if event["message"]["role"] == "assistant"][-1]
    return message.get("errorMessage") or "".join(part.get("text", "") for part in message["content"])


if __name__ == "__main__":
    agents.main(ask)
