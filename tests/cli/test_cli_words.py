"""The texts of the command line: the same keys and placeholders in each language, and all that are used are there."""

import ast
from pathlib import Path
from string import Formatter

import pytest

from xmlcall.cli.words import LABELS, speaker, texts_of
from xmlcall.prompting.format import LANGUAGES

CLI = Path(__file__).parents[2] / "xmlcall" / "cli"


def placeholders(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in Formatter().parse(text) if name is not None)


def said() -> set[str]:
    """The keys that the modules of the command line ask for, where they stand as literals."""
    calls = [node for path in CLI.glob("*.py") for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [node for node in calls if "say" in ast.unparse(node.func).rpartition(".")[2] and node.args]
    first = [node.args[0] for node in named]
    return {key.value for key in first if isinstance(key, ast.Constant) and isinstance(key.value, str)}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_each_language_has_the_same_keys_and_placeholders(lang: str) -> None:
    usual = {key: placeholders(text) for key, text in texts_of("en").items()}
    assert {key: placeholders(text) for key, text in texts_of(lang).items()} == usual


def test_the_reasons_for_a_way_are_not_left_in_english() -> None:
    ways = {key for key in texts_of("en") if key.startswith("way_")}
    assert ways
    assert all(texts_of("zh")[key] != texts_of("en")[key] for key in ways)


def test_what_is_asked_for_is_there() -> None:
    assert len(said()) > 20
    assert said() | {*LABELS} <= texts_of("en").keys()


def test_a_text_takes_values_as_they_are() -> None:
    assert speaker("zh")("running", target="{x} %s") == "正在运行 {x} %s"


ODD = (
    "结局",
    "说话人",
    "没有人说过",
    "允许者",
    "拒绝者",
    "得到的是",
    "服务器自己的",
    "没有可说的",
    "书写",
    "试读",
    "改小",
    "没有工具做过",
)
"""Words that a translator would write, and no Chinese program does."""


@pytest.mark.parametrize("file", ["cli/words_zh.toml", "ui/static/i18n_zh.js", "ui/static/i18n_codes_zh.js"])
def test_the_chinese_has_no_words_of_a_translation(file: str) -> None:
    text = (CLI.parent / file).read_text(encoding="utf-8")
    assert [word for word in ODD if word in text] == []


@pytest.mark.parametrize(("file", "other"), [("cli/words_zh.toml", "您"), ("ui/static/i18n_zh.js", "你")])
def test_the_chinese_addresses_a_person_in_one_way(file: str, other: str) -> None:
    assert other not in (CLI.parent / file).read_text(encoding="utf-8")
