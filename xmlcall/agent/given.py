"""What a program gives a loop: a backend or a model's name, hosts and functions."""

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from ..backends.base import Backend, Capabilities
from ..backends.connect import connect
from ..errors import UsageError
from ..hosts.base import Host
from ..hosts.local import LocalHost
from ..turn.asking import Asking, AskingFields
from ..types.calls import items_of

__all__ = ["by_profile", "model_of", "tools_of"]

log: Final = logging.getLogger("xmlcall.agent")


def model_of(given: Backend | str) -> Backend:
    """Return the backend, or make the one of a model's name."""
    if isinstance(given, str):
        return connect(given)
    if not hasattr(given, "stream"):
        raise UsageError(f'expected a backend or a model\'s name, such as "local", got {given!r:.80}')
    return given


def tools_of(given: Iterable[Host | Callable[..., Any]]) -> list[Host]:
    """Return the hosts; all functions become one, in the place of the first."""
    items = list(items_of(given, "hosts and functions"))
    functions = [each for each in items if inspect.isroutine(each)]
    own: list[Host] = [LocalHost(functions)] if functions else []
    hosts: list[Host] = []
    for each in items:
        if inspect.isroutine(each):
            hosts, own = [*hosts, *own], []
        elif hasattr(each, "call") and hasattr(each, "tools"):
            hosts.append(cast(Host, each))
        else:
            raise UsageError(f"expected a host, such as McpHost(...), or a Python function, got {each!r:.80}")
    return hosts


def by_profile(capabilities: Capabilities, given: AskingFields) -> Asking:
    """Return how the profile of an open model asks it, beside what was given; the defaults without a profile."""
    from ..profiles.folder import find
    from ..profiles.profile import asking_by

    found = find(capabilities.fingerprints, log.warning)
    if found is None or found.profile is None:
        return Asking(**given)
    return asking_by(Asking(), given, found.profile)
