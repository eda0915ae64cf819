"""Codex with a model whose name it knows: python tests/clients/programs/codex_code_mode.py http://127.0.0.1:8485/v1

Such a model gets one tool, `exec`, which takes a program in JavaScript; all others are functions in that program.
"""

import codex_exec
import coding

if __name__ == "__main__":
    coding.main(lambda url, folder, question: codex_exec.ask(url, folder, question, model="gpt-6-sol"))
