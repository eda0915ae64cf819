"""What servers ask of the person, in the page: a form, an address to visit, a completion (MCP, elicitation, sampling).

The page says which server asks. An address is shown in full and never opened by itself. A completion is shown before the model is
asked and before the server gets it. What nobody answers is cancelled, and told in a line.
"""

from collections.abc import Callable
from typing import Any, Final

from ..agent.server_sampling import completed
from ..backends.base import Backend
from ..errors import BackendError
from ..hosts.mcp.form import Field, fields, problems, with_defaults
from ..hosts.mcp.requests import ElicitAnswer, FormRequest, SampleReply, SampleRequest, UrlRequest
from ..types.calls import MISSING
from .news import News
from .open_questions import Given, Misfit, OpenQuestions

__all__ = ["PageElicitation", "PageSampling", "PageSignIn"]

_DECLINED: Final = ElicitAnswer(action="decline")
_CANCELLED: Final = ElicitAnswer(action="cancel")


class PageElicitation:
    """Asks the person to fill in a form, or to visit an address.

    Args:
        turn_on: gives the id of the turn that has a call running on a server; "" if that is not known.
    """

    def __init__(self, questions: OpenQuestions, turn_on: Callable[[str], str]) -> None:
        self._questions, self._turn_on = questions, turn_on

    async def __call__(self, request: FormRequest | UrlRequest) -> ElicitAnswer:
        """Show a request and wait for the answer."""
        body: dict[str, Any] = {"turn": self._turn_on(request.server), "server": request.server, "message": request.message}
        if isinstance(request, UrlRequest):
            body |= {"kind": "address", "url": request.url, "host": request.spelled_host, "is_awaited": request.is_awaited}
            return await self._answer(body, lambda given: ElicitAnswer(action="accept"))
        form = {"kind": "form", "fields": [_field(each) for each in fields(request.schema)]}
        return await self._answer(body | form, lambda given: _filled_in(given, request))

    async def _answer(self, body: dict[str, Any], accepted: Callable[[Given], ElicitAnswer]) -> ElicitAnswer:
        def read(given: Given) -> ElicitAnswer:
            step = _step(given)
            return accepted(given) if step == "yes" else _DECLINED if step == "no" else _CANCELLED

        answer: ElicitAnswer = await self._questions.ask("request", body, read, _CANCELLED)
        return answer


class PageSignIn:
    """Asks the person to sign in where a server wants that while a call runs."""

    def __init__(self, questions: OpenQuestions, turn_on: Callable[[str], str]) -> None:
        self._questions, self._turn_on = questions, turn_on

    async def __call__(self, server: str, url: str) -> bool:
        """Show the address, and say whether the person agreed to go there."""
        host = UrlRequest(server=server, message="", url=url).spelled_host
        body = {"turn": self._turn_on(server), "kind": "address", "server": server, "message": "", "url": url, "host": host}
        told = body | {"is_awaited": False}
        return bool(await self._questions.ask("request", told, lambda given: _step(given) == "yes", late=False))


class PageSampling:
    """Lets servers ask the model.

    Args:
        max_tokens: of one completion, at most; None for what the server asks for.
    """

    def __init__(
        self,
        questions: OpenQuestions,
        news: News,
        backend: Callable[[], Backend],
        turn_on: Callable[[str], str],
        *,
        max_tokens: int | None = None,
        is_asked: bool = True,
    ) -> None:
        self._questions, self._news, self._backend, self._turn_on = questions, news, backend, turn_on
        self._max_tokens, self._is_asked = max_tokens, is_asked

    async def __call__(self, request: SampleRequest) -> SampleReply | None:
        """Ask, complete, and ask again; None where the person refuses or the model fails."""
        limit = min(request.max_tokens, self._max_tokens or request.max_tokens)
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        if not await self._allowed(request.server, {"kind": "completion", "messages": messages, "limit": limit}):
            return None
        try:
            reply = await completed(self._backend(), request, limit)
        except BackendError as error:
            self._news.notice(f"{request.server}: the completion that it asked for failed: {error}")
            return None
        return reply if await self._allowed(request.server, {"kind": "reply", "text": reply.text}) else None

    async def _allowed(self, server: str, body: dict[str, Any]) -> bool:
        if not self._is_asked:
            return True
        told = {"turn": self._turn_on(server), "server": server, **body}
        return bool(await self._questions.ask("request", told, lambda given: _step(given) == "yes", late=False))


def _step(given: Given) -> str:
    answer = given.get("answer")
    if answer not in ("yes", "no", "stop"):
        raise Misfit("answer: expected yes, no or stop")
    return str(answer)


def _filled_in(given: Given, request: FormRequest) -> ElicitAnswer:
    values = given.get("arguments")
    if not isinstance(values, dict):
        raise Misfit("arguments: expected an object with a value for each field")
    content = with_defaults(request.schema, values)
    if wrong := problems(request.schema, content):
        raise Misfit(*wrong)
    return ElicitAnswer(action="accept", content=content)


def _field(field: Field) -> dict[str, Any]:
    told = {name: getattr(field, name) for name in ("name", "kind", "title", "description", "is_required")}
    default = None if field.default is MISSING else field.default
    return told | {"default": default, "options": [list(option) for option in field.options]}
