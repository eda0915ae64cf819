"""Use the `openai` package with a local model and no server: python examples/openai_without_server.py [MODEL]

The client's requests go to xmlcall inside this program. Needs `pip install openai`.
"""

import json
import sys
from typing import Any

import openai

import xmlcall.clients

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": PARAMETERS}}


def main(model: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with openai.OpenAI(api_key="none", http_client=xmlcall.clients.httpx2_client(model)) as client:
        while True:
            reply = client.chat.completions.create(model="local", messages=messages, tools=[TOOL], temperature=0)
            message = reply.choices[0].message
            if not message.tool_calls:
                break
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                assert call.type == "function"
                city = json.loads(call.function.arguments)["city"]
                print("get_weather:", city)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{city}: 4 degrees, light snow"})
    print(message.content)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "local")
