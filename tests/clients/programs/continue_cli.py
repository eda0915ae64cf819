"""Continue's command line: python tests/clients/programs/continue_cli.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import coding


def ask(url, folder, question):
    return coding.launch("continue", url, folder, ["--auto", "--print", question])


if __name__ == "__main__":
    coding.main(ask)
