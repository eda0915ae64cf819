"""What the decision whether a tool is needed costs a message: `python benchmarks/decision_time.py qwen2.5-coder-1.5b`.

Eight tools are on offer (the catalog `files`), in two conversations: of requests that need none and of requests that need one.
Each is asked as profiles ask, and without a threshold, where the reminder stands in place of the decision. `decided` is the time
of the requests for first tokens, `first word` the time from the message to the first piece of the reply: what is read for the
decision need not be read again for the reply. The first message of each conversation, which reads the tool prompt, is left out.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from xmlcall import Answer, Message, ToolLoop
from xmlcall.backends.base import Backend, KeptOpen
from xmlcall.backends.connect import connect
from xmlcall.bench.own_suites import canned_tools
from xmlcall.bench.play import CannedHost
from xmlcall.types.completion import Chunk, CompletionRequest

CATALOG = "files"
NEED_NONE = (
    "Write a short Python function that reverses a string.",
    "Translate 'good morning' into French.",
    "How do I list files in bash?",
    "What year did World War II end?",
    "Explain in one sentence what a mutex is.",
    "Suggest two names for a black cat.",
    "Correct this sentence: he go to school.",
    "Thanks, that helps.",
)
NEED_ONE = (
    "List the folder /home/ana/docs.",
    "Read /home/ana/docs/minutes.txt.",
    "Search for files that end in .log in /var/log.",
    "Show the size and dates of /home/ana/docs/budget.xlsx.",
    "Create the folder /home/ana/new.",
    "Move /home/ana/a.txt to /home/ana/b.txt.",
    "And what is in /home/ana/photos?",
    "Read /home/ana/docs/budget.csv, too.",
)
REPLY = 24  # tokens
THRESHOLDS = {"qwen2.5-coder-1.5b": 2.0, "qwen2.5-coder-0.5b": -2.6}  # of the profiles


class Timed(KeptOpen):
    """Notes when a message's reply begins, and how long its scores take.

    Args:
        backend: open.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.clear()

    def clear(self) -> None:
        """Begin with another message."""
        self.begun, self.decided, self.first = time.perf_counter(), 0.0, 0.0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply."""
        begun = time.perf_counter()
        async with aclosing(self._backend.stream(request)) as chunks:
            async for chunk in chunks:
                if not request.top_logprobs and not self.first and (chunk.text or chunk.reasoning):
                    self.first = time.perf_counter() - self.begun
                yield chunk
        self.decided += (time.perf_counter() - begun) if request.top_logprobs else 0.0


async def times(backend: Backend, words: Sequence[str], threshold: float | None) -> list[tuple[float, float]]:
    """Return for each message but the first how long it was decided, and when its first word came.

    Args:
        backend: open.
        words: the person's.
        threshold: None leaves it to the model.
    """
    timed, found, said = Timed(backend), list[tuple[float, float]](), list[Message]()
    host = CannedHost(CATALOG, canned_tools(CATALOG))
    async with ToolLoop(timed, [host], policy=["*"], call_threshold=threshold, temperature=0, max_tokens=REPLY) as loop:
        for text in words:
            timed.clear()
            async for event in loop.run([*said, Message(role="user", content=text)]):
                if isinstance(event, Answer):
                    said = list(event.messages)
            found.append((timed.decided, timed.first))
    return found[1:]


async def measure(model: str) -> None:
    """Print the table of a model."""
    print("| requests | decided, median | most | first word, decided | first word, with the reminder |\n|---|---|---|---|---|")
    async with connect(model) as backend:
        for name, words in {"need none": NEED_NONE, "need one": NEED_ONE}.items():
            with_it = await times(backend, words, THRESHOLDS[model])
            without = await times(backend, words, None)
            decided, first = zip(*with_it, strict=True)
            medians = [statistics.median(first), statistics.median(each[1] for each in without)]
            cells = [statistics.median(decided), max(decided), *medians]
            print(f"| {name} | {' | '.join(f'{cell:.2f} s' for cell in cells)} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What the decision whether a tool is needed costs a message.")
    parser.add_argument("model", choices=THRESHOLDS)
    asyncio.run(measure(parser.parse_args().model))


if __name__ == "__main__":
    main()
