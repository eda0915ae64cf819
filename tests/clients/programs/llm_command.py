"""The command `llm`, with a model in its extra-openai-models.yaml: python tests/clients/programs/llm_command.py http://127.0.0.1:8485/v1"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import coding
from shared import QUESTION

MULTIPLY = """
def multiply(a: int, b: int) -> int:
    "Multiply two integers."
    return a * b
"""
HOWS = {
    "whole": [QUESTION, "--no-stream", "--functions", MULTIPLY],
    "streamed": [QUESTION, "--functions", MULTIPLY],
    "structured": [QUESTION + " Answer as an object.", "--no-stream", "--schema", "product int"],
    "structured streamed": [QUESTION + " Answer as an object.", "--schema", "product int"],
    "error": ["This is too long.", "--functions", MULTIPLY],
}


def main(url):
    table = coding.launch_clients()
    with tempfile.TemporaryDirectory() as folder:
        settings = table.CLIENTS["llm"].settings(table.ProxyAddress(url=url.removesuffix("/v1"), folder=Path(folder)))
        for path, text in settings.files.items():
            Path(folder, path).write_text(text)
        for how, arguments in HOWS.items():
            argv = ["llm", "prompt", "--option", "temperature", "0", *arguments]
            done = subprocess.run(argv, env={**os.environ, **settings.env}, capture_output=True, text=True)
            print(f"{how}: {done.stdout}{done.stderr}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
