"""Qwen Code: python tests/clients/programs/qwen_code.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import coding


def ask(url, folder, question):
    return coding.launch("qwen", url, folder, ["--yolo", "--prompt", question], {"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"})


if __name__ == "__main__":
    coding.main(ask)
