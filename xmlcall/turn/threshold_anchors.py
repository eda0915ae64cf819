"""Requests of which it is known whether they need a tool, by which a model's threshold is found (`tool_need`).

They are ordinary requests, and not greetings: between those and a request for a tool there is much room, and "Translate this"
lies in it. The tools are ours, since the threshold that fits a model depends little on the tools at hand.
"""

from typing import Final

from ..tools.catalog import Catalog
from ..types.calls import Tool

__all__ = ["NEEDS_NONE", "NEEDS_TOOL", "TOOLS"]


def _tool(name: str, description: str, **parameters: str) -> Tool:
    properties = {each: {"type": "string", "description": words} for each, words in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name=name, description=description, input_schema=schema)


TOOLS: Final = Catalog(
    [
        _tool("weather_now", "Get the weather of a city.", city="The name of the city"),
        _tool("send_message", "Send a message to a person.", to="The name of the person", text="What it says"),
        _tool("search_files", "Search the files of the user.", words="What to look for"),
    ]
)
NEEDS_NONE: Final = (
    "Write a short poem about the sea.",
    "Translate 'thank you very much' into Spanish.",
    "Explain in one sentence what a prime number is.",
    "Who painted the Mona Lisa?",
    "Correct this sentence: She don't like apples.",
    "Give me three ideas for a birthday present.",
    "把“我喜欢读书”翻译成英文。",
    "用一句话解释什么是光合作用。",
    "写一个 Python 函数，返回列表中最大的数。",
    "《红楼梦》的作者是谁？",
)
NEEDS_TOOL: Final = (
    "What is the weather in Madrid right now?",
    "Send Laura a message: I will be ten minutes late.",
    "Which of my files mention the budget?",
    "Tell Tom that the meeting is at four.",
    "北京现在天气怎么样？",
    "给小王发消息：会议改到三点。",
    "在我的文件里找一下租房合同。",
)
