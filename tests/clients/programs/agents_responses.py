"""OpenAI's Agents SDK, responses: python tests/clients/programs/agents_responses.py http://127.0.0.1:8485/v1"""

from agents import OpenAIResponsesModel
from agents_chat import main

if __name__ == "__main__":
    main(OpenAIResponsesModel)
