"""Schemas drawn with a seed, through all that is done with a tool: `python tests/fuzz/fuzz_schemas.py --count 10000`.

Drawn are what makes much of little: parts that are shared by references, recursion, unions in unions, wide properties, patterns,
long lists of values, and values that are wrong in every item. Each schema goes through the catalog, the prompt, the outline, the
examples, the check of MCP servers' tools, validation, and binding of a call. Nothing may raise, hang or take all memory; the last
line says how long the slowest took. `--seed N --count 1` repeats one.
"""

import argparse
import json
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from xmlcall import Catalog, InvalidCall, RawArgument, RawCall, Tool, system_prompt
from xmlcall.binding.bind import bind
from xmlcall.binding.echo import words_of
from xmlcall.binding.provenance import provenance
from xmlcall.prompting.format import ENGLISH
from xmlcall.prompting.results import feedback
from xmlcall.prompting.system import Budget, tool_prompt_within
from xmlcall.schema.mending import mended
from xmlcall.schema.validation import check_schema, compiled, find_issues
from xmlcall.tools.outline import invented_arguments
from xmlcall.turn.native import call_schema

SECONDS = 10.0
"""After which a schema counts as one that never ends."""

GIGABYTES = 3
_FRAMES = 6  # of ours that are shown of what takes too long
KINDS = ("string", "integer", "number", "boolean", "null", "object", "array")
LISTS = ("anyOf", "oneOf", "allOf")
MAPS = ("properties", "patternProperties", "dependentSchemas")
SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties")

Schema = dict[str, Any]


def layers(rng: random.Random, most: int) -> Schema:
    """Draw levels of parts each of which leads to the next many times, or back to the first."""
    count, width = rng.randint(2, 8), rng.randint(2, 60)
    keys = [rng.choice([*LISTS, *MAPS, "prefixItems", rng.choice(SINGLES)]) for _ in range(count)]
    keys = [keys[0]] * count if rng.random() < 0.6 else keys
    last: Schema = rng.choice([{}, {"type": rng.choice(KINDS)}, {"$ref": "#/$defs/L0"}, {"required": ["a"]}])
    about = {"description": "d" * rng.choice([0, 10, 5000])} if rng.random() < 0.3 else {}
    named = rng.random() < 0.2
    parts: Schema = {}
    for number, key in enumerate(keys):
        below = f"L{number + 1}" if number + 1 < count else "end"
        reference = {"$ref": f"#{below}" if named else f"#/$defs/{below}", **about}
        parts[f"L{number}"] = _holding(key, [dict(reference) for _ in range(width)], rng)
        if named:
            parts[f"L{number}"]["$anchor"] = f"L{number}"
    parts["end"] = {**last, **({"$anchor": "end"} if named else {})}
    return {**rng.choice([{"$ref": "#/$defs/L0"}, {"properties": {"a": {"$ref": "#/$defs/L0"}}}, parts["L0"]]), "$defs": parts}


def _holding(key: str, below: list[Any], rng: random.Random) -> Schema:
    if key in SINGLES:
        return {key: below[0], "properties": {"a": below[0]}}
    if key == "properties":
        named = {f"p{number}": part for number, part in enumerate(below)}
        return {key: named, "required": list(named)} if rng.random() < 0.5 else {key: named}
    if key in MAPS:
        return {key: {f"{rng.choice('a^.')}{number}?": part for number, part in enumerate(below)}}
    return {key: below, **({"type": "array"} if key == "prefixItems" else {})}


def wide(rng: random.Random, most: int) -> Schema:
    """Draw an object with much of one thing, which many items have in common."""
    count = min(rng.choice([50, 200, 1000, 1000, 4000]), most)
    names = [f"name_{number}" for number in range(count)]
    item: Schema = rng.choice(
        [
            {"properties": {name: {"type": "integer"} for name in names}},
            {"required": names},
            {"enum": [*names, {"a": names[:20]}]},
            {"patternProperties": {f"{name}|x": {"type": "integer"} for name in names[:1000]}, "additionalProperties": False},
            {"patternProperties": {f".{{0,{number}}}": {"type": "integer"} for number in range(min(count, 400))}},
            {"allOf": [{"type": "integer"}] * count},
            {"anyOf": [{"properties": {"kind": {"const": name}}} for name in names]},
            {"oneOf": [{"properties": {"a": {"type": "string", "description": name}}, "required": [name]} for name in names]},
            {"dependentRequired": dict.fromkeys(names, names[:20])},
            {"prefixItems": [{"type": "integer"}] * count},
            {"pattern": "(a+)+$", "minLength": count},
            {"const": names, "default": names, "description": "d" * count},
        ]
    )
    many = {f"q{number}": {"$ref": "#/$defs/item"} for number in range(min(rng.choice([1, 30, 300]), most))}
    unique = {"type": "array", "items": {"$ref": "#/$defs/item"}, "uniqueItems": rng.random() < 0.7}
    return {"properties": {"list": unique, **many}, **item, "$defs": {"item": item}}


