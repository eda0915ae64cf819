"""The tool parser for vLLM: its class, and the file for `--tool-parser-plugin`.

vLLM loads a plugin as a module (`xmlcall.integrations.vllm_parser`) or from a file path, and names the module after the file. So
imports are absolute here, and the file cannot be named `vllm.py`, because it would replace vLLM itself.

vLLM notifies a tool parser of a stream's end only if the parser declares itself to be of the newer kind
(`engine_based_streaming`, `finish_streaming`). This parser needs it, because it holds back text that may become a call.
"""

from collections.abc import Sequence
from typing import Any

from vllm.entrypoints.generate.base.protocol import (  # type: ignore[import-not-found]
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager  # type: ignore[import-not-found]

from xmlcall.agent.drive import new_call_id
from xmlcall.integrations.reading import EngineCall, EngineReplyReader, Piece, catalog_of, read_whole, split
from xmlcall.tools.catalog import Catalog


class XmlcallToolParser(ToolParser):  # type: ignore[misc]
    """Reads calls in every format that xmlcall knows, and types their arguments by the request's tools."""

    engine_based_streaming = True

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None) -> None:
        super().__init__(tokenizer, tools)
        self._reader: EngineReplyReader | None = None

    def adjust_request(self, request: Any) -> Any:
        """Keep special tokens in the text, because in some formats a call begins with them."""
        request = super().adjust_request(request)
        if request.tools and request.tool_choice != "none":
            request.skip_special_tokens = False
        return request

    def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
        text, calls = read_whole(model_output, self._offered(request))
        found = [ToolCall(id=new_call_id(), function=FunctionCall(name=call.name, arguments=call.arguments)) for call in calls]
        return ExtractedToolCallInformation(tools_called=bool(found), tool_calls=found, content=text or None)

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> DeltaMessage | None:
        if self._reader is None:
            self._reader = EngineReplyReader(self._offered(request))
        return self._message(self._reader.feed(delta_text))

    def finish_streaming(self) -> DeltaMessage | None:
        reader, self._reader = self._reader, None
        return self._message(reader.finish()) if reader else None

    def _offered(self, request: Any) -> Catalog:
        if request.tool_choice == "none":
            return Catalog()
        return catalog_of(tool.model_dump() for tool in request.tools or self.tools)

    def _message(self, pieces: list[Piece]) -> DeltaMessage | None:
        if not pieces:
            return None
        text, calls = split(pieces)
        return DeltaMessage(content=text or None, tool_calls=[delta for call in calls for delta in self._deltas(call)])

    def _deltas(self, call: EngineCall) -> list[DeltaToolCall]:
        """Write a call, its name first; vLLM looks in the two lists for arguments that it has not sent yet."""
        self.prev_tool_call_arr.append({"name": call.name, "arguments": call.arguments})
        self.streamed_args_for_tool.append(call.arguments)
        self.current_tool_id, self.current_tool_name_sent = call.index, True
        name, arguments = DeltaFunctionCall(name=call.name), DeltaFunctionCall(arguments=call.arguments)
        return [
            DeltaToolCall(index=call.index, type="function", id=new_call_id(), function=name),
            DeltaToolCall(index=call.index, function=arguments),
        ]


ToolParserManager.register_module("xmlcall", module=XmlcallToolParser)
