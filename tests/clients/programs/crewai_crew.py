"""CrewAI: python tests/clients/programs/crewai_crew.py http://127.0.0.1:8485/v1"""

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from shared import QUESTION, multiply, print_answers
from shared.product import Product


def crew_at(url, question, stream=False, **options):
    model = LLM(model="openai/local", base_url=url, api_key="none", temperature=0, stream=stream)
    helper = Agent(role="helper", goal="Answer questions.", backstory="You can multiply.", llm=model, tools=[tool(multiply)])
    task = Task(description=question, expected_output="The product.", agent=helper, **options)
    return Crew(agents=[helper], tasks=[task])


def whole(url):
    return crew_at(url, QUESTION).kickoff().raw


def streamed(url):
    return crew_at(url, QUESTION, stream=True).kickoff().raw


def structured(url):
    return crew_at(url, f"{QUESTION} Answer as an object.", output_pydantic=Product).kickoff().pydantic


def error(url):
    try:
        return crew_at(url, "This is too long.").kickoff().raw
    except Exception as refused:
        return refused


if __name__ == "__main__":
    print_answers(whole, streamed, structured, error)
