"""Check catalogs.toml, ordinary.toml and needed.toml, and count their rows.

    python benchmarks/ordinary/check_ordinary.py

What is wrong is printed, one line each, and the exit code is 1 then. Lines that begin with "loose" tell of rows that take a stray
answer for a true one; they are no errors.
"""

import json
import re
import sys
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent
LANGUAGES = ("en", "zh")
KINDS = ("write", "translate", "explain", "correct", "knowledge", "ideas", "chat", "rewrite", "arithmetic", "advice", "earlier")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}([, ])\d{3}(?:\1\d{3})*(?!\d)")

# What small models say when they called a tool needlessly, gave up, or answered something else.
STRAY = (
    "",
    "31 characters, 6 words",
    "The text has 31 characters and 6 words.",
    "这段文字有31个字符，6个单词。",
    "In Berlin it is 11.5 °C and cloudy, with 72 percent humidity.",
    "柏林现在11.5度，多云，湿度72%。",
    "115",
    "The result is 7006652.",
    "It is 21:40 in Tokyo.",
    "One share of Apple costs 227.50 dollars.",
    "I'm sorry, but I can't help with that.",
    "Sorry, there is no tool for this request.",
    "None of the available tools can answer this question.",
    "抱歉，我无法回答这个问题。",
    "对不起，没有合适的工具可以完成这个请求。",
    "Error: the arguments are invalid.",
    "Saved as n21",
    "Done.",
    "好的，已完成。",
)


def read(answer: str) -> str:
    """Return a text as patterns are searched in it; the same as the suite `talk` does."""
    text = unicodedata.normalize("NFKC", answer.replace("，", "， ").replace("’", "'")).casefold()
    return _THOUSANDS.sub(lambda number: number[0].replace(number[1], ""), text)


def found(pattern: str, answer: str) -> bool:
    """Say whether a pattern is found in an answer."""
    return bool(re.search(pattern, read(answer), re.ASCII | re.IGNORECASE))


def is_true(row: Mapping[str, Any], wrong: Sequence[Mapping[str, Any]], answer: str) -> bool:
    """Say whether an answer is a true one."""
    return all(found(each, answer) for each in row["true"]) and not any(found(each, answer) for each in false_of(row, wrong))


