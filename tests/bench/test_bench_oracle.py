"""On well-formed blocks the parser agrees with a strict XML parser."""

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from profiles import examples

from xmlcall import ToolCall, parse

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,12}", fullmatch=True)
plain = st.text(st.characters(exclude_characters="<>&\r`", exclude_categories=("Cc", "Cs", "Cn")), max_size=40)
arguments = st.dictionaries(names, plain, max_size=4)
calls = st.lists(st.tuples(names, arguments), min_size=1, max_size=4)


def written(name: str, values: dict[str, str]) -> str:
    parameters = "".join(f'<parameter name="{key}">{text}</parameter>' for key, text in values.items())
    return f'<invoke name="{name}">{parameters}</invoke>'


@settings(max_examples=examples(200), deadline=None)
@given(wanted=calls)
def test_agrees_with_lxml(wanted: list[tuple[str, dict[str, str]]]) -> None:
    text = f"<function_calls>{''.join(written(name, values) for name, values in wanted)}</function_calls>"
    root = etree.fromstring(text, etree.XMLParser(resolve_entities=False, no_network=True))
    oracle = [(call.get("name"), {part.get("name"): part.text or "" for part in call}) for call in root]
    reply = parse(text)
    assert [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)] == oracle
    assert reply.text == ""
    assert reply.repairs == ()
