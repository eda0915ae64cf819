"""Continue's command line: python tests/clients/programs/continue_cli.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

from pathlib import Path

import coding

CONFIG = """
name: xmlcall
version: 0.0.1
schema: v1
models:
  - name: xmlcall
    provider: openai
    model: local
    apiBase: http://127.0.0.1:8485/v1
    apiKey: none
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: 32768
      maxTokens: 4096
      temperature: 0
"""
OFFLINE = {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_ENABLE_TELEMETRY": "0"}


def ask(url, folder, question):
    config = Path.home() / "config.yaml"
    config.write_text(CONFIG.replace("http://127.0.0.1:8485/v1", url))
    return coding.run(["cn", "--config", str(config), "--auto", "--print", question], folder, OFFLINE)


if __name__ == "__main__":
    coding.main(ask)
