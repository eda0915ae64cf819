"""The suite `wire`: can a model carry a value unchanged through a call?

Every case quotes one value in the question, between two marker lines, and the value must be right to the last character. Values
are drawn from templates: `«word»` is a slot, and `«word1»` is the same draw everywhere in its template. A case depends only on
the seed, its category and its index there, so a small sample is part of every larger one.
"""

import difflib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..types.calls import Tool
from .case import Case

__all__ = ["CATEGORIES", "wire_cases"]

Draw = Callable[[random.Random, int], Any]
"""Makes the value of a category's case number so and so."""


def _listed(text: str, separator: str | None = None) -> list[str]:
    return text.split(separator)


_WORDS = _listed(
    """amber anchor basket bramble canyon cedar cinder copper dahlia dune ember falcon fern flint garnet glacier harbour heron
    hazel island jasper kestrel lagoon lantern linen maple marble meadow mosaic nectar nutmeg oasis olive orchard otter pebble
    plover quarry quartz raven saffron sparrow spruce thistle tundra umber valley velvet walnut willow yarrow zephyr"""
)
_LEXICON: dict[str, Sequence[str]] = {
    "word": _WORDS,
    "Word": [word.capitalize() for word in _WORDS],
    "person": _listed("Amina Bjorn Chiara Dmitri Esperanza Farouk Grace Haruto Ingrid Joao Kwame Leilani"),
    "flag": ["true", "false"],
    "tab": ["\t"],
    "break": ["\n"],
    "spaces": [" " * length for length in range(2, 9)],
    "zh": _listed("山谷 灯塔 书店 报告 会议 天气 火车 数据 图书馆 鱼香肉丝 合同 邮件 测试 仓库 𠮷野家 龘字"),
    "ja": _listed("会議 資料 東京駅 ひらがな カタカナ ｶﾀｶﾅ さくら データ 電車 お知らせ ヴァイオリン 々〆"),
    "ko": _listed("회의 자료 서울역 날씨 도서관 기차 데이터 안녕하세요 한글 왕십리"),
    "ar": _listed("مرحبا كتاب مدينة تقرير الطقس مُدَرِّسَة قطار بيانات اجتماع ٢٠٢٦"),
    "he": _listed("שלום ספר עיר דוח מזג רכבת נתונים פגישה שָׁלוֹם ירושלים"),
    "fa": ["می\u200cخواهم", "کتاب\u200cها", "گزارش", "۱۴۰۵", "خانه\u200cام", "پیام", "چهارشنبه"],
    "emoji": _listed(
        "👩\u200d🚀 👨\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🧑🏽\u200d💻 ❤\ufe0f\u200d🔥 🐻\u200d❄\ufe0f ☎\ufe0e ☎\ufe0f "
        "✈\ufe0f 1\ufe0f\u20e3 👍🏿 👍 🇳🇴 🇺🇳 🙂 🎉 🫠 ©\ufe0f 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    ),
    "hidden": ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\u00a0", "\u2009", "\u034f"],
}
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


_MARKUP = (
    '<p class="«word»">«sentence»</p>',
    "if (a[b[«number»]]>0 && c<«number») { return «name»[«word»[0]]>«decimal»; }",
    "The tag </parameter> ends a «word», and </invoke> ends the «word».",
    "</tool_call>\n«sentence»\n<tool_call>",
    '<invoke name="«name»">\n<parameter name="«word»">«number»</parameter>\n</invoke>',
    "&lt;b&gt;«word» &amp;amp; «word»&lt;/b&gt; &#39;«word»&#39; &copy;&nbsp;«number»",
    "<![CDATA[«sentence» <«word»>]]>",
    '<«name1» id="«number»"><«word2»>«word» &amp; «word»</«word2»></«name1»>',
    '<!DOCTYPE html>\n<html lang="en">\n  <body>\n    <h1>«Word» &amp; «Word»</h1>\n  </body>\n</html>',
    '<img src="«word».png" alt="«sentence»"/><br>\n<!-- «word» -- «word» -->',
    '<tool_call>{"name": "«name»", "arguments": {"«word»": «number»}}</tool_call>',
    "</function_calls> and <function_calls> stand around «word»; ]]> does not.",
    "<invoke name='x'>«word»</parameter></parameter><«word1»/>",
)
_CODE = _listed(
    r"""def «name1»(«word2», limit=«number»):
    if not «word2» or «word2»["«word»"] < limit:
        return {"«word»": "«word»\n", 'n': «decimal»}
    return «name1»(«word2»[1:], limit - 1)
====
for «word1» in *.log; do
  grep -vE '^(«word»|«word»)\s+"?\$[0-9]{2,}' "$«word1»" | awk '{ print $1 "\t" $«number» }' >> "${OUT:-«word»}" 2>&1 || exit 1
done
====
#include <stdio.h>
int «name»(const char *«word1», size_t n) {
«tab»for (size_t i = 0; i < n && «word1»[i]; i++)
«tab»«tab»printf("%c\t%02x\\\n", «word1»[i], «word1»[i] & 0xff);
«tab»return n > «number» ? -1 : '\0';
}
====
SELECT «word1».id, COUNT(*) AS "«word»"
  FROM «name» AS «word1»
 WHERE «word1».note LIKE '%«word»''s%' AND «word1».total >= «decimal» -- «word»
 GROUP BY 1 HAVING COUNT(*) <> «number»;
====
^(?:«word»|\[(?<«word»>\d{1,3}(?:\.\d+)?)\])\s*<"[^"\\]*(?:\\.[^"\\]*)*">(?!«word»)$
====
«word1»: $(wildcard src/«word»/*.c)
«tab»@echo "building $@ from $<"; \
«tab»$(CC) -D«Word»=«number» -o $@ $^
====
const «word1» = (a, b = `${a}«word»\u00e9`) => a?.["«word»"] ?? { ...b, n: «number» };
«word1».map(x => x <= «number» ? `<li>${x}</li>` : null);
====
sed -i.bak -e 's/«word»/«word»\\&/g' -e "/^#«word»/d" '«word».conf' && cat <<'END' | tee /dev/null
$HOME `date` \$«number»
END""",
    "\n====\n",
)
_WHITE_SPACE = (
    "«spaces»«sentence»",
    "«sentence»«spaces»",
    "«sentence»\n\n\n«sentence»\n\n«word»",
    "«word»«tab»«number»«tab»«decimal»\n«word»«tab»«tab»«decimal»\n«word»«tab»«number»«tab»«word»",
    "«spaces»«word»«spaces»«word»«spaces»",
    "«tab»«word»:\n«tab»«tab»- «word»\n«tab»    - «word»«tab»",
    "«word»  \n«word»  \n«word»«spaces»",
    "- «word»\n\n  - «word»\n«spaces»\n    - «word»\n\n- «word»",
    "«spaces»«tab»«spaces»",
    "«word»«spaces»\n\n«spaces»«word»\n«tab»\n«spaces»«sentence»",
)
_CJK = (
    "«zh»的«zh»在«zh»，一共«number»个；请看《«zh»》——“«zh»”！",
    "「«ja»」は«ja»です。«ja»、«ja»……（«number»円）",
    "«ko»은 «ko»에서 «ko» «number»개를 보냈습니다. «ko»~",
    "ＡＢＣ　«zh»　«number»％：“«zh»”、«ja»／«ko»",
    "«zh»«word»«zh»«decimal»«zh»,«ja»・«ja»ー",
    "１．«zh»\n２．«zh»（«ja»）\n　　«zh»",
)
_RIGHT_TO_LEFT = (
    "«ar» «ar» (version «number») «ar»، «ar»؟",
    "«he» «word» «he», «number». \u05f4«he»\u05f4!",
    "«fa» «fa» «decimal» «fa»؛ «fa»",
    "\u200f«ar»: \u2067«he» «number»\u2069 - «word»",
    "«Word» «ar» «word» «he»-«he» «number»%\u200e",
    "«ar»\n«word» = «he»(«number», '«fa»')",
)
_EMOJI = (
    "«emoji»«emoji»«emoji»",
    "«Word» «emoji» «word» «emoji»«emoji», «number»",
    "«emoji» «sentence» «emoji»",
    "«word»«emoji»«word»: «emoji»=«emoji»",
    "«emoji1»«emoji1» / «emoji1»\n- «emoji» «zh»",
)
_ZERO_WIDTH = (
    "«word»«hidden»«word»",
    "«hidden»«Word» «word»«hidden» «number»",
    "«Word»«hidden»«hidden»«word», «word»«hidden»",
    "cafe\u0301 «word» is not caf\u00e9 «word»; «word»«hidden»",
    "«word»«hidden»=«hidden»«number»\n«hidden»«sentence»",
    "Z\u0351\u032b\u0343a\u0321 «word»\u2028«word» \ufb01n A\u030a\u212b\u00c5 «word»",
)
_PROSE = ("## «Word» «word» «number»", *["«sentence» «sentence» «sentence» «sentence» «sentence» «sentence»"] * 5)


def _texts(templates: Sequence[str], most: int) -> Draw:
    """Make a category out of templates, taken in turn, with up to `most - 1` others behind."""

    def draw(rng: random.Random, index: int) -> str:
        chosen = [templates[index % len(templates)], *rng.choices(templates, k=rng.randrange(most))]
        return "\n".join(_fill(rng, template) for template in chosen)

    return draw


def _long(rng: random.Random, index: int) -> str:
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < 20_000:
        paragraphs.append(_fill(rng, rng.choice(_PROSE)))
    return "\n\n".join(paragraphs)


_ADDED = ("«tab»«name»(«number»);", "    «word» += «decimal»", "")


def _diff(rng: random.Random, index: int) -> str:
    old = "\n".join(_fill(rng, template) for template in rng.sample(_CODE, 3)).splitlines()
    new = list(old)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(new))
        new[place : place + rng.randint(0, 2)] = [_fill(rng, rng.choice(_ADDED))]
    path = _fill(rng, "«path»")
    head = f"diff --git a/{path} b/{path}\nindex {rng.getrandbits(28):07x}..{rng.getrandbits(28):07x} 100644\n" * (index % 2)
    tail = "\n\\ No newline at end of file" * (index % 3 == 0)
    return head + "\n".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")) + tail


