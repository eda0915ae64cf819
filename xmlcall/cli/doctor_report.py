"""The report of `xmlcall doctor`, for people and as JSON. No I/O.

People paste it into issues. So it contains no keys, no users or passwords of addresses, and no home folders, wherever they occur:
a careless server repeats the key that it was sent, and llama.cpp names a model by the path of its file. What servers and models
wrote is cut to a length, and control characters in it are escaped.
"""

import json
import platform
import re
import shlex
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ..records.audit import MASK, secret_places
from .doctor_findings import Findings, Outcome, Trial, spoken_of
from .plain import visible

# -- what to do --------------------------------------------------------------------------------------------------------
# Names of parsers are those of vLLM 0.33, SGLang 0.5.23 and tabbyAPI (docs/10.-Tool-Calling.md); options of the other servers
# are in their documentation.


ROOMY: Final = 8192  # tokens: below, a few tools and their results fill the context
ENOUGH: Final = 16384  # tokens: what is suggested
_NAME: Final = re.compile(r"\w[\w.:/@+\-]{0,199}", re.ASCII)
_WRONG: Final = ("wrong", "invalid", "ignores", "empty", "thinking")
_CLIENT: Final = "OPENAI_BASE_URL=http://127.0.0.1:8485/v1 your-client"  # where `serve` listens by default
_LARGER: Final = {
    "here": ("{serve}",),
    "llama.cpp": ("-c {enough}",),
    "ollama": ("OLLAMA_CONTEXT_LENGTH={enough} ollama serve",),
    "vllm": ("--max-model-len {enough}",),
    "sglang": ("--context-length {enough}",),
    "lmstudio": ("lms load {model} --context-length {enough}",),
    "koboldcpp": ("--contextsize {enough}",),
    "tabbyapi": ("model:", "  max_seq_len: {enough}", "  cache_size: {enough}"),
}
_STARTED: Final = {
    "vllm": ("vLLM", "vllm serve", " --enable-auto-tool-choice"),
    "sglang": ("SGLang", "sglang serve --model-path", ""),
}
Advice = tuple[str, ...]  # a reason, and lines to copy


_PARSER_OF: Final = ("vllm", "sglang", "tabbyapi")
PARSERS: Final[Mapping[str, Sequence[str]]] = tomllib.loads(Path(__file__).with_name("parsers.toml").read_text(encoding="utf-8"))
"""The format that a model was most likely trained on (`dialects`) -> its parsers in vLLM, SGLang and tabbyAPI, if any."""


def advice(found: Findings) -> list[dict[str, Any]]:
    """Return what to do, the most important first: `why`, and `lines` to copy."""
    rows: list[Advice] = [
        (f"Something listens on this machine where {product} usually does:", f"xmlcall doctor {address}")
        for address, product in found.listening
    ]
    rows += _past(found) if found.barrier else [*_first(found), *_settings(found), *_limits(found)]
    return [{"why": why, "lines": lines} for why, *lines in rows]


def kind_of(found: Findings) -> str:
    """Return which product the server is; "" if unknown."""
    return found.facts.kind or (found.known.server if found.known.server in ("llama.cpp", "ollama") else "")


def serve_line(found: Findings, context: int | None = None) -> str:
    """Return the command that puts xmlcall in front of this model; `context` takes the place of the context that was given."""
    model = f"ollama:{_typed_name(found)}" if _is_ollama_by_url(found) else found.named
    if found.key_variable:
        entry = json.dumps([{"name": _typed_name(found), "address": model, "api_key": "KEY"}])
        before, _, after = shlex.quote(entry).rpartition("KEY")
        return f"XMLCALL_MODEL={before}'\"${found.key_variable}\"'{after} xmlcall serve"
    line = f"{_ollama_host(found)}xmlcall serve --model {_quoted(model)}"
    context = context or found.context_option
    return f"{line} --context {context}" if context else line


def _quoted(text: str) -> str:
    return f"~/{shlex.quote(text[2:])}" if text.startswith("~/") else shlex.quote(text)


def _is_ollama_by_url(found: Findings) -> bool:
    return kind_of(found) == "ollama" and not found.named.startswith("ollama:")


def _ollama_host(found: Findings) -> str:
    """Return the variable with Ollama's address as a prefix of a command, unless the address is the usual one."""
    parts = urlsplit(found.address)
    if not _is_ollama_by_url(found) or (parts.hostname in ("127.0.0.1", "localhost") and parts.port == 11434):
        return ""
    return f"OLLAMA_HOST={shlex.quote(found.address.removesuffix('/v1'))} "


