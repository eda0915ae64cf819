"""instructor with Anthropic's SDK: python tests/clients/programs/instructor_of_anthropic.py http://127.0.0.1:8485"""

import anthropic
import instructor
from instructor import Mode
from instructor.core import InstructorRetryException
from shared import print_answers
from shared.product import Product

QUESTION = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}


def client_at(url, mode=Mode.TOOLS):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    return instructor.from_anthropic(client, mode=mode, model="local", max_tokens=1000)


def structured(url):
    return client_at(url).create(messages=[QUESTION], response_model=Product)


def structured_JSON(url):
    return client_at(url, Mode.JSON).create(messages=[QUESTION], response_model=Product)


def error(url):
    try:
        return client_at(url).create(messages=[TOO_LONG], response_model=Product)
    except InstructorRetryException as refused:
        return refused


if __name__ == "__main__":
    print_answers(structured, structured_JSON, error)
