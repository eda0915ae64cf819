"""The suites `ordinary` and `needed`: their rows are sound, a true answer counts as one, and the right call is right."""

import asyncio
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from xmlcall.bench import own_suites
from xmlcall.bench.judge import CALLED, judge_turn
from xmlcall.bench.own_suites import canned_tools, needed_cases, ordinary_cases
from xmlcall.hosts.demo_server import build_server

FOLDER = Path(own_suites.__file__).parent / "ordinary"
KINDS = ("write", "translate", "explain", "correct", "knowledge", "ideas", "chat", "rewrite", "arithmetic", "advice", "earlier")


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
    real = [tool.model_dump(by_alias=True, exclude_none=True) for tool in asyncio.run(build_server().list_tools())]
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


def check_ordinary(rows: Sequence[Mapping[str, Any]], catalogs: Mapping[str, Any]) -> Iterator[str]:
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


FILES = {name: tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")) for name in ("catalogs", "ordinary", "needed")}
ORDINARY, NEEDED = FILES["ordinary"]["request"], FILES["needed"]["request"]
CATALOGS = FILES["catalogs"]["catalogs"]


def test_rows_are_sound() -> None:
    errors = [
        *check_catalogs(FILES["catalogs"]),
        *check_rows(ORDINARY, "kind"),
        *check_ordinary(ORDINARY, CATALOGS),
        *check_rows(NEEDED, "catalog"),
        *check_needed(NEEDED, CATALOGS),
        *check_ids_of_both(ORDINARY, NEEDED),
        *check_groups([*ORDINARY, *NEEDED]),
    ]
    assert errors == []


def played(*calls: tuple[str, Any], answer: str = "") -> dict[str, Any]:
    """A turn: the calls, which ran, or an answer."""
    ran = [{"name": name, "arguments": arguments, "result": "Done.", "is_error": False} for name, arguments in calls]
    return {"calls": ran, "answer": answer, "stop_reason": CALLED if calls else "end", "files": {}}


def test_a_true_answer_is_right_and_a_call_is_not() -> None:
    for case in ordinary_cases():
        [turn], [server] = case.turns, case.servers
        name = canned_tools(server.removeprefix(own_suites.CANNED)).names()[0]
        verdicts = [judge_turn(turn, each, "") for each in (played(answer=turn["reply"]), played(), played((name, {})))]
        assert verdicts == ["", "no_answer", "false_call"], case.id


def test_the_right_call_is_right_and_another_is_not() -> None:
    for case in needed_cases():
        [turn] = case.turns
        if turn["has"]:
            continue
        name = turn["tools"][0].split("|")[0]
        arguments = {key: plain(each["accepted"][0]) for key, each in turn["arguments"].items()}
        other = arguments | {next(iter(arguments)): "else"}
        tried = (played((name, arguments)), played(("other", arguments)), played((name, other)), played((name, {})), played())
        assert [judge_turn(turn, each, "") for each in tried] == ["", "wrong_tool", *["wrong_value"] * 2, "no_call"], case.id


def test_every_request_meets_two_catalogs_and_every_catalog_many_requests() -> None:
    met = defaultdict[str, set[str]](set)
    for case in ordinary_cases():
        met[case.id.partition("@")[0]].update(case.servers)
    assert len(met) == len(ORDINARY)
    counts = Counter(server for servers in met.values() for server in servers)
    assert len(counts) == len(CATALOGS) + 1
    assert min(counts.values()) >= 20