def _typed_name(found: Findings) -> str:
    """Return the server's name of the model, if it is safe in a command, because the server chose it."""
    return found.model if _NAME.fullmatch(found.model) else "MODEL"


def _parser(found: Findings) -> str:
    """Return the name of the server's parser for the model's format; "" if it has none, or uses it already."""
    name = dict(zip(_PARSER_OF, PARSERS.get(found.known.family, ()), strict=False)).get(kind_of(found), "")
    return "" if kind_of(found) == "sglang" and name == found.facts.tool_parser else name


def _is_by_ollama(found: Findings) -> bool:
    return found.named.startswith("ollama:")


def _again(found: Findings) -> str:
    return f"xmlcall doctor {_quoted(found.named)}" + (f" --api-key-from {found.key_variable}" if found.key_variable else "")


def _patience(found: Findings) -> Advice:
    why = "The server did not answer everything in time: it may be loading the model, or be slow. Allow more time:"
    return why, f"{_again(found)} --timeout 600"


def _past(found: Findings) -> Iterator[Advice]:
    """Yield what helps past a barrier."""
    match found.barrier:
        case "no connection" if _is_by_ollama(found):
            yield "Start Ollama; if it runs elsewhere, say where:", "ollama serve", f"OLLAMA_HOST=HOST:PORT {_again(found)}"
        case "no connection":
            port = urlsplit(found.address).port or 8080
            yield "Start the server, or check its address and port:", f"llama-server -m MODEL.gguf --jinja --port {port}"
            yield "Or test a small model that xmlcall fetches and runs itself:", "xmlcall doctor local"
        case "no answer":
            yield _patience(found)
        case "key":
            is_refused, variable = bool(found.key_variable), found.key_variable or "VARIABLE"
            why = "The server asks for a key. Put it into an environment variable:"
            lines = f"export {variable}=...", f"xmlcall doctor {_quoted(found.named)} --api-key-from {variable}"
            yield "The server refuses the key in this variable:" if is_refused else why, *lines
        case "loading":
            yield "The server is still loading its model, or too busy. Try again in a moment:", _again(found)
        case "no model" if _is_by_ollama(found):
            yield "Fetch the model:", f"ollama pull {_typed_name(found)}"
        case "no model":
            api = found.address if found.address.endswith("/v1") else f"{found.address}/v1"
            yield "Check the address: OpenAI's API is usually under /v1.", f"xmlcall doctor {api}"


def _first(found: Findings) -> Iterator[Advice]:
    """Yield how to get calls now."""
    native, serve, is_ours = found.native_outcome, serve_line(found), kind_of(found) == "xmlcall"
    failed = found.prompt_outcome if found.works == "no" else ""
    if is_ours and native != "works":
        yield "This is `xmlcall serve` itself. Test the model server behind it:", "xmlcall doctor MODEL"
    if not is_ours and native == "works":
        why = "Calls work as they are. If your client still gets none, check what it sends and what the model answers:"
        yield why, f"{serve} --ui", _CLIENT
    if found.known.chat_template is False:
        why = "The model has no chat template, so it is a base model, which does not answer. Take an instruct model:"
        yield why, "xmlcall models list"
    if not is_ours and found.works == "prompt":
        why = "xmlcall offers the tools in the prompt and reads the calls, as in the second test. Point your client at it:"
        yield why, serve, _CLIENT
    if failed in _WRONG and not found.key_variable:  # `probe` takes no key
        why = "The model does not call correctly in our usual format either. Measure which one suits it (10 to 20 minutes):"
        yield why, f"xmlcall probe {_quoted(found.named)}"
    if not found.facts.kind and native == "drops":
        why = (
            "The server's chat template does not show tools to the model. If the server accepts another one, this one shows them:"
        )
        yield why, "xmlcall template > tools.jinja"
    if failed in _WRONG:
        why = "Or take another instruct model, preferably a larger one (docs/models.md); these were measured:"
        yield why, "xmlcall models list"
    if failed in ("fails", "refuses"):
        yield "The server also fails on a request without `tools`. Its log says why; once that is fixed:", _again(found)


