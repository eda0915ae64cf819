"""smolagents with LiteLLM: python tests/clients/programs/smolagents_of_litellm.py http://127.0.0.1:8485/v1"""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks for a list of prices

from smolagents import LiteLLMModel
from smolagents_agent import main

if __name__ == "__main__":
    main(LiteLLMModel("openai/local", api_base=sys.argv[1], api_key="none", temperature=0))
