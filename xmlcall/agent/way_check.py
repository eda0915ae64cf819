"""Mode `auto`: checks whether a model server's own function calling works, before the first request with tools.

It is tried, because servers also claim to support it for models whose calls leak as text. llama.cpp does so for
Qwen2.5-Coder-0.5B, and of that model's replies to 80 questions, none came back as a call. The check is one small question with
one tool, and only the right call counts. What was found is remembered (`profiles.checks`).
"""

import asyncio
import logging
from typing import Final

from ..backends.base import Backend
from ..errors import BackendProtocolError, BackendStatusError, OutputRejected
from ..profiles.profile import remember, remembered
from ..tools.catalog import Catalog
from ..turn.asking import TRIAL_ARGUMENTS, TRIAL_QUESTION, TRIAL_TOKENS, TRIAL_TOOL, ChosenWay, Finding, choose_way
from ..turn.generate import Binder, Generated
from ..turn.machine import Machine
from ..turn.native import REFUSALS, NativeOptions, generate_native
from ..types.calls import ToolCall
from ..types.completion import Capabilities, CompletionRequest
from .drive import result_of

log: Final = logging.getLogger("xmlcall.agent")

CHECK_SECONDS: Final = 8.0
"""How long the check may take; loading a model takes longer, so a server that has not loaded it is asked in text at first."""


def known_way(server: Capabilities) -> ChosenWay | None:
    """Return how tools are offered as far as that is known without a check."""
    if server.native_tools is False:
        return choose_way("no_tools")
    finding = remembered(server)
    return choose_way(finding) if finding else None


async def check_way(backend: Backend) -> ChosenWay:
    """Return how tools are offered to a model; the server is asked unless that is known."""
    server = backend.capabilities
    way = known_way(server)
    if way is None:
        finding = await _found(backend)
        remember(server, finding)
        way = choose_way(finding)
    log.info("tools are offered in mode %s: %s", way.mode, way.reason)
    return way


async def _found(backend: Backend) -> Finding:
    request = CompletionRequest(messages=(TRIAL_QUESTION,), tools=(TRIAL_TOOL,), max_tokens=TRIAL_TOKENS, temperature=0.0)
    machine = Machine(generate_native(request, Binder(catalog=Catalog([TRIAL_TOOL])), NativeOptions(server=backend.capabilities)))
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return _finding(await result_of(machine, backend))
    except TimeoutError:
        return "slow"
    except (OutputRejected, BackendProtocolError):  # mlx-lm ends the stream if it cannot read a call
        return "unread"
    except BackendStatusError as error:
        if error.status_code not in REFUSALS:  # a key that is missing, too many requests: these say nothing about tools
            raise
        return "refused"


def _finding(generated: Generated) -> Finding:
    calls = generated.reply.calls
    if not calls:
        return "no_call"
    if any(call.raw.dialect != "native" for call in calls):
        return "leaked"
    return "called" if [call.arguments for call in calls if isinstance(call, ToolCall)] == [TRIAL_ARGUMENTS] else "wrong"
