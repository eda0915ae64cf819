"""DSPy, with native function calling: python tests/clients/programs/dspy_react.py http://127.0.0.1:8485/v1"""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else an import asks for a list of prices

import dspy
from shared import multiply

OBJECT = "What is 1234 times 5678? Answer as an object."


def whole():
    return dspy.ReActV2("question -> product: int", [multiply], max_iters=5)(question=OBJECT).product


def structured():
    with dspy.context(adapter=dspy.JSONAdapter()):
        return dspy.Predict("question -> product: int")(question=OBJECT).product


def error():
    try:
        return dspy.Predict("question -> answer")(question="This is too long.").answer
    except dspy.utils.exceptions.ContextWindowExceededError as refused:
        return refused


HOWS = {"whole": whole, "structured": structured, "error": error}

if __name__ == "__main__":
    # of other names it does not know whether they call functions
    lm = dspy.LM("openai/gpt-4o", api_base=sys.argv[1], api_key="none", temperature=0, cache=False)
    dspy.configure(lm=lm, adapter=dspy.ChatAdapter(use_native_function_calling=True))
    for how, ask in HOWS.items():
        print(f"{how}: {ask()}", flush=True)
