"""`xmlcall.toml` of a proxy: what is read, what goes before it, and what is refused, with the line."""

from pathlib import Path

import pytest

from xmlcall.agent.policy_file import read_rules
from xmlcall.errors import UsageError
from xmlcall.proxy.configured import configured_app, models_of
from xmlcall.proxy.engine.own_tools import OwnTools
from xmlcall.proxy.http.access import digest_of
from xmlcall.proxy.settings import keys_of, read_settings

GOOD = """\
allow = ["files.*"]   # a rule about tools

[serve]
port = 9000
allow_origin = ["http://localhost:3000"]

[[model]]
name = "small"
address = "http://127.0.0.1:8080/v1"
aliases = ["gpt-*"]

[[model]]
name = "large"
address = "ollama:qwen2.5:7b"
context = 8192

[[key]]
name = "alice"
key = "${ALICE}"
models = ["large"]
"""


def file_of(folder: Path, text: str) -> Path:
    path = folder / "xmlcall.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    settings = read_settings(file_of(tmp_path, GOOD), {"ALICE": "secret-1"})
    assert settings.serve.port == 9000
    assert [(model.name, model.context) for model in settings.model] == [("small", None), ("large", 8192)]
    (key,) = keys_of(settings)
    assert (key.name, key.models) == ("alice", frozenset({"large"}))
    assert key.digest == digest_of(b"secret-1")
    assert "secret-1" not in repr(settings) + repr(key)


def test_the_same_file_holds_rules_about_tools(tmp_path: Path) -> None:
    (rule,) = read_rules(file_of(tmp_path, GOOD)).rules
    assert (rule.effect, rule.tools) == ("allow", ("files.*",))


def test_how_models_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD.replace("context = 8192", 'way = "native"\nask.lang = "en"') + '\n[ask]\nlang = "zh"\nreminder = false\n'
    monkeypatch.setenv("XMLCALL_ASK__TOOL_TOKENS", "300")
    file = file_of(tmp_path, text)
    settings = read_settings(file, {"ALICE": "x"})
    common = {"lang": "zh", "reminder": False, "tool_tokens": 300}
    assert [model.asked(settings.ask).ask for model in settings.model] == [common, {**common, "mode": "native", "lang": "en"}]
    assert settings.model[1].asked({}, {"mode": "xml"}).ask == {"mode": "xml", "lang": "en"}
    engines = [model.engine.asking for model in models_of([model.asked(settings.ask) for model in settings.model], OwnTools())]
    assert [(each.mode, each.lang, each.tool_tokens) for each in engines] == [("auto", "zh", 300), ("native", "en", 300)]
    assert [rule.effect for rule in read_rules(file).rules] == ["allow"]


