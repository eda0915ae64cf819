"""A rival: the kind of tool prompt that browser extensions paste into chats, in our words.

What is typical of it (SuperAssistant's published prompt, 2025, was the pattern): a role and a list of strict rules, the tools
as JSON with every parameter, a fenced block around one call, a call id that the model has to count up, one call a reply, and a
result that the person's side pastes back. The reply is read by the same parser as ours.
"""

import json
from collections.abc import Iterable
from typing import Any

from ..types.tool import Tool

__all__ = ["origin_prompt"]

_RULES = """You are an assistant with access to tools. You operate in a loop: think about the request, call a tool, read its \
result, go on until the request is done.

Rules for calling tools:
1. Explain in one sentence why you call the tool, then write the call and nothing after it.
2. One call in a reply. Wait for its result before the next one.
3. Use only the tools listed here, and only the parameters that they have. Never make up a result.
4. A call stands in a code block that begins with ```xml and ends with ```.
5. Number the calls: call_id is 1 for the first call and grows by one with each.
6. If no tool is needed, answer in plain words.

The form of a call:

```xml
<function_calls>
<invoke name="TOOL_NAME" call_id="1">
<parameter name="PARAMETER_1">VALUE_1</parameter>
<parameter name="PARAMETER_2">VALUE_2</parameter>
</invoke>
</function_calls>
```

Strings stand as they are, lists and objects as JSON. The result comes in the next message, in <function_results>.

Available tools:
"""


def origin_prompt(tools: Iterable[Tool]) -> str:
    """Return the system prompt."""
    return _RULES + "\n".join(json.dumps(_described(tool), ensure_ascii=False) for tool in tools)


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
