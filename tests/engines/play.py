"""Let an engine's own code drive the parser: a program that reads replies as JSON lines and writes what the engine made of them.

    python tests/engines/play.py vllm 0.33.0

A line is {"text", "cuts": places, "tools", "choice"?}; the answer has the reply read whole and read as a stream. Between request
and answer all is the engine's: vLLM's DelegatingParser, which its server asks, and SGLang's FunctionCallParser.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from engines.fetch import folder_of
from engines.stand_ins import prepare

Answer = Mapping[str, Any]


def pieces(case: Mapping[str, Any]) -> Iterator[str]:
    """Cut a reply."""
    text = case["text"]
    places = sorted({0, *(place % (len(text) + 1) for place in case["cuts"]), len(text)})
    yield from (text[first:last] for first, last in zip(places, places[1:] or [0], strict=False))


class Stream:
    """Puts deltas together as a client does.

    Attributes:
        faults: what no client would take.
    """

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[list[str]] = []
        self.faults: list[str] = []

    def call(self, index: int, name: str | None, arguments: str | None, *, is_named: bool) -> None:
        if is_named:
            if index != len(self.calls) or not name:
                self.faults.append(f"call {index} ({name}) after {len(self.calls)} calls")
            self.calls.append([name or "", arguments or ""])
        elif name or index != len(self.calls) - 1:
            self.faults.append(f"arguments of call {index} after {len(self.calls)} calls")
        else:
            self.calls[index][1] += arguments or ""

    def answer(self) -> Answer:
        return {"text": self.text, "calls": self.calls, "faults": self.faults}


def vllm_player() -> Callable[[Mapping[str, Any]], Answer]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # type: ignore[import-not-found]
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # type: ignore[import-not-found]
    from vllm.parser.parser_manager import ParserManager  # type: ignore[import-not-found]

    import xmlcall.integrations.vllm

    xmlcall.integrations.vllm.register()
    parser = ParserManager.get_parser(tool_parser_name="xmlcall", enable_auto_tools=True)

    def play(case: Mapping[str, Any]) -> Answer:
        said = [{"role": "user", "content": "?"}]
        choice = case.get("choice") or ("auto" if case["tools"] else None)
        if choice == "responses":
            flat = [{"type": "function", **tool["function"]} for tool in case["tools"]]
            request = ResponsesRequest(model="m", input="?", tools=flat)
        else:
            request = ChatCompletionRequest(model="m", messages=said, tools=case["tools"] or None, tool_choice=choice)
        asked = parser(object(), request.tools).adjust_request(request)
        _, text, calls = parser(object(), request.tools).parse(case["text"], asked, enable_auto_tools=True)
        whole = {"text": text or "", "calls": [[call.name, call.arguments] for call in calls or []]}
        stream, reader, chunks = Stream(), parser(object(), request.tools), list(pieces(case))
        for place, chunk in enumerate(chunks, 1):
            message = reader.parse_delta(chunk, [0], asked, prompt_token_ids=[1], finished=place == len(chunks))
            stream.text += (message.content or "") if message else ""
            for delta in message.tool_calls if message else ():
                named = delta.id is not None
                stream.call(delta.index, delta.function.name, delta.function.arguments, is_named=named)
        return {"whole": whole, "streamed": stream.answer(), "special": asked.skip_special_tokens}

    return play


def sglang_player() -> Callable[[Mapping[str, Any]], Answer]:
    from sglang.srt.entrypoints.openai.protocol import Tool  # type: ignore[import-not-found]
    from sglang.srt.function_call.function_call_parser import FunctionCallParser  # type: ignore[import-not-found]

    import xmlcall.integrations.sglang

    xmlcall.integrations.sglang.register()

    def play(case: Mapping[str, Any]) -> Answer:
        tools = [Tool(**tool) for tool in case["tools"]]
        parser = FunctionCallParser(tools, "xmlcall")
        # as in its _process_tool_calls
        text, calls = parser.parse_non_stream(case["text"]) if parser.has_tool_call(case["text"]) else (case["text"], [])
        whole = {"text": text, "calls": [[call.name, call.parameters] for call in calls]}
        stream, reader = Stream(), FunctionCallParser(tools, "xmlcall")
        for said, items in (*(reader.parse_stream_chunk(chunk) for chunk in pieces(case)), reader.parse_stream_end()):
            stream.text += said or ""
            for item in items:
                stream.call(item.tool_index, item.name, item.parameters, is_named=item.name is not None)
        constraint = parser.get_structure_constraint("required") if tools else None
        return {"whole": whole, "streamed": stream.answer(), "required": constraint and constraint[0]}

    return play


PLAYERS = {"vllm": vllm_player, "sglang": sglang_player}


def main(engine: str, version: str) -> None:
    prepare(engine, folder_of(engine, version))
    play = PLAYERS[engine]()
    print(json.dumps({"loaded": sorted(name for name in sys.modules if name.partition(".")[0] == engine)}), flush=True)
    for line in sys.stdin:
        print(json.dumps(play(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
