"""instructor with Anthropic's SDK: python tests/clients/programs/instructor_of_anthropic.py http://127.0.0.1:8485"""

import sys

import anthropic
import instructor
from instructor import Mode
from instructor.core import InstructorRetryException
from pydantic import BaseModel

QUESTION = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}


class Product(BaseModel):
    product: int


def client_at(url, mode=Mode.TOOLS):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    return instructor.from_anthropic(client, mode=mode, model="local", max_tokens=1000)


def structured(url):
    return client_at(url).create(messages=[QUESTION], response_model=Product)


def structured_json(url):
    return client_at(url, Mode.JSON).create(messages=[QUESTION], response_model=Product)


def error(url):
    try:
        return client_at(url).create(messages=[TOO_LONG], response_model=Product)
    except InstructorRetryException as refused:
        return refused


HOWS = {"structured": structured, "structured JSON": structured_json, "error": error}

if __name__ == "__main__":
    for how, ask in HOWS.items():
        print(f"{how}: {ask(sys.argv[1])}", flush=True)
