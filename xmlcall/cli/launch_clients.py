"""The clients that `xmlcall launch` starts, and the settings of each; `tests/clients` runs the same settings.

A row says how its client learns of the proxy: by variables, files, arguments. Files are for a folder of the client alone,
which its variables or arguments name; without a folder they are for the place where the client looks by itself. This module
imports nothing of ours, because programs in other environments load it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CONTEXT: Final = 32_768  # tokens, if the proxy names no number
NO_KEY: Final = "none"  # clients want some text
_OUTPUT: Final = 4096
_SECONDS: Final = 3000  # enough for a slow machine to read a long prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyAddress:
    """What a client has to know; `folder` is for its files alone; None if a person keeps the files."""

    url: str
    model: str = "local"
    key: str = NO_KEY
    context: int = CONTEXT
    folder: Path | None = None

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    @property
    def output(self) -> int:
        """The most tokens of a reply."""
        return min(_OUTPUT, self.context // 4)

    def inside(self, **variables: str) -> dict[str, str]:
        """Return variables that name the folder, or a path in it; none without a folder."""
        return {} if self.folder is None else {name: str(self.folder / path) for name, path in variables.items()}

    def argument(self, option: str, path: str = "") -> list[str]:
        """Return an option that names the folder, or a path in it; none without a folder."""
        return [] if self.folder is None else [option, str(self.folder / path)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    env: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()  # variables that would override these
    files: Mapping[str, str] = field(default_factory=dict)  # path in the folder -> text
    before: Sequence[str] = ()  # arguments for running the same program once beforehand
    arguments: Sequence[str] = ()
    usual: Sequence[str] = ()  # arguments if the person gives none


@dataclass(frozen=True, slots=True)
class ClientRow:
    title: str
    get: str  # how to get it
    settings: Callable[[ProxyAddress], ClientSettings]  # makes the settings
    programs: Sequence[str] = ()  # the program's possible names; none if it is not started here
    places: Mapping[str, str] = field(default_factory=dict)  # path in the folder -> where the client looks by itself
    least_context: int = 0  # tokens without which it does not start
    note: str = ""  # what a person has to know


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _string(text: str) -> str:
    """Write a string for TOML, which has JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


# -- coding agents --------------------------------------------------------------------------------------------------------


def _aider(proxy: ProxyAddress) -> ClientSettings:
    model = f"openai/{proxy.model}"
    size = {"max_input_tokens": proxy.context, "max_output_tokens": proxy.output}
    return ClientSettings(
        env={"OPENAI_API_BASE": proxy.api, "OPENAI_API_KEY": proxy.key},
        files={"models.json": _json({model: {**size, "litellm_provider": "openai", "mode": "chat"}})},
        arguments=["--model", model, "--no-show-model-warnings", *proxy.argument("--model-metadata-file", "models.json")],
    )


def _claude(proxy: ProxyAddress) -> ClientSettings:
    env = {
        "ANTHROPIC_BASE_URL": proxy.url,
        "ANTHROPIC_API_KEY": proxy.key,
        "ANTHROPIC_MODEL": proxy.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": proxy.model,
        "API_TIMEOUT_MS": f"{_SECONDS * 1000}",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": f"{proxy.context}",  # or it assumes a million
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": f"{proxy.output}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",  # with betas it sends fields that are refused six times
    }
    return ClientSettings(env=env, unset=("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"))


def _cline(proxy: ProxyAddress) -> ClientSettings:
    provider = ["--provider", "openai-compatible", *proxy.argument("--data-dir")]
    about = ["--apikey", proxy.key, "--modelid", proxy.model, "--baseurl", proxy.api]
    return ClientSettings(before=["auth", *provider, *about], arguments=[*provider, "--model", proxy.model])


def _codex(proxy: ProxyAddress) -> ClientSettings:
    """Use arguments instead of a file of its own: its sandbox does not start if its home is a temporary folder."""
    provider = {
        "name": _string("xmlcall"),
        "base_url": _string(proxy.api),
        "wire_api": _string("responses"),
        "stream_idle_timeout_ms": f"{_SECONDS * 1000}",
        "request_max_retries": "1",
        "stream_max_retries": "0",
    }
    if proxy.key != NO_KEY:
        provider["env_key"] = _string("XMLCALL_API_KEY")
    rows = {
        "model": _string(proxy.model),
        "model_provider": _string("xmlcall"),
        "model_context_window": f"{proxy.context}",
        "web_search": _string("disabled"),
        **{f"model_providers.xmlcall.{name}": value for name, value in provider.items()},
        **dict.fromkeys(("features.goals", "features.view_image", "agents.enabled", "skills.bundled.enabled"), "false"),
        **dict.fromkeys(("analytics.enabled", "check_for_update_on_startup"), "false"),
    }
    if proxy.folder is not None:
        return ClientSettings(arguments=[part for name, value in rows.items() for part in ("-c", f"{name}={value}")])
    return ClientSettings(files={"config.toml": "".join(f"{name} = {value}\n" for name, value in rows.items())})


