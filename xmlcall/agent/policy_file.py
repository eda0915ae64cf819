"""Reads rules from TOML files: the user's own, a named one, and that of the working directory, which can only restrict.

    allow = ["files.read_*", "time.*"]
    deny = ["*.delete_*"]

    [[rule]]
    allow = "files.write_file"
    where.path.below = "~/notes"

A file is limited in size, and an unknown key is an error, because it would otherwise be ignored silently. A file in the working
directory may have come with a folder from anybody, or may have been written by a tool. So its `allow` rules are ignored until the
user names the file; `ask` and `deny` rules can only make things stricter.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from ..errors import UsageError
from ..private_folders import user_path
from ..toml_file import read_toml
from .rules import CONDITIONS, Condition, Effect, Rule, Rules

FILE_NAME: Final = "xmlcall.toml"
_MOST_RULES: Final = 1000
_EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
RULE_KEYS: Final = (*_EFFECTS, "rule", "repaired", "flow")
_PROXY_KEYS: Final = ("serve", "model", "key")  # in the same file; `proxy.settings` reads these
_IN_RULE: Final = (*_EFFECTS, "where", "repaired", "flow")


def is_rule(name: str, value: Any) -> bool:
    """Say whether a top-level key is for rules, not for a proxy, where a table `[ask]` says how models are asked."""
    return name not in _PROXY_KEYS and not (name == "ask" and isinstance(value, dict))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The rules of a session."""

    rules: Rules
    files: tuple[Path, ...] = ()
    passed_over: Path | None = None  # the file of the working directory, if it has `allow` rules that were ignored


def own_file() -> Path:
    """Return the path of the user's own rules: `$XMLCALL_POLICY`, else a file in the user's configuration folder."""
    return user_path("config", FILE_NAME, "XMLCALL_POLICY")


def load_rules(named: Path | None = None) -> Loaded:
    """Read the rules of all policy files that exist; `named` is one more file of the user, which has to exist."""
    trusted = [path for path in (own_file(), named) if path is not None and (path == named or path.is_file())]
    rules = [rule for path in trusted for rule in read_rules(path).rules]
    here = Path.cwd() / FILE_NAME
    if not here.is_file() or any(here.samefile(path) for path in trusted):
        return Loaded(rules=Rules(rules=tuple(rules)), files=tuple(trusted))
    found = read_rules(here)
    stricter = found.only(("deny", "ask"))
    passed_over = None if len(stricter.rules) == len(found.rules) else here
    return Loaded(rules=Rules(rules=(*rules, *stricter.rules)), files=(*trusted, here), passed_over=passed_over)


def read_rules(file: Path) -> Rules:
    """Read the rules of a file, or raise a `UsageError` that names the file, the key, what was expected and what was found."""
    data = read_toml(file, "a policy")
    try:
        return Rules(rules=tuple(_rules(data, file.absolute())))
    except _WrongKey as wrong:
        raise UsageError(f"{file}: {wrong}") from wrong


class _WrongKey(ValueError):
    """An invalid entry: its key, what was expected, and what was found."""

    def __init__(self, key: str, expected: str, got: Any) -> None:
        shown = f"{got!r:.80}"
        super().__init__(f"{key[:80]}: expected {expected}, got {shown}")


def _rules(data: Mapping[str, Any], file: Path) -> Iterator[Rule]:
    data = {name: value for name, value in data.items() if is_rule(name, value)}
    _known(data, RULE_KEYS, "")
    usual = _extended(data, "")
    for effect in _EFFECTS:
        if effect in data:
            more = usual if effect == "allow" else {}
            yield Rule(effect=effect, tools=_texts(data[effect], effect), source=file.name, **more)
    tables = data.get("rule", [])
    if not isinstance(tables, list) or len(tables) > _MOST_RULES:
        raise _WrongKey("rule", f"at most {_MOST_RULES} tables [[rule]]", tables)
    for number, table in enumerate(tables, start=1):
        yield _rule(table, f"rule {number}", usual, file)


def _rule(table: Any, key: str, usual: Mapping[str, bool], file: Path) -> Rule:
    if not isinstance(table, dict):
        raise _WrongKey(key, "a table", table)
    _known(table, _IN_RULE, f"{key}, ")
    effects = [effect for effect in _EFFECTS if effect in table]
    if len(effects) != 1:
        raise _WrongKey(key, "one of the keys allow, ask and deny", ", ".join(effects) or "none of them")
    effect, more = effects[0], _extended(table, f"{key}, ")
    if effect != "allow" and more:
        raise _WrongKey(f"{key}, {'repaired' if 'repaired' in more else 'flow'}", "this key only beside allow", effect)
    return Rule(
        effect=effect,
        tools=_texts(table[effect], f"{key}, {effect}"),
        where=_where(table.get("where", {}), f"{key}, where", file.parent),
        source=f"{file.name}, {key}",
        **({**usual, **more} if effect == "allow" else {}),
    )


def _known(table: Mapping[str, Any], keys: tuple[str, ...], before: str) -> None:
    if unknown := sorted(table.keys() - {*keys}):
        raise _WrongKey(f"{before}{unknown[0]}", f"one of the keys {', '.join(keys)}", unknown[0])


def _texts(value: Any, key: str) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise _WrongKey(key, "a string, or a list of strings", value)
    return tuple(texts)


def _extended(table: Mapping[str, Any], before: str) -> dict[str, Any]:
    """Read what extends `allow` to more calls, as far as it is given."""
    repaired, flow = table.get("repaired", False), table.get("flow", "ask")
    if not isinstance(repaired, bool):
        raise _WrongKey(f"{before}repaired", "true or false", repaired)
    if flow not in ("ask", "allow"):
        raise _WrongKey(f"{before}flow", '"ask" or "allow"', flow)
    given = {"repaired": repaired} if "repaired" in table else {}
    return given | ({"may_flow": flow == "allow"} if "flow" in table else {})


def _where(table: Any, key: str, folder: Path) -> dict[str, tuple[Condition, ...]]:
    if not isinstance(table, dict):
        raise _WrongKey(key, "a table of arguments", table)
    found: dict[str, tuple[Condition, ...]] = {}
    for name, asked in table.items():
        if not isinstance(asked, dict) or not asked:
            raise _WrongKey(f"{key}.{name}", f"a table with one of the keys {', '.join(CONDITIONS)}", asked)
        _known(asked, tuple(CONDITIONS), f"{key}.{name}, ")
        found[name] = tuple(_condition(kind, value, f"{key}.{name}.{kind}", folder) for kind, value in asked.items())
    return found


def _condition(kind: str, value: Any, key: str, folder: Path) -> Condition:
    if kind == "one_of":
        if not isinstance(value, list) or not value or not all(isinstance(each, str | int | float) for each in value):
            raise _WrongKey(key, "a list of strings, numbers, true or false", value)
        return CONDITIONS[kind](value)
    texts = _texts(value, key)
    if kind == "below":
        texts = tuple(_folder(text, key, folder) for text in texts)
    if kind == "host" and any("/" in text for text in texts):
        raise _WrongKey(key, "hosts without a scheme, a path or a network's length", value)
    return CONDITIONS[kind](tuple(map(str.lower, texts)) if kind == "host" else texts)


def _folder(text: str, key: str, beside: Path) -> str:
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # the home directory of an unknown user
        raise _WrongKey(key, "a folder", text) from error
    if "\0" in text:
        raise _WrongKey(key, "a folder", text)
    return str(beside / path)
