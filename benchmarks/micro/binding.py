"""How long it takes to bind a call: `python benchmarks/micro/binding.py`.

A call with ten parameters of ten kinds, as text, bound against a `Catalog` that was built once; beside it what `jsonschema`
alone takes to validate the same arguments, and the same call with one value that has to be converted. Best of several runs of a
thousand.
"""

import datetime
import platform
import timeit

import jsonschema

from xmlcall import Catalog, Tool, ToolCall, bind, parse

PROPERTIES = {
    "path": {"type": "string"},
    "content": {"type": "string"},
    "line": {"type": "integer", "minimum": 1},
    "ratio": {"type": "number"},
    "force": {"type": "boolean"},
    "unit": {"enum": ["celsius", "fahrenheit"]},
    "tags": {"type": "array", "items": {"type": "string"}},
    "options": {"type": "object", "properties": {"depth": {"type": "integer"}}},
    "name": {"type": ["string", "null"]},
    "date": {"type": "string", "format": "date"},
}
VALUES = {
    "path": "src/a.py",
    "content": "x = 1\n" * 20,
    "line": "12",
    "ratio": "0.5",
    "force": "true",
    "unit": "celsius",
    "tags": '["a", "b"]',
    "options": '{"depth": 3}',
    "name": "Ann",
    "date": "2026-11-21",
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["path", "line"], "additionalProperties": False}


def written(values: dict[str, str]) -> str:
    """Return a call with these values."""
    parameters = "".join(f'<parameter name="{name}">{value}</parameter>' for name, value in values.items())
    return f'<function_calls><invoke name="edit">{parameters}</invoke></function_calls>'


def microseconds(run: object) -> float:
    """Return the time of one run."""
    return min(timeit.repeat(run, number=1000, repeat=5)) * 1000  # type: ignore[arg-type]


def main() -> None:
    """Print a row a measurement."""
    catalog = Catalog([Tool(name="edit", input_schema=SCHEMA)])
    plain = parse(written(VALUES), catalog).calls[0]
    mended = parse(written({**VALUES, "unit": "Celsius"}), catalog).calls[0]
    assert isinstance(plain, ToolCall)
    assert isinstance(mended, ToolCall)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    rows = {
        "bind a call of ten parameters": lambda: bind(plain.raw, catalog),
        "bind it with one value to convert": lambda: bind(mended.raw, catalog),
        "jsonschema alone, the same arguments": lambda: list(validator.iter_errors(plain.arguments)),
        "parse and bind the text": lambda: parse(written(VALUES), catalog),
    }
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {platform.system()} {platform.machine()}, CPython {platform.python_version()}")
    for title, run in rows.items():
        print(f"{title:40} {microseconds(run):8.1f} us")


if __name__ == "__main__":
    main()
