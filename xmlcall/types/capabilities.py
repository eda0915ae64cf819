"""What is known of a model server and its model."""

from dataclasses import dataclass

__all__ = ["Capabilities"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is known of a server and its model, once it is open.

    Args:
        server: "llama.cpp", "ollama", "openai-compatible", "scripted".
        native_tools: its own function calling works with this model; None if it does not say.
        context_length: tokens that prompt and reply share; None if it does not say.
        tool_role: a message of role `tool` reaches the model; False if the template drops it, None if that is not known.
        reasoning_open: the chat template ends the prompt in an open `<think>`.
        build: the server's own version, "" if it does not say.
        continues: a last message of the model's own is continued, from its last character on.
        constrains: `json_schema` of a request is obeyed.
        sees: pictures of a message reach the model; None if it does not say.
        chat_template: the model comes with one; False if not, as base models do, which go on with a text instead of answering;
            None if that is not known.
        most_logprobs: how many of the likeliest tokens the server tells.
        keeps_aside: what is asked aside never takes the place of the conversation in its prompt cache.
        family: the wire format that the model was most likely trained on, by its template or name; "" if nothing tells.
        model_file: the name of the model's file, which often tells the quantisation; "" if it does not say.
        fingerprints: by what the model is known again, the surest first (see `fingerprint`); empty if by nothing.
    """

    server: str
    native_tools: bool | None = None
    context_length: int | None = None
    tool_role: bool | None = None
    reasoning_open: bool = False
    build: str = ""
    continues: bool = False
    constrains: bool = False
    sees: bool | None = None
    chat_template: bool | None = None
    most_logprobs: int = 20  # OpenAI's, vLLM's and Ollama's limit
    keeps_aside: bool = False
    family: str = ""
    model_file: str = ""
    fingerprints: tuple[str, ...] = ()