def _continue(proxy: ProxyAddress) -> ClientSettings:
    size = {"contextLength": proxy.context, "maxTokens": proxy.output, "temperature": 0}
    model = {
        "name": "xmlcall",
        "provider": "openai",
        "model": proxy.model,
        "apiBase": proxy.api,
        "apiKey": proxy.key,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use"],  # without it, it sends no tools
        "defaultCompletionOptions": size,
    }
    config = {"name": "xmlcall", "version": "0.0.1", "schema": "v1", "models": [model]}
    quiet = dict.fromkeys(("CONTINUE_TELEMETRY_ENABLED", "CONTINUE_CLI_ENABLE_TELEMETRY"), "0")
    return ClientSettings(files={"config.yaml": _json(config)}, env=quiet, arguments=proxy.argument("--config", "config.yaml"))


def _copilot(proxy: ProxyAddress) -> ClientSettings:
    provider = {"BASE_URL": proxy.api, "API_KEY": proxy.key, "WIRE_API": "responses"}
    env = {f"COPILOT_PROVIDER_{name}": value for name, value in provider.items()}
    return ClientSettings(env=env | {"COPILOT_MODEL": proxy.model})


def _crush(proxy: ProxyAddress) -> ClientSettings:
    model = {"id": proxy.model, "name": proxy.model, "context_window": proxy.context, "default_max_tokens": proxy.output}
    provider = {"name": "xmlcall", "type": "openai-compat", "base_url": proxy.api, "api_key": proxy.key, "models": [model]}
    chosen = {"provider": "xmlcall", "model": proxy.model}
    config = {
        "$schema": "https://charm.land/crush.json",
        "providers": {"xmlcall": provider},
        "models": {"large": chosen, "small": chosen},
        "options": {"disable_metrics": True},
    }
    return ClientSettings(files={"crush.json": _json(config)}, env=proxy.inside(CRUSH_GLOBAL_CONFIG="", CRUSH_GLOBAL_DATA="data"))


def _goose(proxy: ProxyAddress) -> ClientSettings:
    env = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": proxy.model,
        "GOOSE_CONTEXT_LIMIT": f"{proxy.context}",
        "GOOSE_DISABLE_SESSION_NAMING": "true",  # another request to the same model
        "OPENAI_HOST": proxy.url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "OPENAI_API_KEY": proxy.key,
        "OPENAI_TIMEOUT": f"{_SECONDS}",
    }
    return ClientSettings(env=env, unset=["OPENAI_BASE_URL"], usual=["session"])


def _kimi(proxy: ProxyAddress) -> ClientSettings:
    size = {"max_context_size": f"{proxy.context}", "max_output_size": f"{proxy.output}"}
    tables = {
        "providers.xmlcall": {"type": '"openai"', "base_url": _string(proxy.api), "api_key": _string(proxy.key)},
        "models.xmlcall": {"provider": '"xmlcall"', "model": _string(proxy.model), **size, "capabilities": '["tool_use"]'},
        "loop_control": {"reserved_context_size": f"{proxy.output}"},  # its default is more than most local contexts
    }
    lines = ['default_model = "xmlcall"', "telemetry = false"]
    for name, rows in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {value}" for key, value in rows.items())]
    return ClientSettings(files={"config.toml": "\n".join(lines) + "\n"}, env=proxy.inside(KIMI_CODE_HOME=""))


def _kimi_cli(proxy: ProxyAddress) -> ClientSettings:
    model = {"provider": "xmlcall", "model": proxy.model, "max_context_size": proxy.context}
    provider = {"type": "openai_legacy", "base_url": proxy.api, "api_key": proxy.key}
    config = {
        "default_model": "xmlcall",
        "providers": {"xmlcall": provider},
        "models": {"xmlcall": model},
        "loop_control": {"reserved_context_size": max(proxy.output, 1000)},  # it takes no smaller one
    }
    return ClientSettings(arguments=["--config", json.dumps(config)])


