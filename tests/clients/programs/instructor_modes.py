"""instructor, in each mode that it has for OpenAI: python tests/clients/programs/instructor_modes.py http://127.0.0.1:8485/v1"""

import sys
from collections.abc import Iterable

import instructor
import openai
from instructor import Mode
from instructor.core import InstructorRetryException
from shared.product import Product

QUESTION = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}
MODES = {
    "structured": Mode.TOOLS,
    "structured JSON": Mode.JSON,
    "structured JSON_SCHEMA": Mode.JSON_SCHEMA,
    "structured MD_JSON": Mode.MD_JSON,
    "structured TOOLS_STRICT": Mode.TOOLS_STRICT,
    "structured RESPONSES_TOOLS": Mode.RESPONSES_TOOLS,
}


def client_at(url, mode=Mode.TOOLS):
    return instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=mode, model="local")


def parallel(url):
    client = client_at(url, Mode.PARALLEL_TOOLS)
    return [*client.create(messages=[QUESTION], response_model=Iterable[Product])]


def partial(url):
    *_, last = client_at(url).create_partial(messages=[QUESTION], response_model=Product)
    return last


def error(url):
    try:
        return client_at(url).create(messages=[TOO_LONG], response_model=Product)
    except InstructorRetryException as refused:
        return refused


HOWS = {"structured PARALLEL_TOOLS": parallel, "structured streamed": partial, "error": error}

if __name__ == "__main__":
    for how, mode in MODES.items():
        product = client_at(sys.argv[1], mode).create(messages=[QUESTION], response_model=Product)
        print(f"{how}: {product}", flush=True)
    for how, ask in HOWS.items():
        print(f"{how}: {ask(sys.argv[1])}", flush=True)
