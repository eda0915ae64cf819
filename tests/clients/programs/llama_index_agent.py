"""LlamaIndex: python tests/clients/programs/llama_index_agent.py http://127.0.0.1:8485/v1"""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from shared import QUESTION, multiply, print_answers
from shared.product import Product


def model_at(url):
    kinds = {"is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(model="local", api_base=url, api_key="none", temperature=0, context_window=8192, **kinds)


def agent_at(url, **options):
    return FunctionAgent(tools=[multiply], llm=model_at(url), **options)


async def async_whole(url):
    return await agent_at(url, streaming=False).run(QUESTION)


async def async_streamed(url):
    return await agent_at(url, streaming=True).run(QUESTION)


async def structured(url):
    result = await agent_at(url, output_cls=Product).run(f"{QUESTION} Answer as an object.")
    return result.structured_response


def structured_by_a_model(url):
    return model_at(url).as_structured_llm(Product).complete(f"{QUESTION} Answer as an object.").raw


async def error(url):
    try:
        return await agent_at(url).run("This is too long.")
    except Exception as refused:
        return refused


if __name__ == "__main__":
    print_answers(async_whole, async_streamed, structured, structured_by_a_model, error)
