"""The dashboard of Grafana asks for metrics and labels that `/metrics` gives, and is in the form that Grafana loads."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from observed_harness import ask, observed
from prometheus_client.parser import text_string_to_metric_families
from proxy_harness import add, block, double

from xmlcall import LocalHost
from xmlcall.proxy.observed.observer import METRICS, Observer
from xmlcall.types.completion import Chunk, Usage

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy/grafana/xmlcall.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
USAGE = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=80)
WIDTH = 24

Labels = dict[str, set[str]]


async def given() -> Labels:
    """Return the labels of every series after requests of all kinds, by the name of the series."""
    script: list[Any] = [
        [add("1,000", 2), Chunk(finish_reason="stop", usage=USAGE)],
        block(("add", {"a": 1})),
        block(("double", {"n": 2})),
        "Done.",
    ]
    async with observed(script, observer=Observer(), hosts=[LocalHost([double], name="own")]) as client:
        for _ in range(2):
            await ask(client, stream=True)
        await ask(client, tools=[], tool_choice="secret")
        text = (await client.get("/metrics")).text
    series: Labels = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series


def queries() -> Iterator[str]:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def asked(query: str) -> Labels:
    """Return the metrics of a query, each with the labels that stand beside it or are grouped by."""
    grouped = {label.strip() for each in re.findall(r"\bby \(([^)]*)\)", query) for label in each.split(",")}
    found: Labels = {}
    for name, matchers in re.findall(r"\b(xmlcall_\w+)(?:\{([^}]*)\})?", query):
        found.setdefault(name, set()).update(re.findall(r"(\w+)(?==|!=|=~|!~)", matchers), grouped)
    for name, label in re.findall(r"label_values\((\w+), (\w+)\)", query):
        found[name].add(label)
    return found


async def test_what_it_asks_for_is_given() -> None:
    series = await given()
    assert {row.name for row in METRICS} <= {name.removesuffix("_bucket") for name in series}, "all are told at least once"
    missing = [
        (name, labels - series.get(name, set()))
        for query in queries()
        for name, labels in asked(query).items()
        if name not in series or labels - series[name]
    ]
    assert missing == []


def test_every_metric_is_shown() -> None:
    shown = {name.removesuffix("_bucket") for query in queries() for name in asked(query)}
    assert shown == {row.name for row in METRICS}


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel["type"] != "row"], ids=lambda panel: panel["title"])
def test_legends_name_labels_that_are_left(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= {label for each in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in each.split(", ")}


def test_its_form() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["uid"] == "xmlcall"
    variables = {variable["name"]: variable["type"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "model": "query"}
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids)) > 10
    sources = {
        json.dumps(target["datasource"])
        for panel in PANELS
        for target in (panel, *panel.get("targets", ()))
        if "datasource" in target
    }
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    for query in queries():
        assert query.count("(") == query.count(")")


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or above)


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] + place["w"] <= WIDTH for place in places)
    assert [(one, other) for one, other in combinations(places, 2) if overlap(one, other)] == []
