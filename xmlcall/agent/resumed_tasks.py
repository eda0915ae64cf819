"""A call that a server runs as a task outlives the program that made it: its result is asked for after a restart.

What the server says of the task takes the place of "it is not known whether it ran". A server that is gone, that has forgotten
the task, or that is not done in time leaves the call as it was.
"""

from dataclasses import replace

from ..errors import ToolHostError
from ..hosts.base import TaskResult
from ..prompting.results import failure, stopped
from ..tools.catalog import Catalog
from ..turn.events import CallFinished
from ..types.call_note import CallNote
from ..types.calls import ToolCall, ToolResult
from .kept_files import kept
from .result_check import checked
from .run_call import Calling

__all__ = ["taken_up"]

_BY = "a task, after a restart"


async def taken_up(
    calling: Calling, call: ToolCall, server: str, own_name: str, task: str, catalog: Catalog
) -> tuple[CallFinished | None, str]:
    """Ask what became of a call.

    Args:
        catalog: what is offered; the result is checked against the tool, if it is still there.

    Returns:
        How the call ended; None if that is not known, and why for a person, "" if the server does not know the task.
    """
    try:
        found = await calling.router.task_result(server, own_name, task, calling.timeout)
    except ToolHostError as error:
        if error.reason != "error":
            return None, str(error)
        told = ToolResult.error(failure(error.reason, calling.format, said=error.said))
        ended = CallFinished(call=call, result=replace(told, call_id=call.id), failure=str(error))
    else:
        if found == "unknown":
            return None, ""
        ended = CallFinished(call=call, result=replace(_result(calling, call, found, catalog), call_id=call.id))
    if calling.audit is not None:
        note = CallNote(moment="ended", call=call, host=server, host_tool=own_name, by=_BY)
        calling.audit(replace(note, result=ended.result, failure=ended.failure))
    return ended, ""


def _result(calling: Calling, call: ToolCall, found: TaskResult, catalog: Catalog) -> ToolResult:
    if not isinstance(found, ToolResult):
        return ToolResult.error(stopped("cancelled", calling.format))
    tool = catalog.get(call.name)
    return kept(checked(found, tool, calling.format) if tool else found, calling.files)
