"""Drive a turn yourself, step by step, in an event loop of your own: python examples/own_client_async.py [MODEL]

What `ToolLoop` does for you, without hosts, rules and records: each action is done here, and the text is shown as it comes.
"""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import aclosing

import xmlcall


def word_count(text: str) -> int:
    """Count the words of a text.

    Args:
        text: any.
    """
    return len(text.split())


async def do(action: xmlcall.Ask | xmlcall.Run | xmlcall.Score, turn: xmlcall.Turn, backend: xmlcall.Backend) -> None:
    match action:
        case xmlcall.Ask(request=request):
            async with aclosing(backend.stream(request)) as chunks:
                async for chunk in chunks:
                    show(turn.receive(chunk))
                    if turn.has_enough:  # nothing useful can follow: closing the stream ends the generation
                        break
            show(turn.end())
        case xmlcall.Run(call=call) if reason := turn.why_not(action):  # it writes values that were never said
            turn.give(call.id, xmlcall.Denied(reason=reason))
        case xmlcall.Run(call=call):
            print(f"{call.name}({call.arguments})")
            turn.start(call.id)  # if the turn is stopped now, the model learns that the call may have run
            turn.give(call.id, str(word_count(**call.arguments)))
        case xmlcall.Score(request=request):  # only with `Asking(call_threshold=...)`
            token = xmlcall.FirstToken()
            async with aclosing(backend.stream(request)) as chunks:
                async for chunk in chunks:
                    token = token.after(chunk)
            turn.scored(token)


def show(events: Iterable[object]) -> None:
    for event in events:
        if isinstance(event, xmlcall.TextDelta):
            print(event.text, end="", flush=True)


async def main(model: str) -> None:
    asked = [{"role": "user", "content": "How many words has the sentence 'all good things come in threes'?"}]
    async with xmlcall.connect(model) as backend:
        turn = xmlcall.begin_turn(asked, [xmlcall.Tool.from_function(word_count)], server=backend.capabilities)
        while not isinstance(action := turn.next(), xmlcall.Done):
            try:
                await do(action, turn, backend)
            except xmlcall.BackendError as error:
                turn.refuse(error)
    print(f"\n({action.reason}, {len(action.conversation)} messages)")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "local"))
