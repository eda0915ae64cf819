"""A tool's structured result held against the schema that the tool promises (MCP 2025-11-25, tools: clients SHOULD).

The tool has run, so nothing is lost over a mismatch: model and person read a note beside the result.
"""

from dataclasses import replace
from typing import Final

from ..prompting.format import PromptFormat
from ..prompting.results import mismatch, unchecked
from ..schema.validation import compiled_as_mended, issues_or_reason
from ..types.calls import MISSING, TextContent, Tool, ToolResult

__all__ = ["checked"]

SHOWN: Final = 3  # mistakes; one value that is wrong often breaks several rules


def checked(result: ToolResult, tool: Tool, format: PromptFormat) -> ToolResult:
    """Return a result with a note if its structured content is not what the tool promises."""
    if tool.output_schema is None or result.is_error:
        return result
    note = _note(result, tool, format)
    return replace(result, content=(*result.content, TextContent(text=note))) if note else result


def _note(result: ToolResult, tool: Tool, format: PromptFormat) -> str:
    if result.structured_content is MISSING:
        return mismatch("it is missing.", format)
    validator = compiled_as_mended(tool.output_schema)
    issues = validator if isinstance(validator, str) else issues_or_reason(validator, result.structured_content)
    if isinstance(issues, str):  # the schema is at fault, and nothing can be said of the result
        return unchecked(format)
    problem = " ".join(f"{issue.path}: {issue.message}" for issue in issues[:SHOWN])
    return mismatch(problem, format) if problem else ""
