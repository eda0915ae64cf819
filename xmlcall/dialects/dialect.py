"""A wire format as a row of data."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .patterns import alternation, element

__all__ = ["Dialect", "element_tags", "with_tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A wire format: a wrapper, and in it calls with parameters as tags, or calls as JSON.

    Args:
        name: also the folder of its templates in `prompts/`, if it has any.
        tags: token kind -> regular expression of the whole tag, without groups. Kinds: `block_open`, `block_close`, `call_open`,
            `call_close`, `parameter_open`, `parameter_close`, `list_close` (after the last parameter), `body_open` (all arguments
            as one JSON object), `json_open` (the first of a call as JSON without any tag).
        written: token kind -> how the tag is written; `{name}` stands for the tool's or the parameter's.
        name_in_tag: regular expression whose group is the name in an opener; empty if it is the attribute `name`.
        json_written: `parameter_open` of a value that is JSON although the schema admits a string; empty if nothing marks that.
        json_mark: the attribute, and its value, that this opener carries.
        string_written: `parameter_open` of a string that would be read as another type; empty if nothing marks that.
        string_mark: the attribute, and its value, that this opener carries.
        is_exact: every character of a value is data, of a marked one where there is a mark; else one newline at either end is
            markup.
        name_after: regular expression of the opener after which the tool's name stands as text; such calls have no wrapper.
        is_json: calls are JSON objects with name and arguments.
        json_body: the arguments of a call are one JSON object between its tags.
        tool_elements: a call is an element with the tool's name.
        parameter_elements: a parameter is an element with its name.
        entities: the markup and the values are written with `&lt;` and the like.
        open_entities: readers of the format disagree whether `&lt;` in a value is `<`, so a value in which every such character is
            written so has two readings; in a CDATA section it has one.
    """

    name: str
    tags: dict[str, str]
    written: dict[str, str]
    name_in_tag: str = ""
    json_written: str = ""
    json_mark: tuple[str, str] = ("", "")
    string_written: str = ""
    string_mark: tuple[str, str] = ("", "")
    is_exact: bool = False
    name_after: str = ""
    is_json: bool = False
    json_body: bool = False
    tool_elements: bool = False
    parameter_elements: bool = False
    entities: bool = False
    open_entities: bool = False


# Never an element for a tool or parameter of that name: tags of their own, and for tools the HTML of every day.
_STRUCTURE = frozenset(
    """think thinking reasoning invoke parameter param parameters function function_calls function_call
    tool_calls tool_call tool_use""".split()  # noqa: SIM905
)
_HTML = frozenset(
    "a b br code details div em h1 h2 h3 i li ol p pre small span strong sub summary sup table td th tr u ul".split()  # noqa: SIM905
)


def element_tags(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return token kinds and patterns of parameters as elements.

    Args:
        names: the declared parameters.
    """
    pattern = alternation(_usable(names, _STRUCTURE))
    return (("element_open", element(pattern)), ("element_close", element(pattern, closing=True))) if pattern else ()


def with_tools(dialect: Dialect, names: Iterable[str]) -> Dialect:
    """Return the dialect with the tags that stand for these tools, if its calls are elements.

    The scanner tries elements of names first: a finished `<name>` is taken at once, whatever longer tag begins like it.

    Args:
        dialect: any.
        names: of the tools; without any, no element is a call.
    """
    if not dialect.tool_elements:
        return dialect
    pattern = alternation(_usable(names, _STRUCTURE | _HTML))
    if not pattern:
        return replace(dialect, tags={})
    return replace(dialect, tags={"call_open": element(pattern), "call_close": element(pattern, closing=True)})


def _usable(names: Iterable[str], reserved: frozenset[str]) -> list[str]:
    return [name for name in names if name.lower() not in reserved and 0 < len(name) <= 128 and not set(name) & set("<>/")]
