"""The report of `xmlcall doctor`, for people and as JSON. No I/O.

People paste it into issues. So it contains no keys, no users or passwords of addresses, and no home folders, wherever they occur:
a careless server repeats the key that it was sent, and llama.cpp names a model by the path of its file. What servers and models
wrote is cut to a length, and control characters in it are escaped.
"""

import json
import platform
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from ..records.secrets import MASK, secret_places
from .doctor_advice import advice, kind_of
from .doctor_findings import Findings, Outcome, Trial
from .plain import visible

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
    "ignores": "no call: the server takes `tools`, and the model answers in words",
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
    """Return the report as a JSON value.

    Args:
        found: what was found.
        known: secrets that must not be in the report: keys, passwords, users of addresses.
        home: the user's home folder.
    """
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
    items = [{"why": item.why, "lines": [visible(line) for line in item.lines]} for item in advice(found)]
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
    """Remove secrets and home folders from a text.

    Args:
        text: any text.
        known: secrets that may occur in it.
        home: the user's home folder.
        is_ours: whether we wrote the text, so that only known secrets can be in it: a command names variables that hold keys.
    """
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
    """Yield the lines of a report."""
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
        "known as": report["fingerprint"],
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
            yield f"{label:10} {value}"


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
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {label:9} ", subsequent_indent=" " * 12, break_on_hyphens=False) or []


def _shown_advice(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not items:
        return
    yield ""
    yield "What to do"
    for item in items:
        yield ""
        yield from textwrap.wrap(item["why"], WIDTH, initial_indent="  ", subsequent_indent="  ")
        yield from (f"    {line}" for line in item["lines"])
