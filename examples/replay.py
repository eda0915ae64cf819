"""See what a turn makes of replies that were written before, without a model: python examples/replay.py [FILE ...]

Each file is the text of one reply; without any, three of a small model's are played: a call with two mistakes, the same call
written right, and the answer. The call is not run: its result is told.
"""

import sys
from pathlib import Path

import xmlcall

WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
REPLIES = [
    '<function_calls>\n<invoke name="get_weather">\n<parameter name="town">Oslo</parameter>\n</invoke>\n</function_calls>',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}</tool_call>',
    "It will snow in Oslo for three days.",
]


def main(replies: list[str]) -> None:
    turn = xmlcall.begin_turn([{"role": "user", "content": "What will the weather be in Oslo for 3 days?"}], [WEATHER])
    left = iter(replies)
    while not isinstance(action := turn.next(), xmlcall.Done):
        match action:
            case xmlcall.Ask():
                if (reply := next(left, None)) is None:
                    turn.stop()
                    continue
                turn.receive(xmlcall.Chunk(text=reply))
                events = turn.end("stop")
            case xmlcall.Run(call=call):
                events = turn.give(call.id, "Snow.")
        for event in events:
            if isinstance(event, xmlcall.CallRejected):
                print(event.call.name, "does not run:", *[issue.message for issue in event.call.issues])
            elif isinstance(event, xmlcall.CallFinished):
                print(event.call.name, event.call.arguments, [repair.code for repair in event.call.repairs])
    print(action.reason, action.text)


if __name__ == "__main__":
    main([Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]] or REPLIES)
