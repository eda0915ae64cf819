"""The app's OpenAPI document, made of the models that validate its bodies (OpenAPI 3.1)."""

import functools
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .anthropic import CountBody, MessagesBody
from .chat import ChatBody
from .endpoints import ENDPOINTS
from .ollama import OllamaChatBody, OllamaGenerateBody
from .responses import ResponsesBody

__all__ = ["description"]

_BODIES: Final[dict[str, type[BaseModel]]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/api/chat": OllamaChatBody,
    "/api/generate": OllamaGenerateBody,
}

_ANY: Final[dict[str, Any]] = {"schema": {}}
_ANSWERS: Final = {
    "2XX": {
        "description": "The answer.",
        "content": {"application/json": _ANY, "text/event-stream": _ANY, "application/x-ndjson": _ANY},
    },
    "4XX": {"description": "What is wrong with the request.", "content": {"application/json": {"schema": {"type": "object"}}}},
    "5XX": {"description": "What the model server failed at.", "content": {"application/json": {"schema": {"type": "object"}}}},
}


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


def _operation(path: str) -> dict[str, Any]:
    operation: dict[str, Any] = {"responses": _ANSWERS}
    if body := _BODIES.get(path):
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if "{name}" in path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]
    return operation
