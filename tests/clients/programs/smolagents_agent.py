"""smolagents with its OpenAI client: python tests/clients/programs/smolagents_agent.py http://127.0.0.1:8485/v1"""

import contextlib
import sys

from shared import QUESTION
from smolagents import AgentGenerationError, LogLevel, OpenAIModel, ToolCallingAgent, tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers.

    Args:
        a: the first.
        b: the second.
    """
    return a * b


def whole(model):
    return ToolCallingAgent([multiply], model, max_steps=5, verbosity_level=LogLevel.OFF).run(QUESTION)


def streamed(model):
    agent = ToolCallingAgent([multiply], model, max_steps=5, verbosity_level=LogLevel.OFF, stream_outputs=True)
    with contextlib.redirect_stdout(sys.stderr):  # it shows the words as they come
        *_, last = agent.run(QUESTION, stream=True)
    return last.output


def error(model):
    try:
        return ToolCallingAgent([multiply], model, max_steps=5, verbosity_level=LogLevel.OFF).run("This is too long.")
    except AgentGenerationError as failed:
        return failed


HOWS = {"whole": whole, "streamed": streamed, "error": error}


def main(model):
    for how, ask in HOWS.items():
        print(f"{how}: {ask(model)}", flush=True)


if __name__ == "__main__":
    main(OpenAIModel("local", api_base=sys.argv[1], api_key="none", temperature=0))
