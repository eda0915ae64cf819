"""Writes a chat template that offers tools, which servers such as vLLM and SGLang render themselves, so that no proxy is needed.

A server renders a request's messages and tools with one Jinja template, in a sandbox without our functions. So the template has
three parts: data for everything that differs between formats and languages, rendered once from `prompts/`; `chat_template.jinja`,
which turns tools, calls and results into plain messages; and the model family's plain template, which renders those messages.

Its output equals that of `system_prompt` and of the proxy's history, except where Jinja alone cannot do the same:

| what | in the template |
|---|---|
| `$ref` | followed inside the schema by its path; no `$anchor` |
| odd schemas | shown unchanged, not repaired |
| a string that may be markup | goes into CDATA, or its `<` is escaped, as soon as it holds the beginning of a tag |
| a string that reads as another type | is marked by its form alone; its schema's other limits are not checked |
| words that may be read as a call | tags and JSON calls of offered tools become inert; Python calls and odd spellings do not |
| calls of the proxy's own tools, resources, large catalogs | unsupported: the template sees only the request |
"""

import itertools
import json
from pathlib import Path
from typing import Any, Final

import regex

from ..dialects import DIALECTS, Body, Dialect
from ..dialects.call_signs import CONTROL_TAGS, CONTROL_WORDS, INERT_WORDS
from ..errors import UsageError
from ..schema.words import RANGES
from ..types.calls import Tool
from .format import PromptFormat, plain_source, words_of
from .system import reminder

CHATML: Final = (
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}\n"
)
"""The plain template of many model families."""

_HERE: Final = "\ue000"  # marks where the template inserts something; occurs in no prompt of ours
_BODIES: Final = frozenset({Body.TAGS, Body.JSON, Body.KEYED, Body.OBJECT})
_HEAD: Final = regex.compile(r"(?:&lt;|[^\w\s{])/?[^\s<>&={}\[\]\"]*")  # a written tag up to the end of its name
_WORD: Final = regex.compile(r"</?([\w:|\uff5c.\-]+)")


def supported() -> tuple[str, ...]:
    """Return the wire formats that a template can write."""
    return tuple(row.name for row in DIALECTS.values() if row.body in _BODIES and not row.nests_elements)


def chat_template(format: PromptFormat, base: str = CHATML, *, with_reminder: bool = False) -> str:
    """Write a chat template that offers tools; refuse a format or family that a template cannot write."""
    row = format.row
    if row.body not in _BODIES or row.nests_elements:
        raise UsageError(f"expected a format that a template can write ({', '.join(supported())}), got {row.name!r}")
    if format.family != "list":
        raise UsageError(f"expected the family of prompts 'list', which a template can write, got {format.family!r}")
    data = {**_texts(format, with_reminder=with_reminder), **_tags(row), **_marks(row)}
    lines = (f"  {json.dumps(key)}: {_literal(value)}" for key, value in data.items())
    head = "{%- set xmlcall = {\n" + ",\n".join(lines) + "\n} -%}\n"
    return f"{head}{plain_source('chat_template.jinja')}{base}"


def _literal(value: Any) -> str:
    """Write a value as a Jinja literal, which is JSON for everything except null. Tuples of texts are for `startswith`."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {_literal(each)}' for key, each in value.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))},)"
    return json.dumps(value, ensure_ascii=False)


def _texts(format: PromptFormat, *, with_reminder: bool) -> dict[str, Any]:
    tool = Tool(name=_HERE)
    shown = {"tool": tool, "parameters": (), "rules": ()}
    system = format.render("system", grade="whole", tools=[shown], example=_HERE, instructions={})
    head, rest = system.split(f"\n### {_HERE}\n")
    middle, tail = rest.split(_HERE)
    results_head, results_tail = format.render("results", frame=_HERE, retry="").split(_HERE)
    return {
        "head": head,
        "middle": middle,
        "tail": tail,
        "results_head": results_head,
        "results_tail": results_tail,
        "reminder": reminder([tool], format) if with_reminder else "",
        **_words(format),
        "ranges": dict(RANGES),
    }


def _words(format: PromptFormat) -> dict[str, Any]:
    """Return the words around parameters, as a tool of two parameters shows them."""
    part = {"name": "a", "kind": "k", "description": "", "children": (), "rules": ()}
    shown = {**part, "required": True, "default": 0}, {**part, "required": False, "default": 0}
    item = {"tool": Tool(name=_HERE), "parameters": shown, "rules": ()}
    text = format.render("system", grade="whole", tools=[item], example="", instructions={}).split(f"### {_HERE}\n")[1]
    title, required, optional = text.splitlines()[:3]
    [first], [second] = (regex.findall(r"^- a: k \((.*), (.*) 0\)$", line) for line in (required, optional))
    return {"parameters": title, "required": first[0], "optional": second[0], "default": first[1], **words_of(format.lang)}


def _tags(row: Dialect) -> dict[str, Any]:
    kinds = "block_open block_close call_open call_close parameter_open parameter_close body_open".split()  # noqa: SIM905
    marks = {"string_mark": row.string_mark, "json_mark": row.json_mark}
    return {
        "body": row.body.name,
        "key_names": list(row.keys),
        **{kind: row.written.get(kind, "") for kind in kinds},
        **{name: mark.written if mark else "" for name, mark in marks.items()},
        "marks_all": row.string_mark is not None and row.string_mark.written == row.written["parameter_open"],
        "joint": row.joint,
        "is_exact": row.is_exact,
        "is_json_body": row.json_body,
        "is_one_list": row.one_list,
        "is_elements": row.parameter_elements,
        "has_entities": row.entities,
        "has_open_entities": row.open_entities,
        "frame_open": row.results.frame_open,
        "frame_close": row.results.frame_close,
        "result_open": row.results.result_open,
        "result_close": row.results.result_close,
    }


def _marks(row: Dialect) -> dict[str, Any]:
    """Return what values and results must not contain: the beginnings of tags of every format."""
    rows = {**DIALECTS, row.name: row}.values()
    heads = {found[0] for each in rows for tag in each.written.values() if (found := _HEAD.match(tag))}
    heads = {head for head in heads if any(map(str.isalnum, head))}
    words = {found[1].lower() for head in heads if (found := _WORD.match(head))}
    forms = {word for word in row.results.tag_words() if word.isascii()}
    others = {head for head in (*heads, *CONTROL_WORDS) if not head.startswith("<")}
    others |= {f"[{slash}{word}" for word in row.results.tag_words("[") for slash in ("", "/")}
    others = {head for head in others if not any(head != each and head.startswith(each) for each in others)}
    call_words = {*INERT_WORDS, *words, *(word.lower() for word in forms), "tool", "tools"}
    return {
        "call_words": {first: tuple(group) for first, group in itertools.groupby(sorted(call_words), key=lambda word: word[0])},
        "control_tags": CONTROL_TAGS,
        "marks": sorted({*heads, "<![CDATA[", "<param", "</param"}),
        "other_heads": [[head, {"&": "&amp;"}.get(head[0], f"&#{ord(head[0])};") + head[1:]] for head in sorted(others)],
    }


def read_base(path: Path) -> str:
    from jinja2 import Environment, TemplateSyntaxError

    try:
        text = path.read_text(encoding="utf-8")
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"expected a chat template in {str(path)!r}: {error}") from error
    except TemplateSyntaxError as error:
        raise UsageError(f"expected a chat template in {str(path)!r}: line {error.lineno}: {error.message}") from error
    return text
