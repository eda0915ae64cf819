"""Codex: python tests/clients/programs/codex_exec.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

from pathlib import Path

import coding

CONFIG = """
model = "local"
model_provider = "xmlcall"
model_context_window = 32768
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.xmlcall]
name = "xmlcall"
base_url = "http://127.0.0.1:8485/v1"
wire_api = "responses"
stream_idle_timeout_ms = 3000000
request_max_retries = 1
stream_max_retries = 0

[features]
goals = false
view_image = false

[agents]
enabled = false

[skills.bundled]
enabled = false

[analytics]
enabled = false
"""


def ask(url, folder, question, config=CONFIG):
    home = Path.home() / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(config.replace("http://127.0.0.1:8485/v1", url))
    argv = ["codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", question]
    return coding.run(argv, folder)


if __name__ == "__main__":
    coding.main(ask)
