"""Claude Code with a short prompt: python tests/clients/programs/claude_code_bare.py http://127.0.0.1:8485 [FOLDER QUESTION]"""

import claude_code
import coding

if __name__ == "__main__":
    coding.main(lambda url, folder, question: claude_code.ask(url, folder, question, "--bare"))
