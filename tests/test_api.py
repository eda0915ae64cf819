"""The public surface: what other programs rely on (docs/design.md, section 3)."""

import ast
import inspect
from collections.abc import Iterator

import pytest

import xmlcall
from xmlcall.backends.scripted import ScriptedBackend

DESIGN = {
    "parse": "text, tools, dialect, finish_reason, reasoning_open",
    "Parser": "tools, dialect, reasoning_open",
    "bind": "raw_call, tools",
    "render": "calls, tools, dialect",
    "system_prompt": "tools, dialect, lang, parallel, family, instructions",
    "Catalog": "tools",
    "connect": "model, context_length, api_key, progress",
}


@pytest.mark.parametrize("name", DESIGN)
def test_signature(name: str) -> None:
    assert ", ".join(inspect.signature(getattr(xmlcall, name)).parameters) == DESIGN[name]


def test_all_names_exist_and_are_documented() -> None:
    for name in xmlcall.__all__:
        assert getattr(xmlcall, name) is not None
    for name in DESIGN:
        assert inspect.getdoc(getattr(xmlcall, name))
    assert {"Tool", "ToolLoop", "Reply", "RawCall", "RawArgument", "ToolCall", "InvalidCall", "Issue", "Repair"} <= set(
        xmlcall.__all__
    )
    assert dir(xmlcall) == xmlcall.__all__


def callables() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each public function, class and method: its name, the docstring that tells its arguments, and their names."""
    for name in xmlcall.__all__:
        value = getattr(xmlcall, name)
        if inspect.isfunction(value):
            yield name, inspect.getdoc(value) or "", [*inspect.signature(value).parameters]
        if not inspect.isclass(value):
            continue
        for own, method in vars(value).items():
            if inspect.isfunction(method) and not own.startswith("_"):
                yield f"{name}.{own}", inspect.getdoc(method) or "", [*inspect.signature(method).parameters][1:]


def test_each_argument_of_a_public_function_is_told() -> None:
    """Internals may leave it to name and type, so that no linter asks for it."""
    told = {f"{name}: {each}" for name, doc, arguments in callables() for each in arguments if f"{each}:" not in doc}
    assert told == set()


def test_type_checkers_see_every_name_as_public_and_where_it_is() -> None:
    """With `import X as X`; a plain import is private to them."""
    tree = ast.parse(inspect.getsource(xmlcall))
    imports = [
        (node, alias) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level for alias in node.names
    ]
    assert all(alias.asname == alias.name for _, alias in imports)
    assert {alias.name: f".{node.module}" for node, alias in imports} == xmlcall._HOMES


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        xmlcall.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["grammar", "loosened"])
def test_a_name_that_is_gone_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"xmlcall\.{name} was removed: "):
        getattr(xmlcall, name)


@pytest.mark.parametrize(("old", "new"), [("TurnStarted", "ReplyStarted"), ("TurnEnded", "ReplyEnded")])
def test_an_old_name_is_told_and_works(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"xmlcall.{old} is now xmlcall.{new}"):
        assert getattr(xmlcall, old) is getattr(xmlcall, new)
    assert old not in xmlcall.__all__


def test_the_number_of_a_reply_has_its_old_name_too() -> None:
    with pytest.warns(DeprecationWarning, match="`turn` of an event is now `number`"):
        assert xmlcall.ReplyStarted(number=3).turn == 3
    with pytest.warns(DeprecationWarning, match="`Answer.turns` is now `Answer.replies`"):
        assert xmlcall.Answer(text="", stop_reason="end", messages=(), replies=2, usage=xmlcall.Usage()).turns == 2


def test_the_most_replies_have_their_old_name_too() -> None:
    with pytest.warns(DeprecationWarning, match="max_replies"):
        loop = xmlcall.ToolLoop(ScriptedBackend([]), max_turns=3)
    assert loop._limits == xmlcall.RepairPolicy(max_replies=3)


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        xmlcall.Reply().text = "x"  # type: ignore[misc]


def test_a_catalog_is_a_collection_of_tools_that_knows_names() -> None:
    catalog = xmlcall.Catalog([xmlcall.Tool(name="f", input_schema={"type": "object"})])
    assert (len(catalog), [tool.name for tool in catalog]) == (1, ["f"])
    assert "f" in catalog
    assert "g" not in catalog
