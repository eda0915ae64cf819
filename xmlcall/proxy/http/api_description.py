"""The app's OpenAPI document, made of the models that validate its bodies (OpenAPI 3.1)."""

import functools
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..formats.anthropic import CountBody, MessagesBody
from ..formats.ollama import OllamaChatBody, OllamaGenerateBody
from ..formats.openai_chat import ChatBody
from ..formats.openai_responses import ResponsesBody
from .routes import ENDPOINTS, QUESTIONS, RELAYED

__all__ = ["description"]

_BODIES: Final[dict[str, type[BaseModel]]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/api/chat": OllamaChatBody,
    "/api/generate": OllamaGenerateBody,
}

_STREAMED: Final = {question.path: question.form.media_type for question in (*QUESTIONS, *RELAYED)}
_ERROR: Final = {"application/json": {"schema": {"type": "object"}}}


@functools.cache
def description() -> dict[str, Any]:
    """Return the document."""
    _, schemas = models_json_schema(
        [(body, "validation") for body in _BODIES.values()], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace(":path", "")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(path)
    return {
        "openapi": "3.1.0",
        "info": {"title": "xmlcall", "version": version("xmlcall"), "description": "Tool calling for models that lack it."},
        "paths": paths,
        "components": {"schemas": schemas.get("$defs", {})},
    }


def _answers(path: str) -> dict[str, Any]:
    media_types = ["application/json", *([_STREAMED[path]] if path in _STREAMED else [])]
    return {
        "2XX": {"description": "The answer.", "content": {media_type: {"schema": {}} for media_type in media_types}},
        "4XX": {"description": "What is wrong with the request.", "content": _ERROR},
        "5XX": {"description": "What the model server failed at.", "content": _ERROR},
    }


def _operation(path: str) -> dict[str, Any]:
    operation: dict[str, Any] = {"responses": _answers(path)}
    if path in _BODIES or path in _STREAMED:
        schema = {"$ref": f"#/components/schemas/{_BODIES[path].__name__}"} if path in _BODIES else {"type": "object"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if "{name}" in path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]
    return operation
