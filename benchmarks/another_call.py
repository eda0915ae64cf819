"""Does a threshold say better than the reply if another call follows? `python benchmarks/another_call.py [RUN URL]`

After each call of a kept reply the next token is asked for: one that begins another call, or one that closes the block. The
log-odds of the first are held against the number of calls that the question wants, so that a threshold other than the model's
own, 0, can be judged. With RUN, the folder of a run in the way `xml`, and URL, a llama.cpp server with its model, the log-odds
are measured and kept in results/another-call.jsonl; without, those kept are counted again.
"""

import argparse
import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import xmlcall
from xmlcall.agent.scores import first_token
from xmlcall.bench.store import RecordedRun, read_run
from xmlcall.bench.ways import AskedCase, way_of
from xmlcall.types.calls import Message
from xmlcall.types.completion import CompletionRequest

KEPT = Path(__file__).parent / "results" / "another-call.jsonl"
CLOSER = "</invoke>"
MOST = 4  # calls of a reply that are asked about
THRESHOLDS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)


async def measure(run: RecordedRun, url: str) -> None:
    """Ask what follows each call of a run's replies.

    Args:
        run: in the way `xml`.
        url: of the model server.
    """
    model = run.about["model"]
    known = {row["case"] for row in rows() if row["model"] == model}
    async with xmlcall.connect(url) as backend:
        for case, reply in run.of_way("xml"):
            text = reply["rounds"][0].get("text", "")
            ends = [place + len(CLOSER) for place in range(len(text)) if text.startswith(CLOSER, place)][:MOST]
            if case.id in known or not ends:
                continue
            before = AskedCase(way_of("xml"), case, run.settings).sent(reply["rounds"])
            odds = []
            for end in ends:
                begun = Message(role="assistant", content=text[:end] + "\n")
                told = await first_token(backend, CompletionRequest(messages=(*before, begun)))
                odds.append(round(log_odds(told.candidates), 3))
            row = {"model": model, "case": case.id, "wanted": len(case.answers), "log_odds": odds}
            with KEPT.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def log_odds(candidates: Sequence[tuple[str, float]]) -> float:
    """Return the log-odds of another call: `<` begins its tag, `</` closes the block.

    Args:
        candidates: tokens with the logarithms of their probabilities.
    """
    tags = [(token.strip(), logprob) for token, logprob in candidates if token.strip().startswith("<")]
    another = math.fsum(math.exp(logprob) for token, logprob in tags if not token.startswith("</"))
    closing = math.fsum(math.exp(logprob) for token, logprob in tags if token.startswith("</"))
    return math.log(max(another, 1e-9)) - math.log(max(closing, 1e-9))


def rows() -> Iterator[dict[str, Any]]:
    """Yield what is kept."""
    if KEPT.exists():
        yield from map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())


def table(model: str) -> Iterator[str]:
    """Yield a row a threshold: how many of the calls that are wanted would be missed, and how many would be too many.

    Args:
        model: whose log-odds.
    """
    of_model = [row for row in rows() if row["model"] == model]
    places = [(odds, row["wanted"] > place) for row in of_model for place, odds in enumerate(row["log_odds"], 1)]
    wanted = [odds for odds, is_wanted in places if is_wanted]
    others = [odds for odds, is_wanted in places if not is_wanted]
    yield f"| threshold | missed of {len(wanted)} | too many of {len(others)} |"
    yield "|---|---|---|"
    for threshold in THRESHOLDS:
        yield f"| {threshold:g} | {sum(odds <= threshold for odds in wanted)} | {sum(odds > threshold for odds in others)} |"


def main() -> None:
    """Measure, if asked to, and print the tables."""
    parser = argparse.ArgumentParser(description="Whether another call follows, by the model's own probabilities.")
    parser.add_argument("run", nargs="?", type=Path, help="folder of a run in the way `xml`")
    parser.add_argument("url", nargs="?", help="of a llama.cpp server with its model")
    options = parser.parse_args()
    if options.run and not options.url:
        parser.error("expected RUN and URL, got RUN only: which server has the model of the run?")
    if options.run:
        asyncio.run(measure(read_run(options.run), options.url))
    for model in dict.fromkeys(row["model"] for row in rows()):
        print(f"## {model}\n", *table(model), "", sep="\n")


if __name__ == "__main__":
    main()