def test_a_list_is_a_rule(tmp_path: Path) -> None:
    file = file_of(tmp_path, 'ask = ["files.*"]\n')
    assert (read_settings(file).ask, read_rules(file).rules[0].effect) == ({}, "ask")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('mood = "x"', "line 22: ask: mood: unknown key; expected one of mode, dialect,"),
        ("temperature = 1", "line 22: ask: temperature: has no effect here; expected one of mode,"),
        ('lang = "fr"', "line 22: ask: lang: expected one of en, zh, such as lang=zh, got 'fr'"),
    ],
)
def test_how_models_cannot_be_asked(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings(file_of(tmp_path, f"{GOOD}\n[ask]\n{line}\n"), {"ALICE": "x"})
    assert told in str(caught.value)


def test_the_environment_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_SERVE__PORT", "7000")
    monkeypatch.setenv("XMLCALL_MODEL", '[{"name": "large", "address": "local"}]')
    settings = read_settings(file_of(tmp_path, GOOD), {"ALICE": "x"})
    assert (settings.serve.port, settings.serve.allow_origin) == (7000, ("http://localhost:3000",))
    assert [model.address for model in settings.model] == ["local"]


def test_the_environment_reaches_each_key_of_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_SERVE", '{"port": 1, "grace": 2.5}')
    monkeypatch.setenv("XMLCALL_SERVE__PORT", "2")
    monkeypatch.setenv("XMLCALL_SERVE__TRACES", "true")
    monkeypatch.setenv("XMLCALL_SERVE__ALLOW_ORIGIN", '["http://a", "http://b"]')
    serve = read_settings(file_of(tmp_path, GOOD), {"ALICE": "x"}).serve
    assert (serve.port, serve.grace, serve.traces, serve.allow_origin) == (2, 2.5, True, ("http://a", "http://b"))
    monkeypatch.setenv("XMLCALL_SERVE__PROT", "2")
    with pytest.raises(UsageError, match=r"serve\.prot: no such key"):
        read_settings(None)
    monkeypatch.setenv("XMLCALL_SERVE__ALLOW_ORIGIN", "http://a")
    with pytest.raises(UsageError, match="expected JSON in the environment variable XMLCALL_SERVE__ALLOW_ORIGIN"):
        read_settings(None)


def test_the_environment_alone_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_MODEL", '[{"name": "m", "address": "http://127.0.0.1:1/v1"}]')
    assert configured_app().routes


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('aliases = ["gpt-*"]', 'alias = ["gpt-*"]', "line 10: model.1.alias: no such key; expected one of address, aliases,"),
        ("[serve]", "[server]", "line 3: server: no such key; expected one of serve, model, key, allow, ask, deny,"),
        ("port = 9000", "prot = 9000", "line 4: serve.prot: no such key"),
        ("port = 9000", 'port = "many"', "line 4: serve.port: Input should be a valid integer"),
        ("context = 8192", "context = 0", "line 15: model.2.context: Input should be greater than or equal to 1"),
        ('name = "large"\naddress', "address", "line 12: model.2.name: Field required"),
        ('models = ["large"]', 'models = ["huge"]', "key 'alice': expected models of this file (large, small), got 'huge'"),
        ('name = "large"', 'name = "small"', "expected each model to have a name of its own, got 'small' twice"),
        ('key = "${ALICE}"', "", "line 17: key.1: expected one of key, key_file and sha256, got none of them"),
        ('key = "${ALICE}"', 'key = ""', "expected a key that is not empty"),
        ('key = "${ALICE}"', 'key = "${NOBODY}"', "the variable NOBODY is not set"),
        ('key = "${ALICE}"', 'sha256 = "beef"', "line 19: key.1.sha256"),
        ("[serve]", "[serve", "expected TOML"),
        (
            "context = 8192",
            "requests_per_minute = 5",
            "line 15: model.2.requests_per_minute: was removed: let a gateway in front",
        ),
        ('models = ["large"]', "tokens_per_minute = 5", "line 20: key.1.tokens_per_minute: was removed: let a gateway in front"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = file_of(tmp_path, GOOD.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read_settings(path, {"ALICE": "hidden-value-1"})
    assert str(path) in str(caught.value)
    assert told in str(caught.value)
    assert "hidden-value-1" not in str(caught.value)


@pytest.mark.parametrize("value", ["[", '{"name": 1}', '[{"name": "m", "address": "local", "more": 1}]'])
def test_a_wrong_variable_is_told(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XMLCALL_MODEL", value)
    with pytest.raises(UsageError, match=r"environment|model"):
        read_settings(None)


@pytest.mark.parametrize("content", [None, "", b"\xff\xfe"])
def test_a_key_file_that_holds_no_key_is_told(tmp_path: Path, content: str | bytes | None) -> None:
    held = tmp_path / "key"
    if content is not None:
        held.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = f'[[key]]\nname = "a"\nkey_file = "{held}"\n'
    with pytest.raises(UsageError, match="key a: expected a key in"):
        keys_of(read_settings(file_of(tmp_path, text)))


def test_an_app_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected at least one \[\[model\]\]"):
        configured_app(file_of(tmp_path, "[serve]\nport = 1\n"))
