"""Our own suites. Their questions are in TOML files beside this module, which explain their keys.

The docstring of `play` explains the keys of the conversations of `talk`. `suites` lists all suites by name.
"""

import difflib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ..tools.catalog import Catalog
from ..types.calls import Tool
from .case import Case, read_data

# -- smoke: 50 questions of our own over five small catalogs, half of them in Chinese ----------------------------------
# It is short enough to be asked after every change. Catalogs, questions and accepted answers are in `smoke.toml`; a Chinese
# case may also offer its tools with Chinese descriptions; names and schemas stay the same.


def smoke_cases() -> list[Case]:
    data = read_data("smoke")
    return [_smoke_case(row, data) for row in data["case"]]


def _smoke_case(row: Mapping[str, Any], data: Mapping[str, Any]) -> Case:
    words = data["chinese"] if row.get("descriptions") == "zh" else {}
    return Case(
        id=row["id"],
        category=row["category"],
        messages=({"role": "user", "content": row["question"]},),
        tools=tuple(Tool.from_mcp(_described(tool, words)) for tool in data["catalogs"][row["catalog"]]),
        expects="no_call" if row["category"] == "no_call" else "calls",
        answers=tuple(row.get("answers", ())),
    )


def _described(tool: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Return a tool with the descriptions that `words` has for it (`tool`) and its parameters (`tool.parameter`)."""
    name, schema = tool["name"], tool["inputSchema"]
    properties = {
        parameter: {**declared, "description": words.get(f"{name}.{parameter}", declared["description"])}
        for parameter, declared in schema["properties"].items()
    }
    description = words.get(name, tool["description"])
    return {**tool, "description": description, "inputSchema": {**schema, "properties": properties}}


# -- catalog: does a model find the right tool among 1, 10, 50, 100 and 200 real ones? ---------------------------------
# Each of 40 questions (`catalog.toml`) is for one tool of public MCP servers (`catalog.json`; `benchmarks/catalog_tools.py`
# records it) and is asked with catalogs of every size. The seed and the question alone decide which other tools are offered, and
# where among them the right one is. A smaller catalog is part of the larger ones, so that they differ in size only.


CATALOG_SIZES = (1, 10, 50, 100, 200)  # how many tools a question is asked with


def catalog_cases(seed: int = 1) -> list[Case]:
    """Return the cases, the questions in the order of the file for each size; the seed chooses and orders the other tools."""
    tools = [Tool.from_mcp(row) for row in _catalog_tools()]
    questions = read_data("catalog")["question"]
    orders = [_order(row, tools, f"{seed} {number}") for number, row in enumerate(questions, 1)]
    return [
        _catalog_case(row, number, size, order[:size], seed)
        for size in CATALOG_SIZES
        for number, (row, order) in enumerate(zip(questions, orders, strict=True), 1)
    ]


def _order(row: Mapping[str, Any], tools: Sequence[Tool], seed: str) -> list[Tool]:
    """Return the right tool and as many others as the largest catalog holds; smaller catalogs take the first of them."""
    (right,) = row["answer"]
    left_out = {right, *row.get("not_with", ())}
    others = [tool for tool in tools if tool.name not in left_out]
    return [next(tool for tool in tools if tool.name == right), *random.Random(seed).sample(others, max(CATALOG_SIZES) - 1)]


def _catalog_case(row: Mapping[str, Any], number: int, size: int, tools: Sequence[Tool], seed: int) -> Case:
    (name,) = row["answer"]
    return Case(
        id=f"catalog-{size:03}-{number:02}",
        category=f"tools-{size:03}",
        messages=({"role": "user", "content": row["text"]},),
        tools=tuple(random.Random(f"{seed} {number} {size}").sample(tools, size)),
        answers=({name: _left_out(tools[0]) | row["answer"][name]},),
    )


def _catalog_tools() -> list[dict[str, Any]]:
    return list(json.loads(Path(__file__).with_name("catalog.json").read_text(encoding="utf-8"))["tools"])


# -- long: is a call as right in the 40th turn as in the first, and does the prompt cache hold? ------------------------
# The same questions are asked at several turns, with 10 and with 50 tools. What was said before is canned (in `long/`): talk,
# calls with results, some of them long. It never depends on the model, so that a run is the same for every model, and the
# conversation at one turn is the beginning of that at a later one. The tools are those of `long/tools.toml` and, beside them,
# of `catalog.json`. The same tools in the same order are offered to all questions with the same number of tools.
#
# The cases of one category have a long prompt in common and are asked one after the other (see `suites.cases_of`).


LONG_TURNS: Final = (1, 5, 10, 20, 40)  # at which turn of a conversation a question is asked; the first has nothing before it
LONG_SIZES: Final = (10, 50)  # how many tools are offered
_LANGUAGES: Final = ("english", "chinese")


def long_cases() -> list[Case]:
    """Return the cases, those of one category one after the other."""
    tools = _long_tools()
    return [case for language in _LANGUAGES for size in LONG_SIZES for case in _long_cases(language, tools[size])]


def _long_tools() -> dict[int, tuple[Tool, ...]]:
    data = read_data("long/tools")
    own = [Tool.from_mcp(row) for row in data["tool"]]
    others = [Tool.from_mcp(row) for row in _catalog_tools() if row["name"] in data["others"]]
    return {size: tuple(random.Random(1).sample([*own, *others][:size], size)) for size in LONG_SIZES}


def _long_cases(language: str, tools: tuple[Tool, ...]) -> Iterator[Case]:
    data = read_data(f"long/{language}")
    defaults = {tool.name: _left_out(tool) for tool in tools}
    for turn in LONG_TURNS:
        said = tuple(chain.from_iterable(map(_long_messages, data["turn"][: turn - 1])))
        for number, row in enumerate(data["question"], 1):
            ((name, accepted),) = row["answer"].items()
            yield Case(
                id=f"long-{len(tools)}-{turn:02}-{language}-{number:02}",
                category=f"{language}-{len(tools)}-tools-turn-{turn:02}",
                messages=(*said, {"role": "user", "content": row["text"]}),
                tools=tools,
                answers=({name: {**defaults[name], **accepted}},),
            )


def _long_messages(turn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a turn; calls and results are written for each way when they are sent (`ways.conversation`)."""
    yield {"role": "user", "content": turn["say"]}
    for name, arguments in turn.get("call", {}).items():
        yield {"role": "assistant", "content": "", "calls": [[name, arguments]]}
        yield {"role": "tool", "content": turn["result"].strip()}
    yield {"role": "assistant", "content": turn["reply"]}


def _left_out(tool: Tool) -> dict[str, Sequence[Any]]:
    """Return the accepted values of optional parameters, for questions that do not mention them."""
    schema = tool.input_schema
    return {
        name: ["", declared["default"]] if "default" in declared else [""]
        for name, declared in schema.get("properties", {}).items()
        if name not in schema.get("required", ())
    }


# -- talk: conversations as people have them, with the demo server and four real ones ----------------------------------


def talk_cases() -> list[Case]:
    return [_talk_case(row, language) for language in _LANGUAGES for row in read_data(f"talk/{language}")["conversation"]]


def _talk_case(row: Mapping[str, Any], language: str) -> Case:
    number = int(row["id"].rpartition("-")[2])
    return Case(
        id=row["id"],
        category=language,
        messages=tuple({"role": "user", "content": turn["say"]} for turn in row["turns"]),
        tools=(),
        expects="talk",
        half="tuning" if number % 2 else "report",
        servers=tuple(row["servers"]),
        turns=tuple(row["turns"]),
    )


# -- ordinary and needed: do tools on offer make an answer worse, and is the right one called where one is needed? -----
# In `ordinary/`, `ordinary.toml` holds requests that need no tool, `needed.toml` requests that need one, `catalogs.toml` the
# tools. Each is a conversation of which the last turn is judged, played as those of `talk`. It contains the calls of earlier
# turns with their results.
#
# A request that needs no tool is asked with two catalogs on offer, so that every request meets several over both languages. Sums
# are not asked where a calculator is on offer, because calling it would be right. A request that needs a tool comes with its own
# catalog.
#
# The first call that runs ends a turn: the judge checks whether it was due, and its arguments. So no tool does anything.


CANNED: Final = "catalog:"  # marks the name of a catalog among the servers of a conversation
_CATEGORIES: Final = {"en": "english", "zh": "chinese"}
_APART: Final = 4  # distance of the two catalogs that a request is asked with
_SUMS: Final = ("arithmetic", frozenset({"demo", "forty"}))  # the kind of sums, and the catalogs with a calculator


def ordinary_cases() -> list[Case]:
    """Return the requests that need no tool, each with two catalogs, in the order of the file."""
    file = read_data("ordinary/ordinary")
    return [
        _ordinary(row, catalog, file["wrong"])
        for number, row in enumerate(file["request"])
        for catalog in _catalogs_of(row, number)
    ]


def needed_cases() -> list[Case]:
    return [_needed(row) for row in read_data("ordinary/needed")["request"]]


def canned_tools(catalog: str) -> Catalog:
    file = read_data("ordinary/catalogs")
    names = file["joined"].get(catalog, [catalog])
    return Catalog([Tool.from_mcp(tool) for tool in chain.from_iterable(file["catalogs"][name] for name in names)])


def _catalogs_of(row: Mapping[str, Any], number: int) -> list[str]:
    file = read_data("ordinary/catalogs")
    if own := row.get("catalogs"):
        return [*own, *(name for name, parts in file["joined"].items() if set(own) <= set(parts))][:2]
    kind, with_calculator = _SUMS
    names = [name for name in (*file["catalogs"], *file["joined"]) if row["kind"] != kind or name not in with_calculator]
    return [names[(number + apart) % len(names)] for apart in (0, _APART)]


def _ordinary(row: Mapping[str, Any], catalog: str, wrong: list[Mapping[str, Any]]) -> Case:
    tables = (each["patterns"] for each in wrong if each["lang"] == row["lang"] and row["kind"] in each["kinds"])
    false = [*row.get("false", ()), *chain.from_iterable(tables)]
    turn = {"kind": row["kind"], "answer": row["true"], "not": false, "reply": row["answer"]}
    return _ordinary_case(row, catalog, f"{row['id']}@{catalog}", turn)


def _needed(row: Mapping[str, Any]) -> Case:
    catalog = canned_tools(row["catalog"])
    schemas = [tool.input_schema["properties"] for tool in catalog if tool.name in row["tools"]]
    arguments = {
        name: {"accepted": accepted, "schema": next(each[name] for each in schemas if name in each)}
        for name, accepted in row.get("arguments", {}).items()
    }
    turn = {"kind": "needed", "tools": ["|".join(row["tools"])], "arguments": arguments, "has": row.get("has", [])}
    return _ordinary_case(row, row["catalog"], row["id"], turn)


def _ordinary_case(row: Mapping[str, Any], catalog: str, id: str, turn: Mapping[str, Any]) -> Case:
    before = list(chain.from_iterable(map(_earlier, row.get("before", ()))))
    return Case(
        id=id,
        category=_CATEGORIES[row["lang"]],
        messages=(*before, {"role": "user", "content": row["say"]}),
        tools=(),
        expects="talk",
        half=row["half"],
        servers=(f"{CANNED}{catalog}",),
        turns=({"say": row["say"], "ends_with_call": True, **turn},),
    )


def _earlier(turn: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of an earlier turn, as `messages_of` reads them."""
    if "role" in turn:
        yield turn
        return
    yield {"role": "user", "content": turn["person"]}
    yield {"role": "assistant", "content": "", "calls": [[turn["tool"], turn["arguments"]]]}
    yield {"role": "tool", "content": turn["result"]}
    yield {"role": "assistant", "content": turn["answer"]}


# -- probe: the questions of `xmlcall probe`, our own so that no published suite is fitted to ----------------------------


WITHOUT_CALL: Final = frozenset({"answered", "chat", "no_fit"})  # categories in which words are the right answer


def probe_cases() -> list[Case]:
    data = read_data("probe")
    cases = {case.id: case for case in _probe_rows(data)}
    return [cases[id] for id in data["order"]]


def _probe_rows(data: Mapping[str, Any]) -> Iterator[Case]:
    """Yield each case; its id begins with the language of its question."""
    counts: dict[str, int] = defaultdict(int)
    for group in data["group"]:
        tools = [Tool.from_mcp(tool) for tool in data["catalogs"][group["catalog"]]]
        offered = tuple(tool for tool in tools if tool.name in group.get("offers", [tool.name]))
        for row in group["cases"]:
            lang = row.get("lang", "en")
            kind = f"{lang}-{group['catalog']}-{group['category']}"
            counts[kind] += 1
            yield _probe_case(row, f"{kind}-{counts[kind]:02}", group["category"], offered)


def _probe_case(row: Mapping[str, Any], id: str, category: str, tools: tuple[Tool, ...]) -> Case:
    before = [_said(each) for each in row.get("before", ())]
    asked = [{"role": "user", "content": row["ask"]}] if "ask" in row else []
    return Case(
        id=id,
        category=category,
        messages=(*before, *asked),
        tools=tools,
        expects="no_call" if category in WITHOUT_CALL else "calls",
        answers=tuple(_answer(answer, tools) for answer in row.get("calls", ())),
    )


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    if "calls" in row:
        return {"role": "assistant", "content": "", "calls": row["calls"]}
    ((who, text),) = row.items()
    return {"role": "tool" if who == "result" else who, "content": text}


def _answer(answer: Mapping[str, Mapping[str, Sequence[Any]]], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return an accepted call; a parameter that it does not name and that is not required may be omitted or have its default."""
    ((name, accepted),) = answer.items()
    others = _left_out(next(tool for tool in tools if tool.name == name))
    return {name: {**accepted, **{key: [*reversed(values)] for key, values in others.items() if key not in accepted}}}


# -- wire: can a model carry a value unchanged through a call? ---------------------------------------------------------
# Every case quotes one value in the question, between two marker lines, and the value must be right to the last character.
# Values are drawn from the templates of `wire.toml`: `«word»` is a slot, and `«word1»` is the same draw everywhere in its
# template. A case depends only on the seed, its category and its index there, so a small sample is part of every larger one.


Draw = Callable[[random.Random, int], Any]  # makes the value of the case with this number in a category
_DATA: Final = read_data("wire")
_WORDS: Final[Sequence[str]] = _DATA["lexicon"]["word"]
_LEXICON: Final[Mapping[str, Sequence[str]]] = {**_DATA["lexicon"], "Word": [word.capitalize() for word in _WORDS]}
_TEMPLATES: Final[Mapping[str, Sequence[str]]] = _DATA["templates"]
_PARTS: Final[Mapping[str, Sequence[str]]] = _DATA["parts"]
_COMPUTED: dict[str, Callable[[random.Random], str]] = {
    "name": lambda rng: "_".join(rng.sample(_WORDS, 2)),
    "number": lambda rng: str(rng.randint(2, 9999)),
    "decimal": lambda rng: f"{rng.uniform(-500, 500):.3f}",
    "path": lambda rng: f"{rng.choice(_WORDS)}/{rng.choice(_WORDS)}-{rng.randint(1, 99)}.{rng.choice(['txt', 'md', 'dat'])}",
    "sentence": lambda rng: " ".join(rng.choices(_WORDS, k=rng.randint(5, 11))).capitalize() + rng.choice([".", "!", "?"]),
}
_SLOT = re.compile(r"«([a-zA-Z]+)(\d?)»")


def _fill(rng: random.Random, template: str) -> str:
    kept: dict[str, str] = {}

    def drawn(slot: re.Match[str]) -> str:
        kind, number = slot.groups()
        value = _COMPUTED[kind](rng) if kind in _COMPUTED else rng.choice(_LEXICON[kind])
        return kept.setdefault(slot[0], value) if number else value

    return _SLOT.sub(drawn, template)


_PROSE = ("## «Word» «word» «number»", *["«sentence» «sentence» «sentence» «sentence» «sentence» «sentence»"] * 5)


def _texts(templates: Sequence[str], most: int) -> Draw:
    """Make a category of texts: each begins with the next template, followed by up to `most - 1` random ones."""

    def draw(rng: random.Random, index: int) -> str:
        chosen = [templates[index % len(templates)], *rng.choices(templates, k=rng.randrange(most))]
        return "\n".join(_fill(rng, template) for template in chosen)

    return draw


def _long(rng: random.Random, index: int) -> str:
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < 20_000:
        paragraphs.append(_fill(rng, rng.choice(_PROSE)))
    return "\n\n".join(paragraphs)


def _diff(rng: random.Random, index: int) -> str:
    old = "\n".join(_fill(rng, template) for template in rng.sample(_TEMPLATES["code"], 3)).splitlines()
    new = list(old)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(new))
        new[place : place + rng.randint(0, 2)] = [_fill(rng, rng.choice(_PARTS["added_lines"]))]
    path = _fill(rng, "«path»")
    head = f"diff --git a/{path} b/{path}\nindex {rng.getrandbits(28):07x}..{rng.getrandbits(28):07x} 100644\n" * (index % 2)
    tail = "\n\\ No newline at end of file" * (index % 3 == 0)
    return head + "\n".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")) + tail


def _json_value(rng: random.Random, depth: int) -> Any:
    if depth and rng.random() < 0.5:
        count = rng.randint(0, 3)
        return _record(rng, count, depth - 1) if rng.random() < 0.6 else [_json_value(rng, depth - 1) for _ in range(count)]
    plain = (rng.randint(-(10**6), 10**6), round(rng.uniform(-9, 9), 4), rng.random() < 0.5, None, _fill(rng, "«sentence»"))
    return rng.choice((*plain, _fill(rng, rng.choice(_PARTS["json_strings"]))))


def _record(rng: random.Random, count: int, depth: int = 2) -> dict[str, Any]:
    return {name: _json_value(rng, depth) for name in rng.sample(_WORDS, count)}


# The last three are not JSON; repairing or decoding them changes the text.
_JSON_FORMS: tuple[Callable[[dict[str, Any]], str], ...] = (
    lambda value: json.dumps(value, separators=(",", ":")),
    lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    lambda value: json.dumps(value, indent="\t", ensure_ascii=False),
    lambda value: json.dumps([value, {"raw": json.dumps(value)}]),
    lambda value: json.dumps(json.dumps(value)),
    lambda value: "\n".join(json.dumps({key: each}) for key, each in value.items()),
    lambda value: json.dumps(value, indent=2)[:-2] + ",\n}",
    repr,
)


_TYPED: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: rng.choice([-1, 1]) * rng.randrange(10 ** rng.randint(1, 17)),
    lambda rng: [_fill(rng, each) for each in rng.sample(["«number»", "«flag»", "«word»", "null", "a, «word»", "«zh»", ""], 4)],
    lambda rng: rng.random() < 0.5,
    lambda rng: _record(rng, rng.randint(2, 4)),
    lambda rng: round(rng.uniform(-1000, 1000), rng.randint(2, 6)),
)


