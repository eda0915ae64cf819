"""The parser's two state machines as tables: a reply, and the body of one call.

A row is (state, token kind) -> name of the method that reads such a token there. Token kinds are those of `scanner.py` and of the
dialects, and `end`. A missing row means that the token is text of its state, which `..._OTHERWISE` says how to read. All
transitions are here; what a method does with its token is in `parser.py` and `tag_call.py`.
"""

import enum

__all__ = ["CALL_OTHERWISE", "CALL_TABLE", "REPLY_OTHERWISE", "REPLY_TABLE", "CallState", "ReplyState"]


class ReplyState(enum.Enum):
    """Where in a reply the next token stands."""

    PROSE = "text for the person"
    CODE = "inline code"
    REASONING = "between reasoning tags"
    OPENING = "after a fence line, a wrapper or a call's opener that may be text"
    BLOCK = "between the calls of a wrapper"
    CALL = "in a call"


# (state, token kind) -> method; everything else is text of its state.
REPLY_TABLE = {
    (ReplyState.PROSE, "ticks"): "_ticks",
    (ReplyState.PROSE, "reasoning_open"): "_reasoning_open",
    (ReplyState.PROSE, "reasoning_close"): "_stray_tag",
    (ReplyState.PROSE, "block_open"): "_hold",
    (ReplyState.PROSE, "call_open"): "_hold",
    (ReplyState.PROSE, "json_open"): "_bare_json",
    (ReplyState.PROSE, "block_close"): "_stray",
    (ReplyState.PROSE, "call_close"): "_stray",
    (ReplyState.PROSE, "parameter_close"): "_stray",
    (ReplyState.CODE, "ticks"): "_end_code",
    (ReplyState.CODE, "blank_line"): "_end_code_at_blank_line",
    (ReplyState.REASONING, "reasoning_open"): "_reasoning_nested",
    (ReplyState.REASONING, "reasoning_close"): "_reasoning_close",
    (ReplyState.OPENING, "text"): "_text_after_opening",
    (ReplyState.OPENING, "ticks"): "_ticks_after_opening",
    (ReplyState.OPENING, "block_open"): "_block_after_opening",
    (ReplyState.OPENING, "call_open"): "_call_after_opening",
    (ReplyState.OPENING, "call_close"): "_body_after_opening",
    (ReplyState.OPENING, "parameter_open"): "_body_after_opening",
    (ReplyState.OPENING, "body_open"): "_body_after_opening",
    (ReplyState.OPENING, "json_open"): "_json_after_opening",
    (ReplyState.OPENING, "block_close"): "_body_after_opening",
    (ReplyState.BLOCK, "text"): "_text_in_block",
    (ReplyState.BLOCK, "ticks"): "_ticks_in_block",
    (ReplyState.BLOCK, "reasoning_open"): "_reasoning_open",
    (ReplyState.BLOCK, "reasoning_close"): "_stray_tag",
    (ReplyState.BLOCK, "block_open"): "_repeated_block",
    (ReplyState.BLOCK, "block_close"): "_end_block",
    (ReplyState.BLOCK, "call_open"): "_call_in_block",
    (ReplyState.BLOCK, "json_open"): "_bare_json",
    (ReplyState.BLOCK, "call_close"): "_closer_in_block",
    (ReplyState.BLOCK, "parameter_close"): "_closer_in_block",
}
REPLY_OTHERWISE = {
    ReplyState.PROSE: "_text",
    ReplyState.CODE: "_text",
    ReplyState.REASONING: "_reasoning_text",
    ReplyState.OPENING: "_opening_is_text",
    ReplyState.BLOCK: "_text_in_block",
}


class CallState(enum.Enum):
    """Where in a call's body the next token stands."""

    CALL = "between parameters"
    VALUE = "in a value"
    CDATA = "in a CDATA section"
    CDATA_END = "after a CDATA section"
    CLOSER = "after a </parameter> that may be text"
    WRONG_CLOSER = "after a closing tag that may stand for </parameter>"
    CALL_CLOSE = "after a </invoke> that may be text"
    BLOCK_CLOSE = "after a </function_calls> in an open value"
    FORK = "after a sibling's opener that may be text"


# (state, token kind) -> method; what is missing falls to the state's row of CALL_OTHERWISE.
CALL_TABLE = {
    (CallState.CALL, "text"): "_between",
    (CallState.CALL, "parameter_open"): "_open",
    (CallState.CALL, "body_open"): "_open_body",
    (CallState.CALL, "parameter_close"): "_stray",
    (CallState.CALL, "list_close"): "_list_close",
    (CallState.CALL, "call_close"): "_end_here",
    (CallState.CALL, "call_open"): "_end_unclosed",
    (CallState.CALL, "block_open"): "_repeated_block",
    (CallState.CALL, "block_close"): "_end_unclosed",
    (CallState.CALL, "end"): "_end_unclosed",
    (CallState.VALUE, "parameter_open"): "_opener_in_value",
    (CallState.VALUE, "parameter_close"): "_closer_in_value",
    (CallState.VALUE, "call_open"): "_count",
    (CallState.VALUE, "call_close"): "_call_close_in_value",
    (CallState.VALUE, "block_open"): "_count",
    (CallState.VALUE, "block_close"): "_block_close_in_value",
    (CallState.VALUE, "cdata_open"): "_cdata_in_value",
    (CallState.VALUE, "list_close"): "_other_tag_in_value",
    (CallState.VALUE, "other_tag"): "_other_tag_in_value",
    (CallState.VALUE, "end"): "_truncate",
    (CallState.CDATA, "cdata_close"): "_end_cdata",
    (CallState.CDATA, "end"): "_truncate",
    (CallState.CDATA_END, "text"): "_after_cdata",
    (CallState.CDATA_END, "cdata_open"): "_cdata_in_value",
    (CallState.CDATA_END, "parameter_close"): "_hold_closer",
    (CallState.CDATA_END, "end"): "_truncate",
    (CallState.CLOSER, "parameter_open"): "_opener_after_closer",
    (CallState.CLOSER, "parameter_close"): "_hold",
    (CallState.CLOSER, "call_close"): "_hold_call_close",
    (CallState.CLOSER, "list_close"): "_close_value",
    (CallState.CLOSER, "call_open"): "_close_value",
    (CallState.CLOSER, "block_close"): "_close_value",
    (CallState.CLOSER, "end"): "_close_value",
    (CallState.WRONG_CLOSER, "parameter_open"): "_opener_after_wrong_closer",
    (CallState.WRONG_CLOSER, "call_close"): "_hold_call_close",
    (CallState.WRONG_CLOSER, "call_open"): "_close_value",
    (CallState.WRONG_CLOSER, "block_close"): "_close_value",
    (CallState.WRONG_CLOSER, "end"): "_truncate",
    (CallState.CALL_CLOSE, "call_open"): "_end_pending",
    (CallState.CALL_CLOSE, "block_open"): "_end_pending",
    (CallState.CALL_CLOSE, "block_close"): "_end_pending",
    (CallState.CALL_CLOSE, "end"): "_end_pending",
    (CallState.BLOCK_CLOSE, "end"): "_truncate",
}
CALL_OTHERWISE = {
    CallState.CALL: "_between",
    CallState.VALUE: "_text",
    CallState.CDATA: "_text",
    CallState.CDATA_END: "_text_after_cdata",
    CallState.CLOSER: "_pending_is_text",
    CallState.WRONG_CLOSER: "_pending_is_text",
    CallState.CALL_CLOSE: "_pending_is_text",
    CallState.BLOCK_CLOSE: "_pending_is_text",
    CallState.FORK: "_in_fork",
}
