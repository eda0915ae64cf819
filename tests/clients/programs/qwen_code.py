"""Qwen Code: python tests/clients/programs/qwen_code.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

from pathlib import Path

import coding

SETTINGS = """{
  "model": {"name": "local", "generationConfig": {"contextWindowSize": 32768, "timeout": 3000000}},
  "tools": {
    "exclude": ["agent", "list_agents", "skill", "notebook_edit", "get_goal", "update_goal"],
    "shell": {"enableInteractiveShell": false}
  },
  "telemetry": {"enabled": false},
  "privacy": {"usageStatisticsEnabled": false},
  "general": {"enableAutoUpdate": false}
}"""
VARIABLES = {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "local", "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"}


def ask(url, folder, question):
    home = Path.home() / ".qwen"
    home.mkdir(exist_ok=True)
    (home / "settings.json").write_text(SETTINGS)
    argv = ["qwen", "--auth-type", "openai", "--yolo", "--prompt", question]
    return coding.run(argv, folder, VARIABLES | {"OPENAI_BASE_URL": url})


if __name__ == "__main__":
    coding.main(ask)