def _settings(found: Findings) -> Iterator[Advice]:
    kind, native, model, parser = kind_of(found), found.native_outcome, _typed_name(found), _parser(found)
    is_unread = native in ("leaks", "drops", "ignores")
    if kind == "llama.cpp" and spoken_of(found.native, "jinja", "unsupported param: tools"):
        yield "llama-server shows tools to the model only with `--jinja`:", "llama-server -m MODEL.gguf --jinja"
    if kind == "llama.cpp" and native == "drops" and not found.is_local and found.known.chat_template is not False:
        why = "Or give llama-server a chat template that knows `tools`, if there is one for this model"
        yield f"{why} (llama.cpp: models/templates):", "llama-server -m MODEL.gguf --jinja --chat-template-file TEMPLATE.jinja"
    if kind in _STARTED and (is_unread or native == "refuses"):
        title, start, switch = _STARTED[kind]
        start = f"{start} {model}"
        if parser:
            why = f"Or let {title} read the calls. The model was most likely trained on the format {found.known.family}:"
            yield why, f"{start}{switch} --tool-call-parser {parser}"
        why = f"Or let {title} use xmlcall's prompt and parser, installed into its environment (docs/reference/engines.md):"
        line = f"{start} --chat-template tools.jinja{switch} --tool-call-parser xmlcall"
        yield why, "xmlcall template > tools.jinja", line
    if kind == "tabbyapi" and is_unread and parser:
        yield "Or let tabbyAPI read the calls, in its config.yml:", "model:", f"  tool_format: {parser}"
    if kind == "koboldcpp" and (is_unread or native in ("wrong", "invalid")):
        why = "Or let KoboldCpp use the model's own chat template for tools:"
        yield why, "koboldcpp --model MODEL.gguf --jinja --jinja_tools"


def _limits(found: Findings) -> Iterator[Advice]:
    """Yield what may go wrong afterwards."""
    length = found.context_length
    if length is not None and length < ROOMY:
        why = f"The context has only {length} tokens. A few tools and their results fill it."
        lines = _LARGER.get("here" if found.is_local or _is_by_ollama(found) else kind_of(found), ())
        how = "If the model was trained for more, start it with:" if lines else "Start the server with a larger one."
        yield (
            f"{why} {how}",
            *(line.format(model=_typed_name(found), serve=serve_line(found, ENOUGH), enough=ENOUGH) for line in lines),
        )
    if _is_ollama_by_url(found) and length is None:
        why = "Clients cannot set the context over Ollama's /v1, and a prompt that is too long loses its tools silently:"
        yield why, f"OLLAMA_CONTEXT_LENGTH={ENOUGH} ollama serve"
    if found.plain.streaming == "at once":
        why = "The whole reply arrived at once: something in front of the server buffers it. For nginx:"
        yield why, "proxy_buffering off;"
    if found.plain.is_late or "silent" in (found.native_outcome, found.prompt_outcome):
        yield _patience(found)


# -- the report --------------------------------------------------------------------------------------------------------


TEXT_CHARACTERS: Final = 300
ARGUMENT_CHARACTERS: Final = 200
ERROR_CHARACTERS: Final = 400
NAME_CHARACTERS: Final = 100
MOST_CALLS: Final = 3
MOST_ISSUES: Final = 3
WIDTH: Final = 100

NATIVE_WORDS: Final[Mapping[Outcome, str]] = {
    "works": "works: the server reads the model's calls",
    "leaks": "leaks: the server leaves the call in the text, where clients do not see it",
    "wrong": "wrong: the server reads a call, with wrong values",
    "invalid": "wrong: the server reads a call that does not fit the tool",
    "drops": "drops: the server drops `tools` without a word, and the model never sees them",
    "ignores": "no call: the server accepts `tools`, but the model answers in words",
    "thinking": "no call: the reply was still reasoning when it was cut",
    "empty": "no call: the reply is empty",
    "refuses": "refuses: the server refuses requests with `tools`",
    "fails": "fails: the server answers with an error",
    "silent": "no answer in time",
    "untested": "not tested",
}
PROMPT_WORDS: Final[Mapping[Outcome, str]] = {
    **NATIVE_WORDS,
    "works": "works: xmlcall reads the model's call",
    "wrong": "wrong: xmlcall reads a call, with wrong values",
    "invalid": "wrong: xmlcall reads a call that does not fit the tool",
    "ignores": "no call: the model answers in words",
    "refuses": "fails: the server refuses the request",
}

