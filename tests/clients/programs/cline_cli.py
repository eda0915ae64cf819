"""Cline's command line: python tests/clients/programs/cline_cli.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import json
from pathlib import Path

import coding

PROVIDER = ["--provider", "openai-compatible", "--data-dir", str(Path.home() / "cline")]


def ask(url, folder, question):
    coding.run(["cline", "auth", *PROVIDER, "--apikey", "none", "--modelid", "local", "--baseurl", url], folder)
    return last_said(coding.run(["cline", *PROVIDER, "--model", "local", "--json", "--cwd", str(folder), question], folder))


def last_said(lines):
    """Return the answer or the error; without `--json` the results of tools stand among the text."""
    events = [json.loads(line).get("event", {}) for line in lines.splitlines() if line.startswith("{")]
    ends = [event for event in events if event.get("type") in ("done", "error")]
    return (ends[-1].get("text") or ends[-1]["error"]["message"]) if ends else lines


if __name__ == "__main__":
    coding.main(ask)
