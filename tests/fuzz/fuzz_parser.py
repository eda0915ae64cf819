"""Coverage-guided fuzzing of the parser: `make fuzz`, or `python tests/fuzz/fuzz_parser.py CORPUS_FOLDER -max_total_time=1800`.

The input is read as a list of small numbers: each picks a piece of markup or a character, so that the fuzzer changes the order
of meaningful pieces. What must hold is in `tests/soup.py`.
"""

import json
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent.parent))
with atheris.instrument_imports(include=["xmlcall"]):
    from soup import JSON, PIECES, TOOLS, check_invariants, pieces_of

    from xmlcall import ToolCall, UsageError, parse, render
    from xmlcall.dialects import DIALECTS
    from xmlcall.loosejson.reader import read as read_json

ALL = list(dict.fromkeys([*PIECES, *JSON, *(piece for dialect in DIALECTS.values() for piece in pieces_of(dialect))]))
NAMES = list(DIALECTS)


def test_one_input(data: bytes) -> None:
    """Read one text, cut it, and write and read a call with it as a value."""
    source = atheris.FuzzedDataProvider(data)
    flags = source.ConsumeIntInRange(0, 15)
    places = [source.ConsumeIntInRange(0, 200) for _ in range(3)]
    text = "".join(_piece(source) for _ in range(source.ConsumeIntInRange(0, 40)))
    tools = TOOLS if flags & 1 else ()
    places = [min(place, len(text)) for place in places]
    check_invariants(text, places, tools, "stop" if flags & 2 else "length", reasoning_open=bool(flags & 4))
    read_json(text, complete=True)
    if flags & 8:
        _round_trip(text, NAMES[places[0] % len(NAMES)])


def _piece(source: atheris.FuzzedDataProvider) -> str:
    number = int(source.ConsumeIntInRange(0, 1023))
    if number < 960:
        return ALL[number * len(ALL) // 960]
    return str(source.ConsumeUnicode(2))


def _round_trip(value: str, dialect: str) -> None:
    call = {"name": "f", "arguments": {"a": value, "d": [value]}}
    try:
        text = render([call], TOOLS, dialect=dialect)
    except UsageError:
        json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        raise
    reply = parse(text, TOOLS)
    assert [isinstance(each, ToolCall) and each.arguments for each in reply.calls] == [call["arguments"]], (dialect, value)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
