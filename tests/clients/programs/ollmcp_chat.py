"""MCP Client for Ollama, typed into: python tests/clients/programs/ollmcp_chat.py http://127.0.0.1:8485"""

import re
import sys
from pathlib import Path

import pexpect

SERVER = Path(__file__).parents[1] / "multiply_server.py"
SECONDS = 600  # a model on a slow machine
QUESTIONS = {"agent": "What is 1234 times 5678?", "error": "This is too long."}
CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07)|\r")

if __name__ == "__main__":
    arguments = ["--host", sys.argv[1], "--mcp-server", str(SERVER)]
    child = pexpect.spawn("ollmcp", arguments, encoding="utf-8", timeout=SECONDS, dimensions=(50, 300))
    for how, question in QUESTIONS.items():
        child.expect("❯ ")
        child.sendline(question)
        child.expect("waiting for ollama")
        child.expect("Answer|Error")
        child.expect("❯ ")
        print(f"{how}: {' '.join(CONTROL.sub('', child.before).split())}", flush=True)
        child.sendline("")
    child.expect("❯ ")
    child.sendline("/quit")
    child.expect(pexpect.EOF)