_STREAMS: Final = {"yes": "yes", "at once": "no, the whole reply arrives at once", "no": "no", "unknown": "unknown"}
_HOMES: Final = re.compile(
    r"(?<![\w.~])(?:/(?:home|Users)/[^/\s\"']{1,60}|/root(?=/|\b)|[A-Za-z]:\\{1,2}Users\\{1,2}[^\\\s\"']{1,60})"
)
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/\s@]{1,200}@")


def report_of(found: Findings, known: Collection[str] = (), home: str = "") -> dict[str, Any]:
    """Return the report as a JSON value, without `known` secrets: keys, passwords, users of addresses; `home` becomes `~`."""
    report = {
        "xmlcall": version("xmlcall"),
        "python": platform.python_version(),
        "system": platform.system(),
        "address": found.address,
        "model": visible(found.model[:NAME_CHARACTERS]),
        "model_file": visible(found.known.model_file[:NAME_CHARACTERS]),
        "is_first_model": found.is_first_model,
        "fingerprint": next(iter(found.known.fingerprints), ""),
        "server": {
            "kind": kind_of(found),
            "name": visible(found.facts.name[:NAME_CHARACTERS]),
            "version": visible((found.facts.version or found.known.build)[:NAME_CHARACTERS]),
            "tool_parser": found.facts.tool_parser,
        },
        "template": {
            "exists": found.known.chat_template,
            "tools": found.template_has_tools,
            "family": found.known.family,
            "opens_reasoning": found.known.reasoning_open,
        },
        "context_length": found.context_length,
        "plain_error": _shown(found.plain.error, ERROR_CHARACTERS),
        "streaming": found.plain.streaming,
        "logprobs": found.plain.logprobs,
        "speed": {"prompt": _rounded(found.prompt_speed), "reply": _rounded(found.reply_speed)},
        "profile": found.profile,
        "native": _trial(found.native, found.native_outcome, NATIVE_WORDS),
        "prompt": _trial(found.prompt, found.prompt_outcome, PROMPT_WORDS),
        "works": found.works,
        "barrier": found.barrier,
        "problem": visible(found.problem[:ERROR_CHARACTERS]),
    }
    cleared: dict[str, Any] = _cleared(report, known, home)
    items = [{**item, "lines": list(map(visible, item["lines"]))} for item in advice(found)]
    return {**cleared, "advice": [_cleared(item, known, home, is_ours=True) for item in items]}


def _rounded(speed: float | None) -> float | None:
    return None if speed is None else round(speed, 1)


def _trial(trial: Trial | None, outcome: Outcome, words: Mapping[Outcome, str]) -> dict[str, Any]:
    trial = trial or Trial()
    return {
        "outcome": outcome,
        "summary": words[outcome],
        "text": _shown(trial.text, TEXT_CHARACTERS),
        "reasoning": _shown(trial.reasoning, TEXT_CHARACTERS),
        "calls": [
            {
                "name": _shown(call.name, NAME_CHARACTERS),
                "arguments": None if call.arguments is None else _shown(_json(call.arguments), ARGUMENT_CHARACTERS),
                "issues": [_shown(issue, ARGUMENT_CHARACTERS) for issue in call.issues[:MOST_ISSUES]],
                "by": call.by,
                "repairs": list(call.repairs),
            }
            for call in trial.calls[:MOST_CALLS]
        ],
        "error": _shown(trial.error, ERROR_CHARACTERS),
        "prompt_tokens": trial.prompt_tokens,
    }


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(nested too deeply to be shown)"


def _shown(text: str, limit: int) -> str:
    """Escape and cut a text by others."""
    more = len(text) - limit
    return visible(text[:limit]) + (f"... ({more} more characters)" if more > 0 else "")


# -- without secrets ---------------------------------------------------------------------------------------------------


def _cleared(value: Any, known: Collection[str], home: str, *, is_ours: bool = False) -> Any:
    if isinstance(value, str):
        return redacted(value, known, home, is_ours=is_ours)
    if isinstance(value, dict):
        return {key: _cleared(part, known, home, is_ours=is_ours) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_cleared(part, known, home, is_ours=is_ours) for part in value]
    return value


