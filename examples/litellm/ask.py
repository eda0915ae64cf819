"""Ask a model behind LiteLLM's proxy a question that needs a tool: python ask.py tiny http://127.0.0.1:4000/v1

The proxy runs with the configuration beside this file. OpenAI's SDK does not know that the model has no function calling.
"""

import json
import os
import sys
from typing import Any

import openai

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "days_until",
        "description": "Count the days until a feast of this year.",
        "parameters": {"type": "object", "properties": {"feast": {"type": "string"}}, "required": ["feast"]},
    },
}
MODEL, URL = sys.argv[1:]


def days_until(feast: str) -> str:
    """Answer the model's call."""
    return f"{feast}: 32 days"


def ask(client: openai.OpenAI, messages: list[Any]) -> Any:
    """Get a reply; print its text as it comes."""
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=[TOOL]) as stream:
        for event in stream:
            if event.type == "content.delta":
                print(event.delta, end="", flush=True)
        return stream.get_final_completion().choices[0].message


def main() -> None:
    """Ask, run the calls of the reply, and give their results back until there are none."""
    client = openai.OpenAI(base_url=URL, api_key=os.environ.get("LITELLM_MASTER_KEY", "none"))
    messages: list[Any] = [{"role": "user", "content": "How many days are left until Christmas?"}]
    for _ in range(5):
        said = ask(client, messages)
        messages.append(said.model_dump(include={"role", "content", "tool_calls"}))
        for call in said.tool_calls or ():
            result = days_until(**json.loads(call.function.arguments))
            print(f"[{call.function.name}: {result}]")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not said.tool_calls:
            return


if __name__ == "__main__":
    main()
