"""Conversations of real clients, recorded by `make clients WRITE=1`, once more: the same status, calls and text."""

import re
from typing import Any

import pytest
from clients.answers import summary
from clients.recording import RECORDED, again, impersonal, read
from clients.scripted import CALL, MultiplyingModel, call_of
from clients.table import CLIENTS
from profiles import is_deep

CALLS = {client.name: client.call for client in CLIENTS}
STEP = 1 if is_deep() else 3  # of each client's exchanges, the first one always
EXCHANGES = [
    pytest.param(path.stem, exchange, id=f"{path.stem}-{number}")
    for path in sorted(RECORDED.glob("*.jsonl"))
    for number, exchange in enumerate(read(path))
    if number % STEP == 0
]


def model_of(name: str) -> MultiplyingModel:
    call = CALLS[name]
    return MultiplyingModel(CALL if call["name"] == "multiply" else call_of(call["name"], call["arguments"]))


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "exchange"), EXCHANGES)
async def test_a_recorded_request_is_answered_as_it_was(name: str, exchange: dict[str, Any]) -> None:
    response = await again(exchange, model_of(name))
    assert response.status_code == exchange["status"]
    if exchange["answer"] is not None:
        assert impersonal(summary(response.request.url.path, response.text)) == exchange["answer"]


def test_every_client_that_was_run_is_recorded() -> None:
    assert {path.stem for path in RECORDED.glob("*.jsonl")} == {*CALLS}


PERSONAL = re.compile(r"/root|/work|/tmp|[0-9a-f]{8}-[0-9a-f]{4}-[1-9a-f]|[\w.]+@[\w-]+\.\w\w")


def test_nothing_personal_is_kept() -> None:
    for path in RECORDED.glob("*.jsonl"):
        text = path.read_text(encoding="utf-8").replace("00000000-0000-4000-8000-000000000000", "")
        assert PERSONAL.findall(text) == [], path
        assert max((len(line) for line in text.splitlines()), default=0) < 60_000, path
