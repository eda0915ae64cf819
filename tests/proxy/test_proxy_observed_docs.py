"""The page about what is seen from outside, compared with the code."""

import json
import re
from pathlib import Path

import yaml
from observed_harness import ask, observed

from xmlcall.proxy.observed.observer import METRICS, MOST_VALUES
from xmlcall.proxy.observed.probes import KEPT_SECONDS, WAIT_SECONDS

PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_every_metric_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(xmlcall_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE, flags=re.MULTILINE)
    told = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows]
    assert told == [(row.name, row.kind, row.labels, row.help) for row in METRICS]


def test_figures_are_those_of_the_code() -> None:
    assert f"at most every {KEPT_SECONDS:g} seconds, and has {WAIT_SECONDS:g} seconds" in PAGE
    assert f"at most {MOST_VALUES} values" in PAGE


def test_the_scrape_is_yaml_that_prometheus_reads() -> None:
    (text,) = fenced("yaml")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job.keys() == {"job_name", "scrape_interval", "authorization", "static_configs"}
    assert job.get("metrics_path", "/metrics") == "/metrics"


async def test_the_line_of_the_log_is_like_ours() -> None:
    import logging

    from xmlcall.proxy.observed.probes import JsonFormatter

    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonFormatter().format(record))

    logger, handler = logging.getLogger("xmlcall.proxy"), Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        async with observed(["Hello."]) as client:
            await ask(client)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    (shown,) = fenced("json")
    assert json.loads(lines[-1]).keys() | {"trace_id"} == json.loads(shown).keys()
