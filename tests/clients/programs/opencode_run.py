"""opencode: python tests/clients/programs/opencode_run.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import coding

OFFLINE = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


def ask(url, folder, question):
    return coding.launch("opencode", url, folder, ["run", question], OFFLINE)


if __name__ == "__main__":
    coding.main(ask)
