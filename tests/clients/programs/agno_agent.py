"""Agno: python tests/clients/programs/agno_agent.py http://127.0.0.1:8485/v1"""

import os

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent
from agno.models.openai import OpenAILike
from shared import QUESTION, multiply, print_answers
from shared.product import Product


def agent_at(url, **options):
    return Agent(model=OpenAILike(id="local", base_url=url, temperature=0), tools=[multiply], **options)


def whole(url):
    return agent_at(url).run(QUESTION).content


def streamed(url):
    return "".join(event.content for event in agent_at(url).run(QUESTION, stream=True) if event.event == "RunContent")


def structured(url):
    return agent_at(url, output_schema=Product).run(f"{QUESTION} Answer as an object.").content


def structured_json(url):
    return agent_at(url, output_schema=Product, use_json_mode=True).run(f"{QUESTION} Answer as an object.").content


def error(url):
    return agent_at(url).run("This is too long.").content


if __name__ == "__main__":
    print_answers(whole, streamed, structured, structured_json, error)
