"""Lines of the log as JSON, whatever is said."""

import json
import logging
import sys
from typing import Any

import pytest

from xmlcall.proxy.observed.metrics import Metrics
from xmlcall.proxy.observed.observer import Observing, trace_id_in
from xmlcall.proxy.observed.probes import JsonFormatter

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def written(message: str, *values: Any, error: Exception | None = None, **more: Any) -> str:
    try:
        if error is not None:
            raise error
    except Exception:
        more["exc_info"] = sys.exc_info()
    record = logging.makeLogRecord({"msg": message, "args": values, "levelno": 30, "levelname": "WARNING", "name": "x", **more})
    return JsonFormatter().format(record)


@pytest.mark.parametrize("said", ["two\nlines", "a colour \x1b[31m", "right to left \u202e", "half a pair \ud800", "Zürich"])
def test_a_line_is_a_line(said: str) -> None:
    line = written("said %s", said)
    assert line.isascii()
    assert line.isprintable()
    told = json.loads(line)
    assert (told["message"], told["level"], told["logger"]) == (f"said {said}", "warning", "x")


def test_an_exception_comes_with_its_traceback() -> None:
    told = json.loads(written("unforeseen", error=ValueError("why")))
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("ValueError: why")


def test_facts_stand_beside_the_message() -> None:
    told = json.loads(written("said", facts={"status": 200, "model": "m"}))
    assert (told["status"], told["model"]) == (200, "m")


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-01\n", None),
        ("secret-5d1c", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
    ],
)
def test_a_trace_is_named_only_if_it_is_one(header: str, trace: str | None) -> None:
    observing = Observing(Metrics(), endpoint="/", method="GET", trace_id=trace_id_in({"traceparent": header}))
    assert observing.over(status=200, error=None, has_left=False).get("trace_id") == trace


def test_the_name_of_a_key_is_told() -> None:
    metrics = Metrics()
    observing = Observing(metrics, endpoint="/", method="GET")
    observing.key = "team-a"
    assert observing.over(status=200, error=None, has_left=False)["key"] == "team-a"
    assert 'key="team-a"' in metrics.exposition()[0].decode()