def _look_alike(rng: random.Random, index: int) -> Any:
    """Return two strings, then one value that really has another type, and so on."""
    turn, place = divmod(index, 3)
    if place == 2:
        return _TYPED[turn % len(_TYPED)](rng)
    strings = _PARTS["look_alikes"][2 * turn + place :]
    return strings[0] if strings else _fill(rng, rng.choice(["0«number»", "«number».0", '["«word»"]', '{"«word»": «flag»}']))


CATEGORIES: dict[str, Draw] = {
    "markup": _texts(_TEMPLATES["markup"], most=3),
    "code": _texts(_TEMPLATES["code"], most=2),
    "diff": _diff,
    "json_in_string": lambda rng, index: _JSON_FORMS[index % len(_JSON_FORMS)](_record(rng, rng.randint(2, 4))),
    "white_space": _texts(_TEMPLATES["white_space"], most=2),
    "look_alikes": _look_alike,
    "long": _long,
    "cjk": _texts(_TEMPLATES["cjk"], most=3),
    "right_to_left": _texts(_TEMPLATES["right_to_left"], most=3),
    "emoji": _texts(_TEMPLATES["emoji"], most=3),
    "zero_width": _texts(_TEMPLATES["zero_width"], most=2),
}
_MOST = {"long": 4}  # each takes minutes on a small machine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Something to ask for; the tool's last parameter takes the value."""

    name: str
    description: str
    parameters: dict[str, str]
    request: str

    def tool(self) -> Tool:
        items = {"array": {"items": {"type": "string"}}}
        properties = {name: {"type": kind, **items.get(kind, {})} for name, kind in self.parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return Tool(name=self.name, description=self.description, input_schema=schema)


_TASKS = tuple(_Task(**row) for row in _DATA["task"])
_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_OTHERS = {"title": '"«Word» «word» «number»"', "path": '"«path»"', "to": '"«person»"', "key": '"«name»_«number»"'}
_OTHERS |= {"limit": "«number»", "issue": "«number»", "public": "«flag»"}
_TEXT = """The `{parameter}` is all the text between the two marker lines below, character for character, without the line break \
after the first marker line and the line break before the second."""
_JSON = "The `{parameter}` is the value that stands as JSON ({kind}) between the two marker lines below."
_FRAME = "{request} {rule}\n\n-----BEGIN VALUE-----\n{value}\n-----END VALUE-----"


def wire_cases(count: int = 240, seed: int = 1) -> list[Case]:
    """Draw the cases as evenly as the categories allow; a smaller count draws fewer of the same cases."""
    places = sorted((index, category) for category in CATEGORIES for index in range(min(count, _MOST.get(category, count))))
    shares = Counter(category for _, category in places[:count])
    return [_case(category, index, seed) for category in CATEGORIES for index in range(shares[category])]


def _case(category: str, index: int, seed: int) -> Case:
    rng = random.Random(f"{seed} {category} {index}")
    value = CATEGORIES[category](rng, index)
    task = rng.choice([task for task in _TASKS if [*task.parameters.values()][-1] == _KINDS[type(value)]])
    *names, parameter = task.parameters
    others = {name: json.loads(_fill(rng, _OTHERS[name])) for name in names}
    offered = [task, *rng.sample([other for other in _TASKS if other is not task], rng.randrange(3))]
    rng.shuffle(offered)
    return Case(
        id=f"wire-{category}-{index + 1:03}",
        category=category,
        messages=({"role": "user", "content": _question(task, others, value)},),
        tools=tuple(each.tool() for each in offered),
        exact=((task.name, {**others, parameter: value}),),
    )


def _question(task: _Task, others: dict[str, Any], value: Any) -> str:
    parameter, kind = list(task.parameters.items())[-1]
    quoted = {name: other if isinstance(other, str) else json.dumps(other) for name, other in others.items()}
    rule, text = (_TEXT, value) if isinstance(value, str) else (_JSON, json.dumps(value, ensure_ascii=False))
    return _FRAME.format(request=task.request.format(**quoted), rule=rule.format(parameter=parameter, kind=kind), value=text)
