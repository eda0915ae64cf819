"""The suite `wire`: can a model carry a value unchanged through a call?

Every case quotes one value in the question, between two marker lines, and the value must be right to the last character. Values
are drawn from the templates of `wire.toml`: `«word»` is a slot, and `«word1»` is the same draw everywhere in its template. A case
depends only on the seed, its category and its index there, so a small sample is part of every larger one.
"""

import difflib
import json
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..types.calls import Tool
from .case import Case

Draw = Callable[[random.Random, int], Any]
"""Makes the value of a category's case number so and so."""


_DATA: Final = tomllib.loads(Path(__file__).with_name("wire.toml").read_text(encoding="utf-8"))
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
    """Make a category out of templates, taken in turn, followed by up to `most - 1` others."""

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


# The last three are no JSON; repairing or decoding them changes the text.
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
    """Draw the cases, as evenly from all categories as they last; a smaller count draws fewer of the same."""
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