def anything(rng: random.Random, most: int) -> Schema:
    """Draw a schema of random keywords, with references among its parts."""
    size = min(rng.choice([5, 20, 100, 400]), most)
    parts: Schema = {f"L{number}": {} for number in range(size)}

    def some() -> Any:
        chosen = rng.random()
        if chosen < 0.7:
            return {"$ref": f"#/$defs/L{rng.randrange(size)}"}
        return rng.choice([{}, True, False, {"type": rng.choice(KINDS)}, {"enum": [1, "a", None]}, {"type": list(KINDS[:3])}])

    for part in parts.values():
        for _ in range(rng.randint(1, 3)):
            key = rng.choice([*LISTS, *MAPS, *SINGLES, "prefixItems", "type", "enum", "required"])
            part |= _holding(key, [some() for _ in range(rng.randint(1, 12))], rng) if key in (*LISTS, *MAPS, *SINGLES) else {}
            part |= {"type": rng.choice(KINDS)} if key == "type" else {"enum": ["a", 1]} if key == "enum" else {}
            part |= {"required": ["a", "p1"]} if key == "required" else {}
    return {**parts["L0"], "$defs": parts}


SHAPES: tuple[Callable[[random.Random, int], Schema], ...] = (layers, layers, wide, wide, anything)


def value(rng: random.Random, most: int, depth: int = 0) -> Any:
    """Draw a value: wide, deep, or with the same in each item."""
    shape = rng.random()
    if shape < 0.3 or depth > 3:
        return rng.choice([1, "a", None, True, 2.5, "x" * 2000, "[1, 2]", "{}", "name_1"])
    if shape < 0.45:
        return [{"a": number, "name_1": "x"} for number in range(min(rng.choice([3, 300, 4000] if depth < 2 else [3]), most))]
    if shape < 0.6:
        return {f"{rng.choice(['p', 'name_', 'q', 'a'])}{number}": "x" for number in range(min(rng.choice([3, 200, 2000]), most))}
    if shape < 0.7:
        return _nested(rng.choice([5, 30, 60]), rng.choice(["a", "p0", ""]))
    return rng.choice([list, dict])(
        zip(("a", "p0", "kind", "list"), (value(rng, most, depth + 1) for _ in range(4)), strict=True)
    )


def _nested(levels: int, name: str) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = {name: inner} if name else [inner]
    return inner


def arguments_for(rng: random.Random, most: int) -> dict[str, Any]:
    """Draw arguments: of names that the schema may have, and of others."""
    names = ["a", "list", "p0", "p1", "q0", "q1", "name_1", "other"]
    if rng.random() < 0.2:
        return {f"{rng.choice('apqx')}{number}": rng.choice([1, "x"]) for number in range(rng.choice([20, 200]))}
    return {name: value(rng, most) for name in rng.sample(names, rng.randint(1, 4))}


def work_through(seed: int, most: int = 4000) -> None:
    """Do all that is done with a tool and a call of it."""
    rng = random.Random(seed)
    schema = rng.choice(SHAPES)(rng, most)
    arguments = arguments_for(rng, most)
    tool = Tool(name="f", description="Does f.", input_schema=schema)
    check_schema({**mended(schema)[0], "type": "object"})
    catalog = Catalog([tool])
    prompt = system_prompt(catalog)
    assert len(prompt) < 20_000 + 20 * len(json.dumps(schema)), "the prompt is out of proportion"
    tool_prompt_within(Budget(whole=1000, parts=1000), catalog, ENGLISH)
    words_of(tool), invented_arguments(tool), call_schema(tool)
    if not isinstance(validator := compiled(catalog.get("f").input_schema), str):  # type: ignore[union-attr]
        find_issues(validator, arguments)
    raw = RawCall(index=0, name="f", arguments=_written(arguments, rng), complete=True)
    call = bind(raw, catalog)
    feedback(call, catalog) if isinstance(call, InvalidCall) else provenance(call, [], catalog)


def _written(arguments: dict[str, Any], rng: random.Random) -> tuple[RawArgument, ...]:
    """Write arguments as text, as JSON in text, or as values."""
    texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in arguments.items()}
    typed = rng.random() < 0.3
    return tuple(
        RawArgument(name=name, text=texts[name], value=each) if typed else RawArgument(name=name, text=texts[name])
        for name, each in arguments.items()
    )


class TooSlow(BaseException):
    """A schema took too long; no `except Exception` on the way may hide it."""


def seconds_for(seed: int) -> float:
    """Return how long one took."""

    def stop(number: int, frame: FrameType | None) -> None:
        lines = [
            f"{Path(each.filename).name}:{each.lineno}" for each in traceback.extract_stack(frame) if "xmlcall" in each.filename
        ]
        raise TooSlow(f"more than {SECONDS:g} s, in {' '.join(lines[-_FRAMES:])}")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor: a busy machine makes no schema slow
    begun = time.process_time()
    try:
        work_through(seed)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - begun


def main() -> int:
    """Run, and print what was slow."""
    options = argparse.ArgumentParser(description="schemas drawn with a seed, through all that is done with a tool")
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0, help="of the first")
    options.add_argument("--show", type=float, default=1.0, help="seconds from which one is told")
    asked = options.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
    took, failed = [], 0
    for seed in range(asked.seed, asked.seed + asked.count):
        try:
            took.append((seconds_for(seed), seed))
        except (TooSlow, Exception) as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        if took[-1][0] >= asked.show:
            print(f"seed {seed}: {took[-1][0]:.2f} s", flush=True)
    slowest, seed = max(took, default=(0.0, -1))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    over = sum(seconds > 1 for seconds, _ in took)
    print(
        f"{asked.count} schemas: the slowest {slowest:.2f} s (seed {seed}), {over} over 1 s, {failed} failed, {memory} MB at most"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
