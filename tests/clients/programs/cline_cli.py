"""Cline's command line: python tests/clients/programs/cline_cli.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import json

import coding


def ask(url, folder, question):
    return last_said(coding.launch("cline", url, folder, ["--json", "--cwd", str(folder), question]))


def last_said(lines):
    """Return the answer or the error; without `--json` the results of tools stand among the text."""
    events = [json.loads(line).get("event", {}) for line in lines.splitlines() if line.startswith("{")]
    ends = [event for event in events if event.get("type") in ("done", "error")]
    return (ends[-1].get("text") or ends[-1]["error"]["message"]) if ends else lines


if __name__ == "__main__":
    coding.main(ask)
