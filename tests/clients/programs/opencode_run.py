"""opencode: python tests/clients/programs/opencode_run.py http://127.0.0.1:8485/v1 [FOLDER QUESTION]"""

import json

import coding

CONFIG = """{
  "provider": {
    "xmlcall": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "http://127.0.0.1:8485/v1", "apiKey": "none", "timeout": false},
      "models": {"local": {"tool_call": true, "limit": {"context": 32768, "output": 4096}}}
    }
  },
  "model": "xmlcall/local",
  "tools": {"task": false, "skill": false, "todowrite": false, "webfetch": false},
  "agent": {"title": {"disable": true}},
  "permission": {"edit": "allow", "bash": "allow", "external_directory": "deny"},
  "share": "disabled"
}"""
OFFLINE = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


def ask(url, folder, question):
    config = json.loads(CONFIG.replace("http://127.0.0.1:8485/v1", url))
    return coding.run(["opencode", "run", question], folder, OFFLINE | {"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


if __name__ == "__main__":
    coding.main(ask)
