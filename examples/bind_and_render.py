"""Check calls against a tool's inputSchema, and write calls as text: python examples/bind_and_render.py"""

import xmlcall

BOOK = {
    "name": "book_room",
    "inputSchema": {
        "type": "object",
        "properties": {
            "people": {"type": "integer", "minimum": 1, "maximum": 12},
            "equipment": {"type": "array", "items": {"enum": ["screen", "camera", "whiteboard"]}},
        },
        "required": ["people"],
    },
}


def block(people: str, equipment: str) -> str:
    """Write a call as a model might."""
    parameters = f'<parameter name="people">{people}</parameter><parameter name="equipment">{equipment}</parameter>'
    return f'<function_calls><invoke name="book_room">{parameters}</invoke></function_calls>'


def main() -> None:
    for text in (block("4", '["screen"]'), block("4", "Screen, camera"), block("40", "[]"), block("four", "a piano")):
        (call,) = xmlcall.parse(text, [BOOK]).calls
        match call:
            case xmlcall.ToolCall(arguments=arguments, repairs=repairs):
                print("runs:", arguments, [repair.code for repair in repairs])
            case xmlcall.InvalidCall(issues=issues):
                print("does not run:", [f"{issue.path} {issue.message}" for issue in issues])
    text = xmlcall.render([{"name": "book_room", "arguments": {"people": 4, "equipment": ["camera"]}}], [BOOK])
    print(text)
    (call,) = xmlcall.parse(text, [BOOK]).calls
    assert isinstance(call, xmlcall.ToolCall)
    print("reads back as:", call.arguments)


if __name__ == "__main__":
    main()
