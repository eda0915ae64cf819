"""The call detector for SGLang, which makes one for each request.

SGLang calls it for three purposes: to learn whether a whole reply may have calls (`has_tool_call`, without the tools), to read a
whole reply, and to read each piece of a stream. `finish` is called with the last piece.
"""

from typing import Any

from sglang.srt.function_call.base_format_detector import BaseFormatDetector  # type: ignore[import-not-found]
from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem  # type: ignore[import-not-found]

from xmlcall.errors import UsageError
from xmlcall.integrations.reading import EngineCall, EngineReplyReader, Piece, catalog_of, may_have_calls, read_whole, split


class XmlcallDetector(BaseFormatDetector):  # type: ignore[misc]
    """Reads calls in every format that xmlcall knows, and types their arguments by the request's tools."""

    def __init__(self) -> None:
        super().__init__()
        self._reader: EngineReplyReader | None = None

    def has_tool_call(self, text: str) -> bool:
        return may_have_calls(text)

    def detect_and_parse(self, text: str, tools: list[Any]) -> StreamingParseResult:
        said, calls = read_whole(text, catalog_of(tool.model_dump() for tool in tools))
        items = [ToolCallItem(tool_index=call.index, name=call.name, parameters=call.arguments) for call in calls]
        return StreamingParseResult(normal_text=said, calls=items)

    def parse_streaming_increment(self, new_text: str, tools: list[Any]) -> StreamingParseResult:
        if self._reader is None:
            self._reader = EngineReplyReader(catalog_of(tool.model_dump() for tool in tools))
        return self._result(self._reader.feed(new_text))

    def finish(self, tools: list[Any]) -> StreamingParseResult:
        reader, self._reader = self._reader, None
        return self._result(reader.finish() if reader else [])

    def supports_structural_tag(self) -> bool:
        """Leave `tool_choice="required"` to SGLang: its structural tags enclose JSON, and xmlcall's formats do not."""
        return False

    def structure_info(self) -> Any:
        raise UsageError("xmlcall has no structural tags for SGLang, and says so in supports_structural_tag")

    def _result(self, pieces: list[Piece]) -> StreamingParseResult:
        text, calls = split(pieces)
        return StreamingParseResult(normal_text=text, calls=[item for call in calls for item in self._items(call)])

    def _items(self, call: EngineCall) -> list[ToolCallItem]:
        """Write a call, its name first; SGLang looks in the two lists for arguments that it has not sent yet."""
        self.prev_tool_call_arr.append({"name": call.name, "arguments": call.arguments})
        self.streamed_args_for_tool.append(call.arguments)
        self.current_tool_id, self.current_tool_name_sent = call.index, True
        return [
            ToolCallItem(tool_index=call.index, name=call.name, parameters=""),
            ToolCallItem(tool_index=call.index, parameters=call.arguments),
        ]
