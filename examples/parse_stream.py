"""Read calls out of a model's text while it comes: python examples/parse_stream.py

No model and no server: the text is cut into pieces as a stream would bring them. Events are the same however it is cut.
"""

import xmlcall

WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
TEXT = """I look it up.
<function_calls>
<invoke name="get_weather">
<parameter name="city">Zürich</parameter>
<parameter name="days">3</parameter>
</invoke>
</function_calls>"""


def main() -> None:
    parser = xmlcall.Parser([WEATHER])
    pieces = [TEXT[start : start + 9] for start in range(0, len(TEXT), 9)]
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
    for event in xmlcall.coalesce(events):
        match event:
            case xmlcall.TextDelta(text=text) if text.strip():
                print("text:", text.strip())
            case xmlcall.ToolCallStart(name=name):
                print("a call of", name, "begins")
            case xmlcall.ToolCallEnd(raw=raw):
                match xmlcall.bind(raw, [WEATHER]):
                    case xmlcall.ToolCall(name=name, arguments=arguments):
                        print("it is whole:", name, arguments)
                    case xmlcall.InvalidCall(issues=issues):
                        print("it cannot run:", [issue.message for issue in issues])


if __name__ == "__main__":
    main()