def false_of(row: Mapping[str, Any], wrong: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the patterns that must not be found: the row's own and those of its kind."""
    tables = [each for each in wrong if row["lang"] == each["lang"] and row["kind"] in each["kinds"]]
    shared = [pattern for each in tables for pattern in each["patterns"]]
    return [*row.get("false", ()), *shared]


def check_catalogs(data: Mapping[str, Any]) -> Iterator[str]:
    """Check the tools and their schemas, the catalog of 40, and that the demo's are the demo server's."""
    catalogs = data["catalogs"]
    for name, tools in catalogs.items():
        for tool in tools:
            schema = tool["inputSchema"]
            Draft202012Validator.check_schema(schema)
            if missing := set(schema["required"]) - set(schema["properties"]):
                yield f"{name}: {tool['name']} requires {missing}, which it does not declare"
            if not all("description" in each for each in schema["properties"].values()):
                yield f"{name}: {tool['name']} has a parameter without a description"
    forty = [tool for name in data["joined"]["forty"] for tool in catalogs[name]]
    if len(forty) != 40 or len({tool["name"] for tool in forty}) != 40:
        yield f"forty: {len(forty)} tools"
    if any(tool not in forty for tools in catalogs.values() for tool in tools):
        yield "forty: not every tool is in it"
    try:
        import asyncio

        from xmlcall.hosts.demo_server import build_server

        real = [tool.model_dump(by_alias=True, exclude_none=True) for tool in asyncio.run(build_server().list_tools())]
    except ImportError:
        print("(the demo server is not here to compare with)")
    else:
        if real != catalogs["demo"]:
            yield "demo: not what the demo server offers"


def errors_of(tools: Mapping[str, Any], name: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Check the arguments of a call against a tool's schema; nothing that is not declared may stand in them."""
    if name not in tools:
        yield f"no tool {name}"
        return
    schema = tools[name]["inputSchema"]
    yield from (f"{name}: {error.message}" for error in Draft202012Validator(schema).iter_errors(arguments))
    yield from (f"{name}: does not declare {each}" for each in set(arguments) - set(schema["properties"]))


def check_before(row: Mapping[str, Any], tools: Mapping[str, Any]) -> Iterator[str]:
    """Check the conversation so far."""
    roles = ["user", "assistant"]
    messages = [turn for turn in row.get("before", ()) if "role" in turn]
    if [turn["role"] for turn in messages] != roles * (len(messages) // 2):
        yield "messages do not alternate"
    for turn in row.get("before", ()):
        if "role" in turn:
            if set(turn) != {"role", "content"}:
                yield f"keys of a message: {set(turn)}"
        elif set(turn) != {"person", "tool", "arguments", "result", "answer"}:
            yield f"keys of a turn: {set(turn)}"
        else:
            yield from errors_of(tools, turn["tool"], turn["arguments"])


def check_ordinary(
    rows: Sequence[Mapping[str, Any]], wrong: Sequence[Mapping[str, Any]], catalogs: Mapping[str, Any]
) -> Iterator[str]:
    """Check the rows that need no tool."""
    halves_of_before = defaultdict(set)
    for row in rows:
        extra = set(row) - {"id", "lang", "kind", "half", "group", "catalogs", "before", "say", "true", "false", "answer"}
        tool_turn = any("tool" in turn for turn in row.get("before", ()))
        if extra or row["kind"] not in KINDS:
            yield f"{row['id']}: {extra or row['kind']}"
        if not row["true"]:
            yield f"{row['id']}: no pattern of what is true"
        if tool_turn != ("catalogs" in row):
            yield f"{row['id']}: catalogs and a turn with a tool belong together"
        if row["kind"] == "earlier" and not row.get("before"):
            yield f"{row['id']}: nothing was said before"
        for each in (*row["true"], *row.get("false", ())):
            re.compile(each)
        yield from (f"{row['id']}: not true: {each}" for each in row["true"] if not found(each, row["answer"]))
        yield from (f"{row['id']}: false: {each}" for each in false_of(row, wrong) if found(each, row["answer"]))
        for name in row.get("catalogs", ()):
            tools = {tool["name"]: tool for tool in catalogs.get(name, ())}
            yield from (f"{row['id']}: {error}" for error in check_before(row, tools))
        if tool_turn:
            halves_of_before[json.dumps(row["before"], ensure_ascii=False)].add(row["half"])
    yield from (f"in both halves: {before}" for before, halves in halves_of_before.items() if len(halves) > 1)


def plain(accepted: Any) -> Any:
    """Return an accepted value as a call has it: in BFCL's form, each member of an object in a list is a list of values."""
    if isinstance(accepted, list):
        return [{key: values[0] for key, values in each.items()} if isinstance(each, dict) else each for each in accepted]
    return accepted


def check_needed(rows: Sequence[Mapping[str, Any]], catalogs: Mapping[str, Any]) -> Iterator[str]:
    """Check the rows that need one."""
    for row in rows:
        tools = {tool["name"]: tool for tool in catalogs[row["catalog"]]}
        if extra := set(row) - {"id", "lang", "catalog", "half", "group", "before", "say", "tools", "arguments", "has"}:
            yield f"{row['id']}: {extra}"
        if not row["tools"] or not (row.get("arguments") or row.get("has")):
            yield f"{row['id']}: nothing is expected"
        for each in row.get("has", ()):
            re.compile(each)
        yield from (f"{row['id']}: {error}" for error in check_before(row, tools))
        for name in row["tools"]:
            if name not in tools:
                yield f"{row['id']}: no tool {name}"
                continue
            declared = tools[name]["inputSchema"]["properties"]
            for parameter, accepted in row.get("arguments", {}).items():
                if parameter not in declared or not accepted:
                    yield f"{row['id']}: {name} has no {parameter}, or no value is accepted"
                    continue
                validator = Draft202012Validator(declared[parameter])
                errors = (error for value in accepted for error in validator.iter_errors(plain(value)))
                yield from (f"{row['id']}: {parameter}: {error.message}" for error in errors)
            open_ones = set(tools[name]["inputSchema"]["required"]) - set(row.get("arguments", {}))
            if open_ones and not row.get("has") and len(row["tools"]) == 1:
                yield f"{row['id']}: nothing is expected of {open_ones}"


def check_rows(rows: Sequence[Mapping[str, Any]], part: str) -> Iterator[str]:
    """Check what both files have: ids, languages, halves, words."""
    yield from (f"{each}: twice" for each, count in Counter(row["id"] for row in rows).items() if count > 1)
    before_and_say = Counter(json.dumps([row.get("before"), row["say"]], ensure_ascii=False) for row in rows)
    yield from (f"{each}: twice" for each, count in before_and_say.items() if count > 1)
    for row in rows:
        match = re.fullmatch(r"(en|zh)-([a-z]+)-(\d\d)", row["id"])
        if not match or match[1] != row["lang"] or match[2] != row[part]:
            yield f"{row['id']}: not its language and {part}"
        elif row["half"] != ("tuning" if int(match[3]) % 2 else "report"):
            yield f"{row['id']}: the wrong half"
        if bool(re.search(r"[\u4e00-\u9fff]", row["say"])) != (row["lang"] == "zh"):
            yield f"{row['id']}: not in its language"
    halves = Counter((row["lang"], row[part], row["half"]) for row in rows)
    for lang, name in {(row["lang"], row[part]) for row in rows}:
        if abs(halves[lang, name, "tuning"] - halves[lang, name, "report"]) > 1:
            yield f"{lang} {name}: halves differ"


def check_ids_of_both(ordinary: Sequence[Mapping[str, Any]], needed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check that no id is in both files."""
    yield from (f"{each}: in both files" for each in {row["id"] for row in ordinary} & {row["id"] for row in needed})


def check_groups(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check that groups have several rows, all in one half."""
    groups = defaultdict(list)
    for row in rows:
        if "group" in row:
            groups[row["group"]].append(row)
    for name, members in groups.items():
        if len(members) < 2 or len({row["half"] for row in members}) > 1:
            yield f"group {name}: alone, or in both halves"


def table(rows: Sequence[Mapping[str, Any]], part: str) -> str:
    """Return the counts of rows by part, language and half."""
    counts = Counter((row[part], row["lang"], row["half"]) for row in rows)
    turns = Counter(row[part] for row in rows if any("tool" in turn for turn in row.get("before", ())))
    columns = [(lang, half) for lang in LANGUAGES for half in ("tuning", "report")]
    lines = [f"{part:<12}" + "".join(f"{lang + ' ' + half:>11}" for lang, half in columns) + f"{'all':>6}{'after a tool':>14}"]
    for name in dict.fromkeys(row[part] for row in rows):
        values = [counts[name, *column] for column in columns]
        lines.append(f"{name:<12}" + "".join(f"{value:>11}" for value in values) + f"{sum(values):>6}{turns[name]:>14}")
    values = [sum(counts[name, *column] for name in turns | Counter(row[part] for row in rows)) for column in columns]
    lines.append(f"{'all':<12}" + "".join(f"{value:>11}" for value in values) + f"{sum(values):>6}{sum(turns.values()):>14}")
    return "\n".join(lines)


def main() -> int:
    """Print what is wrong and the counts."""
    texts = ((FOLDER / f"{name}.toml").read_text("utf-8") for name in ("catalogs", "ordinary", "needed"))
    data, ordinary, needed = map(tomllib.loads, texts)
    catalogs, wrong = data["catalogs"], ordinary["wrong"]
    errors = [
        *check_catalogs(data),
        *check_rows(ordinary["request"], "kind"),
        *check_ordinary(ordinary["request"], wrong, catalogs),
        *check_rows(needed["request"], "catalog"),
        *check_needed(needed["request"], catalogs),
        *check_ids_of_both(ordinary["request"], needed["request"]),
        *check_groups([*ordinary["request"], *needed["request"]]),
    ]
    print("\n".join(f"{name}: {len(tools)} tools" for name, tools in catalogs.items()), end="\n\n")
    print(table(ordinary["request"], "kind"), end="\n\n")
    print(table(needed["request"], "catalog"), end="\n\n")
    used = Counter((name, row["half"]) for row in ordinary["request"] for name in row.get("catalogs", ()))
    print("ordinary, after a tool:", ", ".join(f"{name} {half} {count}" for (name, half), count in sorted(used.items())))
    right = Counter(name for row in needed["request"] for name in row["tools"])
    print("needed, right tools:", ", ".join(f"{name} {count}" for name, count in right.items()))
    for row in ordinary["request"]:
        for answer in STRAY:
            if is_true(row, wrong, answer):
                print(f"loose: {row['id']} takes {answer!r}")
    print("\n".join(errors) or "no errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