_JSON_STRINGS = _listed(
    r'C:\«word»\n«word»|\u00e9«number»|say "«word»"|«zh»|</parameter>|é «emoji»|«word»,«break»«tab»«word»|', "|"
)


def _json_value(rng: random.Random, depth: int) -> Any:
    if depth and rng.random() < 0.5:
        count = rng.randint(0, 3)
        return _record(rng, count, depth - 1) if rng.random() < 0.6 else [_json_value(rng, depth - 1) for _ in range(count)]
    plain = (rng.randint(-(10**6), 10**6), round(rng.uniform(-9, 9), 4), rng.random() < 0.5, None, _fill(rng, "«sentence»"))
    return rng.choice((*plain, _fill(rng, rng.choice(_JSON_STRINGS))))


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


_LOOK_ALIKES = _listed(
    """007 true null 1e400 3.0  [] {} -0 False None 0x1F "quoted" [1,2] {"a":1} NaN 1_000 ~ yes +5 .5 5. 'one' undefined 0b11""",
    " ",
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
    strings = _LOOK_ALIKES[2 * turn + place :]
    return strings[0] if strings else _fill(rng, rng.choice(["0«number»", "«number».0", '["«word»"]', '{"«word»": «flag»}']))


CATEGORIES: dict[str, Draw] = {
    "markup": _texts(_MARKUP, most=3),
    "code": _texts(_CODE, most=2),
    "diff": _diff,
    "json_in_string": lambda rng, index: _JSON_FORMS[index % len(_JSON_FORMS)](_record(rng, rng.randint(2, 4))),
    "white_space": _texts(_WHITE_SPACE, most=2),
    "look_alikes": _look_alike,
    "long": _long,
    "cjk": _texts(_CJK, most=3),
    "right_to_left": _texts(_RIGHT_TO_LEFT, most=3),
    "emoji": _texts(_EMOJI, most=3),
    "zero_width": _texts(_ZERO_WIDTH, most=2),
}
_MOST = {"long": 4}  # each takes minutes on a small machine


@dataclass(frozen=True, slots=True)
class _Task:
    """Something to ask for; the tool's last parameter takes the value."""

    name: str
    description: str
    parameters: dict[str, str]
    request: str

    def tool(self) -> Tool:
        """Return the tool, with every parameter required."""
        items = {"array": {"items": {"type": "string"}}}
        properties = {name: {"type": kind, **items.get(kind, {})} for name, kind in self.parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return Tool(name=self.name, description=self.description, input_schema=schema)


_TASKS = (
    _Task("save_note", "Save a note.", {"title": "string", "text": "string"}, 'Save a note with the title "{title}".'),
    _Task("write_file", "Write a text file.", {"path": "string", "content": "string"}, 'Write the file "{path}".'),
    _Task("send_message", "Send a message.", {"to": "string", "body": "string"}, 'Send a message to "{to}".'),
    _Task("set_value", "Change a text setting.", {"key": "string", "value": "string"}, 'Change the text setting "{key}".'),
    _Task("run_query", "Search the archive.", {"limit": "integer", "query": "string"}, "Search, with the limit {limit}."),
    _Task("add_comment", "Comment on an issue.", {"issue": "integer", "body": "string"}, "Comment on issue {issue}."),
    _Task("set_page", "Change the page.", {"public": "boolean", "text": "string"}, "Change the page, with `public` {public}."),
    _Task("set_limit", "Set a limit.", {"key": "string", "limit": "integer"}, 'Set the limit "{key}".'),
    _Task("set_rate", "Set a rate.", {"key": "string", "rate": "number"}, 'Set the rate "{key}".'),
    _Task("set_switch", "Set a switch.", {"key": "string", "on": "boolean"}, 'Set the switch "{key}".'),
    _Task("set_tags", "Tag a file.", {"path": "string", "tags": "array"}, 'Tag the file "{path}".'),
    _Task("save_record", "Save a record.", {"key": "string", "record": "object"}, 'Save a record with the key "{key}".'),
)
_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_OTHERS = {"title": '"«Word» «word» «number»"', "path": '"«path»"', "to": '"«person»"', "key": '"«name»_«number»"'}
_OTHERS |= {"limit": "«number»", "issue": "«number»", "public": "«flag»"}
_TEXT = """The `{parameter}` is all the text between the two marker lines below, character for character, without the line break \
after the first marker line and the line break before the second."""
_JSON = "The `{parameter}` is the value that stands as JSON ({kind}) between the two marker lines below."
_FRAME = "{request} {rule}\n\n-----BEGIN VALUE-----\n{value}\n-----END VALUE-----"


def wire_cases(count: int = 240, seed: int = 1) -> list[Case]:
    """Draw the cases, as evenly from all categories as they last.

    Args:
        seed: the same seed gives the same cases, and fewer of them with a smaller count.
    """
    places = sorted((index, category) for category in CATEGORIES for index in range(min(count, _MOST.get(category, count))))
    shares = Counter(category for _, category in places[:count])
    return [_case(category, index, seed) for category in CATEGORIES for index in range(shares[category])]


def _case(category: str, index: int, seed: int) -> Case:
    rng = random.Random(f"{seed} {category} {index}")
    value = CATEGORIES[category](rng, index)
    task = rng.choice([task for task in _TASKS if [*task.parameters.values()][-1] == _KINDS[type(value)]])
    *names, parameter = task.parameters
    others = {name: json.loads(_fill(rng, _OTHERS[name])) for name in names}
    return Case(
        id=f"wire-{category}-{index + 1:03}",
        category=category,
        messages=({"role": "user", "content": _question(task, others, value)},),
        tools=_offered(rng, task),
        exact=((task.name, {**others, parameter: value}),),
    )


def _question(task: _Task, others: dict[str, Any], value: Any) -> str:
    parameter, kind = list(task.parameters.items())[-1]
    quoted = {name: other if isinstance(other, str) else json.dumps(other) for name, other in others.items()}
    rule, text = (_TEXT, value) if isinstance(value, str) else (_JSON, json.dumps(value, ensure_ascii=False))
    return _FRAME.format(request=task.request.format(**quoted), rule=rule.format(parameter=parameter, kind=kind), value=text)


def _offered(rng: random.Random, task: _Task) -> tuple[Tool, ...]:
    offered = [task, *rng.sample([other for other in _TASKS if other is not task], rng.randrange(3))]
    rng.shuffle(offered)
    return tuple(each.tool() for each in offered)
