"""Codex: python tests/clients/programs/codex_exec.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import coding


def ask(url, folder, question, model="local"):
    argv = ["exec", "--skip-git-repo-check", "--sandbox", "workspace-write", question]
    return coding.launch("codex", url, folder, argv, model=model)


if __name__ == "__main__":
    coding.main(ask)
