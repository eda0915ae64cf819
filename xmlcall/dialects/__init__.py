"""Wire formats as data: one row a dialect, read by the scanner and by the renderer.

Every quantifier in a pattern is bounded, so that a tag has one greatest length: a finished tag and an unfinished one are refused
by the same rule, and the answer does not depend on how the stream was cut.
"""

from dataclasses import dataclass

from ..errors import UsageError

__all__ = ["DIALECTS", "Dialect", "select"]

# Name, then a double-quoted, single-quoted or bare value.
_ATTRIBUTE = r"""\s{1,16}[A-Za-z_:][\w:.\-]{0,31}\s{0,4}=\s{0,4}(?:"[^"<>]{0,256}"|'[^'<>]{0,256}'|[^\s"'<>=/]{1,256})"""
_ATTRIBUTES = rf"(?:{_ATTRIBUTE}){{1,6}}\s{{0,16}}"
_SPACE = r"\s{0,16}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A wire format: a wrapper, and in it calls with parameters as tags, or one call as JSON.

    Args:
        name: also the folder of its templates in `prompts/`, if it has any.
        tags: token kind -> regular expression of the whole tag. Kinds: `block_open`, `block_close`, `call_open`, `call_close`,
            `parameter_open`, `parameter_close`. They have no groups.
        written: token kind -> how the tag is written; `{name}` stands for the tool's or the parameter's.
        name_in_tag: regular expression whose group is the name in an opener; empty if it is the attribute `name`.
        json_written: `parameter_open` of a value that is JSON although the schema admits a string; empty if nothing marks that.
        json_mark: the attribute, and its value, that this opener carries.
        name_after: regular expression of the opener after which the tool's name stands as text; such calls have no wrapper.
        is_json: a wrapper holds one call as a JSON object instead of tags for calls and parameters.
    """

    name: str
    tags: dict[str, str]
    written: dict[str, str]
    name_in_tag: str = ""
    json_written: str = ""
    json_mark: tuple[str, str] = ("", "")
    is_json: bool = False
    name_after: str = ""


def _attribute_tags(block: str, prefix: str = "") -> dict[str, str]:
    """Return the patterns of a format that names things by the attribute `name`."""
    return {
        "block_open": rf"<{block}{_SPACE}>",
        "block_close": rf"</{block}{_SPACE}>",
        "call_open": rf"<{prefix}invoke{_ATTRIBUTES}/?>",
        "call_close": rf"</{prefix}invoke{_SPACE}>",
        "parameter_open": rf"<{prefix}parameter{_ATTRIBUTES}/?>",
        "parameter_close": rf"</{prefix}parameter{_SPACE}>",
    }


def _attribute_written(block: str, prefix: str = "", mark: str = "") -> dict[str, str]:
    return {
        "block_open": f"<{block}>",
        "block_close": f"</{block}>",
        "call_open": f'<{prefix}invoke name="{{name}}">',
        "call_close": f"</{prefix}invoke>",
        "parameter_open": f'<{prefix}parameter name="{{name}}"{mark}>',
        "parameter_close": f"</{prefix}parameter>",
    }


FUNCTION_CALLS = Dialect(
    name="function_calls",
    tags=_attribute_tags("(?:function|tool)_calls"),
    written=_attribute_written("function_calls"),
    json_written='<parameter name="{name}" type="json">',
    json_mark=("type", "json"),
)

# The same under an XML prefix, which some models carry over from their training; every tag has one.
_PREFIX = r"[A-Za-z]{1,16}:"
PREFIXED = Dialect(
    name="prefixed",
    tags=_attribute_tags(f"{_PREFIX}function_calls", _PREFIX),
    written=_attribute_written("ns:function_calls", "ns:"),
    json_written='<ns:parameter name="{name}" type="json">',
    json_mark=("type", "json"),
)

# MiniMax-M2: its own wrapper around the same calls.
MINIMAX = Dialect(
    name="minimax",
    tags=_attribute_tags("minimax:tool_call"),
    written=_attribute_written("minimax:tool_call"),
    json_written='<parameter name="{name}" type="json">',
    json_mark=("type", "json"),
)

# DeepSeek V3.2 and later: every tag between full-width bars; each parameter says whether it is a string.
_BARS = "\uff5cDSML\uff5c"
_BARS_READ = "\uff5c{1,2}DSML\uff5c{1,2}"
DSML = Dialect(
    name="dsml",
    tags=_attribute_tags(f"{_BARS_READ}(?:function_calls|tool_calls)", _BARS_READ),
    written=_attribute_written(f"{_BARS}function_calls", _BARS, ' string="true"'),
    json_written=f'<{_BARS}parameter name="{{name}}" string="false">',
    json_mark=("string", "false"),
)

# Attribute names again, other elements: what models make of Qwen's format when they fall back to XML habits.
FUNCTION_NAME = Dialect(
    name="function_name",
    tags={
        "block_open": rf"<tool_call{_SPACE}>",
        "block_close": rf"</tool_call{_SPACE}>",
        "call_open": rf"<function{_ATTRIBUTES}/?>",
        "call_close": rf"</function{_SPACE}>",
        "parameter_open": rf"<param(?:eter)?{_ATTRIBUTES}/?>",
        "parameter_close": rf"</param(?:eter)?{_SPACE}>",
    },
    written={
        "block_open": "<tool_call>",
        "block_close": "</tool_call>",
        "call_open": '<function name="{name}">',
        "call_close": "</function>",
        "parameter_open": '<param name="{name}">',
        "parameter_close": "</param>",
    },
    json_written='<param name="{name}" type="json">',
    json_mark=("type", "json"),
)


def _name_in_tag(name: str, block: str) -> Dialect:
    """Return a format in which the name stands in the tag, without an attribute."""
    return Dialect(
        name=name,
        tags={
            "block_open": rf"<{block}{_SPACE}>",
            "block_close": rf"</{block}{_SPACE}>",
            "call_open": r"<function=\s{0,4}[^\s<>=]{1,128}\s{0,4}>",
            "call_close": rf"</function{_SPACE}>",
            "parameter_open": r"<parameter=\s{0,4}[^<>=]{1,128}\s{0,4}>",
            "parameter_close": rf"</parameter{_SPACE}>",
        },
        written={
            "block_open": f"<{block}>",
            "block_close": f"</{block}>",
            "call_open": "<function={name}>",
            "call_close": "</function>",
            "parameter_open": "<parameter={name}>",
            "parameter_close": "</parameter>",
        },
        name_in_tag=r"=\s*([^<>=]+?)\s*>",
    )


QWEN = _name_in_tag("qwen", "tool_call")  # Qwen3-Coder; OpenHands writes no wrapper
SEED = _name_in_tag("seed", "seed:tool_call")  # Seed-OSS

# Hermes, Qwen2.5 and many others: one JSON object a wrapper.
HERMES = Dialect(
    name="hermes",
    tags={"block_open": rf"<tool_call{_SPACE}>", "block_close": rf"</tool_call{_SPACE}>"},
    written={"block_open": "<tool_call>", "block_close": "</tool_call>"},
    is_json=True,
)

# GLM 4.5 and later: the tool's name is text after the opener, keys and values are elements of their own.
GLM = Dialect(
    name="glm",
    tags={
        "block_open": rf"<tool_call{_SPACE}>",
        "call_close": rf"</tool_call{_SPACE}>",
        "parameter_open": rf"<arg_key>[^<>]{{1,128}}</arg_key>{_SPACE}<arg_value>",
        "parameter_close": rf"</arg_value{_SPACE}>",
    },
    written={
        "call_open": "<tool_call>{name}",
        "call_close": "</tool_call>",
        "parameter_open": "<arg_key>{name}</arg_key>\n<arg_value>",
        "parameter_close": "</arg_value>",
    },
    name_in_tag=r"<arg_key>\s*([^<>]+?)\s*</arg_key>",
    name_after=rf"<tool_call{_SPACE}>",
)

_ROWS = (FUNCTION_CALLS, PREFIXED, MINIMAX, DSML, QWEN, SEED, FUNCTION_NAME, HERMES, GLM)
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ROWS}


def select(dialect: str | Dialect) -> tuple[Dialect, ...]:
    """Return the dialects to read.

    Args:
        dialect: a name of `DIALECTS`, `auto` for all of them, or a Dialect.

    Raises:
        UsageError: there is none of this name.
    """
    if isinstance(dialect, Dialect):
        return (dialect,)
    if dialect == "auto":
        return tuple(DIALECTS.values())
    if dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}; known: auto, {', '.join(DIALECTS)}")
    return (DIALECTS[dialect],)