def redacted(text: str, known: Collection[str] = (), home: str = "", *, is_ours: bool = False) -> str:
    """Remove secrets and home folders from a text; in one of ours (`is_ours`), which names variables of keys, only known ones."""
    text = text if is_ours else _USER_IN_URL.sub(f"{MASK}@", text)
    spans = [] if is_ours else secret_places(text, known)
    for start, end in reversed(spans):
        text = text[:start] + MASK + text[end:]
    for secret in sorted(filter(None, known), key=len, reverse=True):
        text = text.replace(secret, MASK)
    if len(home) > 1:
        text = text.replace(home, "~")
    return _HOMES.sub("~", text)


# -- for people --------------------------------------------------------------------------------------------------------


def lines_of(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"xmlcall {report['xmlcall']}, Python {report['python']}, {report['system']}"
    yield ""
    if report["problem"]:
        yield from textwrap.wrap(f"cannot test {report['address'] or report['model']}: {report['problem']}", WIDTH)
    else:
        yield from _facts(report)
        yield from _shown_trial("The server's own function calling (`tools` in the request)", report["native"])
        yield from _shown_trial("Tools in xmlcall's prompt", report["prompt"])
    yield from _shown_advice(report["advice"])


def _facts(report: Mapping[str, Any]) -> Iterator[str]:
    server, speed = report["server"], report["speed"]
    name = " ".join(filter(None, (server["name"] or server["kind"] or "not recognised", server["version"])))
    rows = {
        "server": f"{name} at {report['address']}" if report["address"] else f"{name}, inside this process",
        "model": _model(report),
        "fingerprint": f"{report['fingerprint']}, by which profiles are found" if report["fingerprint"] else "",
        "template": _template(report["template"]),
        "parser": "" if server["tool_parser"] is None else f"of calls: {server['tool_parser'] or 'none is set'}",
        "context": f"{report['context_length']} tokens" if report["context_length"] else "unknown",
        "chat": f"fails without tools, too: {report['plain_error']}" if report["plain_error"] else "",
        "streaming": _STREAMS[report["streaming"]],
        "logprobs": {True: "yes", False: "no: xmlcall cannot ask first whether a tool is needed", None: "unknown"}[
            report["logprobs"]
        ],
        "speed": _speed(speed["prompt"], speed["reply"]),
        "profile": report["profile"],
    }
    for label, value in rows.items():
        if value:
            yield f"{label:11} {value}"


def _model(report: Mapping[str, Any]) -> str:
    file = f" ({report['model_file']})" if report["model_file"] not in ("", report["model"]) else ""
    return f"{report['model']}{file}{', the first that the server lists' if report['is_first_model'] else ''}"


def _template(template: Mapping[str, Any]) -> str:
    if template["exists"] is False:
        return "none: this is a base model"
    knows = {True: "knows `tools`", False: "does not know `tools`", None: "unknown whether it knows `tools`"}[template["tools"]]
    family = f"; the model was most likely trained on the format {template['family']}" if template["family"] else ""
    return f"{knows}{family}{'; begins with reasoning' if template['opens_reasoning'] else ''}"


def _speed(prompt: float | None, reply: float | None) -> str:
    read = "" if prompt is None else f"about {prompt:.0f} tokens/s of the prompt"
    written = "" if reply is None else f"about {reply:.0f} tokens/s of the reply"
    return ", ".join(filter(None, (read, written))) or "unknown"


def _shown_trial(title: str, trial: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield title
    yield f"  {trial['summary']}"
    for label in ("reasoning", "text", "error"):
        if trial[label]:
            yield from _filled({"text": "wrote"}.get(label, label), trial[label])
    for call in trial["calls"]:
        yield from _filled("read as", _call(call))


def _call(call: Mapping[str, Any]) -> str:
    by = {"server": "by the server", "xmlcall": "by xmlcall"}[call["by"]]
    if call["arguments"] is None:
        return f"{call['name']}, which cannot run: {' '.join(call['issues'])}"
    repairs = f", repaired: {', '.join(call['repairs'])}" if call["repairs"] else ""
    return f"{call['name']} {call['arguments']} ({by}{repairs})"


def _filled(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {label:9} ", subsequent_indent=" " * 12, break_on_hyphens=False)


def _shown_advice(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not items:
        return
    yield ""
    yield "What to do"
    for item in items:
        yield ""
        yield from textwrap.wrap(item["why"], WIDTH, initial_indent="  ", subsequent_indent="  ")
        yield from (f"    {line}" for line in item["lines"])
