"""Haystack: python tests/clients/programs/haystack_agent.py http://127.0.0.1:8485/v1"""

import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from shared import QUESTION, multiply, print_answers
from shared.product import Product


def agent_at(url, streaming_callback=None, **asked):
    key, asked = Secret.from_token("none"), {"temperature": 0} | asked
    model = OpenAIChatGenerator(model="local", api_base_url=url, api_key=key, generation_kwargs=asked, tools_strict=True)
    return Agent(chat_generator=model, tools=[tool(multiply)], streaming_callback=streaming_callback)


def said(agent, question):
    return agent.run(messages=[ChatMessage.from_user(question)])["last_message"].text


def whole(url):
    return said(agent_at(url), QUESTION)


def streamed(url):
    parts = []
    agent = agent_at(url, streaming_callback=parts.append)
    return said(agent, QUESTION)


def structured(url):
    return Product.model_validate_json(said(agent_at(url, response_format=Product), f"{QUESTION} Answer as an object."))


def error(url):
    try:
        return said(agent_at(url), "This is too long.")
    except Exception as refused:
        return refused


if __name__ == "__main__":
    print_answers(whole, streamed, structured, error)
