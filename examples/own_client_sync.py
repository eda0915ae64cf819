"""Give tools to a model with your own client, without an event loop: python examples/own_client_sync.py URL [MODEL]

URL is that of a server with OpenAI's API, such as http://127.0.0.1:8080/v1. The turn does no I/O: it says what is to be done.
Here `httpx2` asks the model, and a Python function is the tool.
"""

import json
import sys
from collections.abc import Iterator

import httpx2

import xmlcall
from xmlcall.errors import BackendProtocolError, BackendStatusError
from xmlcall.wire import openai, sse


def days_between(first: str, last: str) -> int:
    """Count the days from one date to another.

    Args:
        first: such as 2026-03-01.
        last: such as 2026-03-31.
    """
    from datetime import date

    return (date.fromisoformat(last) - date.fromisoformat(first)).days


def main(url: str, model: str) -> None:
    def stream(request: xmlcall.CompletionRequest) -> Iterator[xmlcall.Chunk]:
        decoder, reader = sse.EventDecoder(), openai.StreamReader()
        body = openai.request_body(request, model)
        with httpx2.stream("POST", f"{url}/chat/completions", json=body, timeout=300) as response:
            if response.is_error:
                raise BackendStatusError(response.read().decode(), status_code=response.status_code)
            for data in response.iter_bytes():
                for payload in decoder.feed(data):
                    if payload == "[DONE]":
                        reader.done = True
                    elif chunk := reader.feed(json.loads(payload)):
                        yield chunk
        if not reader.finished:  # a call that was cut off could look whole
            raise BackendProtocolError("the server ended the reply without a finish reason")
        yield reader.close()

    def run(call: xmlcall.ToolCall) -> str:
        print(f"{call.name}({call.arguments})")
        return str(days_between(**call.arguments))

    asked = [{"role": "user", "content": "How many days are there from 2026-11-22 to 2026-12-24?"}]
    turn = xmlcall.begin_turn(asked, [xmlcall.Tool.from_function(days_between)])
    done = xmlcall.run_turn(turn, stream, run)
    print(done.text or done.error)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("expected: python examples/own_client_sync.py URL [MODEL]")
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "default")
