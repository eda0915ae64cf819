"""xmlcall's parser inside vLLM, without a model: what vLLM's server makes of a reply. Needs vLLM (docs/scale.md).

The server itself: vllm serve MODEL --enable-auto-tool-choice --tool-call-parser xmlcall --chat-template tools.jinja
"""

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # type: ignore[import-not-found]
from vllm.parser.parser_manager import ParserManager  # type: ignore[import-not-found]

import xmlcall.integrations.vllm

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

xmlcall.integrations.vllm.register()  # vLLM does so itself, by the entry point
parser = ParserManager.get_parser(tool_parser_name="xmlcall", enable_auto_tools=True)
request = ChatCompletionRequest(
    model="any", messages=[{"role": "user", "content": "And in Oslo?"}], tools=[{"type": "function", "function": WEATHER}]
)

reader = parser(object(), request.tools)  # a tokenizer is not asked for anything
pieces = [REPLY[start : start + 7] for start in range(0, len(REPLY), 7)]
for number, piece in enumerate(pieces, 1):
    delta = reader.parse_delta(piece, [0], request, prompt_token_ids=[0], finished=number == len(pieces))
    if delta and delta.content:
        print("text:", repr(delta.content))
    for call in delta.tool_calls if delta else ():
        print("call:", call.function.name or "", call.function.arguments or "")
