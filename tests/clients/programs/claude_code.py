"""Claude Code: python tests/clients/programs/claude_code.py http://127.0.0.1:8485 [FOLDER QUESTION]"""

import coding

TOOLS = "Read,Edit,Write,Bash"


def ask(url, folder, question, *options):
    argv = ["-p", question, "--tools", TOOLS, "--allowedTools", TOOLS, *options]
    return coding.launch("claude", url, folder, argv)


if __name__ == "__main__":
    coding.main(ask)
