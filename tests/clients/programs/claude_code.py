"""Claude Code: python tests/clients/programs/claude_code.py http://127.0.0.1:8485 [FOLDER QUESTION]"""

import coding

TOOLS = "Read,Edit,Write,Bash"
VARIABLES = {
    "ANTHROPIC_API_KEY": "none",
    "ANTHROPIC_MODEL": "local",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "local",
    "API_TIMEOUT_MS": "3000000",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "32768",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
}


def ask(url, folder, question, *options):
    argv = ["claude", "-p", question, "--tools", TOOLS, "--allowedTools", TOOLS, *options]
    return coding.run(argv, folder, VARIABLES | {"ANTHROPIC_BASE_URL": url})


if __name__ == "__main__":
    coding.main(ask)
