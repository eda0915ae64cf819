"""xmlcall's parser inside SGLang, without a model: what SGLang's server makes of a reply. Needs SGLang (docs/scale.md).

The server itself: sglang serve --model-path MODEL --tool-call-parser xmlcall --chat-template tools.jinja
"""

from sglang.srt.entrypoints.openai.protocol import Tool  # type: ignore[import-not-found]
from sglang.srt.function_call.function_call_parser import FunctionCallParser  # type: ignore[import-not-found]

import xmlcall.integrations.sglang

WEATHER = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
REPLY = """Let me look.

<function_calls>
<invoke name="get_weather">
<parameter name="city">Oslo</parameter>
<parameter name="days">3</parameter>
</invoke>
</function_calls>"""

xmlcall.integrations.sglang.register()  # SGLang does so itself, by the entry point
reader = FunctionCallParser([Tool(type="function", function=WEATHER)], "xmlcall")

pieces = [REPLY[start : start + 7] for start in range(0, len(REPLY), 7)]
for text, calls in [*map(reader.parse_stream_chunk, pieces), reader.parse_stream_end()]:
    if text:
        print("text:", repr(text))
    for call in calls:
        print("call:", call.name or "", call.parameters)
