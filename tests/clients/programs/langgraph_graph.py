"""LangGraph, a graph of nodes and its ready-made agent: python tests/clients/programs/langgraph_graph.py http://127.0.0.1:8485/v1"""

import openai
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from shared import messages, multiply, print_answers
from shared.product import Product

QUESTION, OBJECT, TOO_LONG = ({"messages": [each]} for each in (messages.QUESTION, messages.OBJECT, messages.TOO_LONG))


def model_at(url):
    return ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0)


def graph_at(url):
    model = model_at(url).bind_tools([multiply])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([multiply]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def whole(url):
    return graph_at(url).invoke(QUESTION)["messages"][-1].text


def streamed(url):
    pieces = graph_at(url).stream(QUESTION, stream_mode="messages")
    return "".join(piece.text for piece, _ in pieces if piece.type == "AIMessageChunk")


async def async_whole(url):
    return (await graph_at(url).ainvoke(QUESTION))["messages"][-1].text


def prebuilt(url):
    return create_react_agent(model_at(url), [multiply]).invoke(QUESTION)["messages"][-1].text


def structured(url):
    agent = create_react_agent(model_at(url), [multiply], response_format=Product)
    return agent.invoke(OBJECT)["structured_response"]


def error(url):
    try:
        return graph_at(url).invoke(TOO_LONG)
    except openai.BadRequestError as refused:
        return refused


if __name__ == "__main__":
    print_answers(whole, streamed, async_whole, prebuilt, structured, error)