def _opencode(proxy: ProxyAddress) -> ClientSettings:
    model = {"tool_call": True, "limit": {"context": proxy.context, "output": proxy.output}}
    options = {"baseURL": proxy.api, "apiKey": proxy.key, "timeout": False}
    config = {
        "provider": {"xmlcall": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {proxy.model: model}}},
        "model": f"xmlcall/{proxy.model}",
        "tools": dict.fromkeys(("task", "skill", "todowrite", "webfetch"), False),
        "agent": {"title": {"disable": True}},
    }
    return ClientSettings(env={"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _pi(proxy: ProxyAddress) -> ClientSettings:
    model = {"id": proxy.model, "contextWindow": proxy.context, "maxTokens": proxy.output}
    provider = {"baseUrl": proxy.api, "api": "openai-completions", "apiKey": proxy.key, "models": [model]}
    return ClientSettings(
        files={"models.json": _json({"providers": {"xmlcall": provider}})},
        env=proxy.inside(PI_CODING_AGENT_DIR=""),
        arguments=["--provider", "xmlcall", "--model", proxy.model],
    )


def _qwen(proxy: ProxyAddress) -> ClientSettings:
    size = {"contextWindowSize": proxy.context, "timeout": _SECONDS * 1000}
    tools = {
        "exclude": ["agent", "list_agents", "skill", "notebook_edit", "get_goal", "update_goal"],
        "shell": {"enableInteractiveShell": False},  # or the output of a command can be lost on a busy machine
    }
    settings = {
        "model": {"name": proxy.model, "generationConfig": size},
        "tools": tools,
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return ClientSettings(
        files={"settings.json": _json(settings)},
        env={"OPENAI_BASE_URL": proxy.api, "OPENAI_API_KEY": proxy.key, "OPENAI_MODEL": proxy.model}
        | proxy.inside(QWEN_CODE_SYSTEM_SETTINGS_PATH="settings.json"),
        arguments=["--auth-type", "openai"],
    )


# -- assistants -----------------------------------------------------------------------------------------------------------


def _hermes(proxy: ProxyAddress) -> ClientSettings:
    model = {"provider": "custom", "default": proxy.model, "base_url": proxy.api, "api_key": proxy.key}
    config = {"model": {**model, "context_length": proxy.context}}
    return ClientSettings(files={"config.yaml": _json(config)}, env=proxy.inside(HERMES_HOME=""))


def _openclaw(proxy: ProxyAddress) -> ClientSettings:
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    size = {"contextWindow": proxy.context, "maxTokens": proxy.output}
    model = {"id": proxy.model, "name": proxy.model, "reasoning": False, "input": ["text"], "cost": cost, **size}
    provider = {"baseUrl": proxy.api, "apiKey": proxy.key, "api": "openai-completions", "models": [model]}
    agents = {"model": {"primary": f"xmlcall/{proxy.model}"}, **proxy.inside(workspace="workspace")}
    config = {"models": {"mode": "merge", "providers": {"xmlcall": provider}}, "agents": {"defaults": agents}}
    return ClientSettings(
        files={"openclaw.json": _json(config)},
        env=proxy.inside(OPENCLAW_CONFIG_PATH="openclaw.json", OPENCLAW_STATE_DIR=""),
        usual=["tui", "--local"],
    )


# -- chats, editors, programs for teams -----------------------------------------------------------------------------------


def _librechat(proxy: ProxyAddress) -> ClientSettings:
    models = {"default": [proxy.model], "fetch": True}
    endpoint = {"name": "xmlcall", "apiKey": proxy.key, "baseURL": proxy.api, "models": models, "titleModel": "current_model"}
    return ClientSettings(files={"librechat.yaml": _json({"version": "1.2.1", "endpoints": {"custom": [endpoint]}})})


def _llm(proxy: ProxyAddress) -> ClientSettings:
    model = {"model_id": proxy.model, "model_name": proxy.model, "api_base": proxy.api, "api_key_name": "xmlcall"}
    files = {
        "extra-openai-models.yaml": _json([{**model, "supports_tools": True, "supports_schema": True}]),
        "default_model.txt": proxy.model,
        "keys.json": _json({"xmlcall": proxy.key}),
    }
    return ClientSettings(files=files, env=proxy.inside(LLM_USER_PATH=""), usual=["chat"])


def _n8n(proxy: ProxyAddress) -> ClientSettings:
    return ClientSettings(env={"CREDENTIALS_OVERWRITE_DATA": json.dumps({"openAiApi": {"url": proxy.api, "apiKey": proxy.key}})})


def _ollmcp(proxy: ProxyAddress) -> ClientSettings:
    return ClientSettings(arguments=["--host", proxy.url])


def _open_webui(proxy: ProxyAddress) -> ClientSettings:
    env = {"OPENAI_API_BASE_URL": proxy.api, "OPENAI_API_KEY": proxy.key, "ENABLE_OLLAMA_API": "false"}
    return ClientSettings(env={**env, "ENABLE_PERSISTENT_CONFIG": "false"}, usual=["serve"])  # or it takes those of its database


def _zed(proxy: ProxyAddress) -> ClientSettings:
    able = {"tools": True, "images": False, "parallel_tool_calls": True, "prompt_cache_key": False}
    size = {"max_tokens": proxy.context, "max_output_tokens": proxy.output}
    models = [{"name": proxy.model, "display_name": proxy.model, **size, "capabilities": able}]
    settings = {
        "language_models": {"openai_compatible": {"xmlcall": {"api_url": proxy.api, "available_models": models}}},
        "agent": {"default_model": {"provider": "xmlcall", "model": proxy.model}},
    }
    return ClientSettings(
        files={"config/settings.json": _json(settings)},
        env={"XMLCALL_API_KEY": proxy.key},  # Zed derives the variable's name from the provider's
        arguments=["--foreground", *proxy.argument("--user-data-dir")],
        usual=["."],
    )


_NPM: Final = "npm install -g"

_LLM_FILES: Final = ("extra-openai-models.yaml", "default_model.txt", "keys.json")

CLIENTS: Final[Mapping[str, ClientRow]] = {
    "aider": ClientRow(
        "aider",
        "uv tool install aider-chat",
        _aider,
        ["aider"],
        places={"models.json": "~/.aider.model.metadata.json"},
        note="it uses no tools: the model writes edits as text",
    ),
    "claude": ClientRow(
        "Claude Code", f"{_NPM} @anthropic-ai/claude-code", _claude, ["claude"], note="`--bare` suits a small model best"
    ),
    "cline": ClientRow("Cline", f"{_NPM} cline", _cline, ["cline"]),
    "codex": ClientRow("Codex", f"{_NPM} @openai/codex", _codex, ["codex"], places={"config.toml": "~/.codex/config.toml"}),
    "continue": ClientRow(
        "Continue", f"{_NPM} @continuedev/cli", _continue, ["cn"], places={"config.yaml": "~/.continue/config.yaml"}
    ),
    "copilot": ClientRow("GitHub Copilot CLI", f"{_NPM} @github/copilot", _copilot, ["copilot"]),
    "crush": ClientRow(
        "Crush", f"{_NPM} @charmland/crush", _crush, ["crush"], places={"crush.json": "~/.config/crush/crush.json"}
    ),
    "goose": ClientRow("goose", "https://github.com/block/goose/releases", _goose, ["goose"]),
    "hermes": ClientRow(
        "Hermes Agent",
        "https://hermes-agent.nousresearch.com/docs/getting-started/installation",
        _hermes,
        ["hermes"],
        places={"config.yaml": "~/.hermes/config.yaml"},
        least_context=64_000,
        note="it starts with a context of 64,000 tokens or more",
    ),
    "kimi": ClientRow(
        "Kimi Code CLI",
        f"{_NPM} @moonshot-ai/kimi-code",
        _kimi,
        ["kimi"],
        places={"config.toml": "~/.kimi-code/config.toml"},
        note="it does not start with Node.js 20",
    ),
    "kimi-cli": ClientRow("kimi-cli (older)", "uv tool install kimi-cli", _kimi_cli, ["kimi-cli"]),
    "librechat": ClientRow(
        "LibreChat",
        "https://www.librechat.ai/docs/local",
        _librechat,
        places={"librechat.yaml": "librechat.yaml"},
        note="its file belongs in its folder; in a container the address is http://host.docker.internal",
    ),
    "llm": ClientRow(
        "llm", "uv tool install llm", _llm, ["llm"], places={name: f"~/.config/io.datasette.llm/{name}" for name in _LLM_FILES}
    ),
    "n8n": ClientRow(
        "n8n", f"{_NPM} n8n", _n8n, ["n8n"], note="a new credential `OpenAi` has the address; name the model in the node"
    ),
    "ollmcp": ClientRow("MCP Client for Ollama", "uv tool install mcp-client-for-ollama", _ollmcp, ["ollmcp"]),
    "open-webui": ClientRow("Open WebUI", "uv tool install open-webui", _open_webui, ["open-webui"]),
    "openclaw": ClientRow(
        "OpenClaw", f"{_NPM} openclaw", _openclaw, ["openclaw"], places={"openclaw.json": "~/.openclaw/openclaw.json"}
    ),
    "opencode": ClientRow("opencode", f"{_NPM} opencode-ai", _opencode, ["opencode"]),
    "oterm": ClientRow("oterm", "uv tool install oterm", lambda proxy: ClientSettings(env={"OLLAMA_URL": proxy.url}), ["oterm"]),
    "pi": ClientRow(
        "pi", f"{_NPM} @earendil-works/pi-coding-agent", _pi, ["pi"], places={"models.json": "~/.pi/agent/models.json"}
    ),
    "qwen": ClientRow(
        "Qwen Code", f"{_NPM} @qwen-code/qwen-code", _qwen, ["qwen"], places={"settings.json": "~/.qwen/settings.json"}
    ),
    "zed": ClientRow(
        "Zed",
        "https://zed.dev/download",
        _zed,
        ["zed", "zeditor"],
        places={"config/settings.json": "~/.config/zed/settings.json"},
    ),
}
