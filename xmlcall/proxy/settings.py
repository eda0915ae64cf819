"""The settings of a proxy with several models and keys: `xmlcall.toml`, overridden by environment variables.

    [serve]
    port = 8485

    [ask]                                # how every model is asked: the keys of `serve --ask`
    lang = "zh"

    [[model]]
    name = "small"
    address = "http://127.0.0.1:8080/v1"
    ask.mode = "xml"                     # how this one is asked

    [[key]]
    name = "alice"
    key = "${ALICE_KEY}"
    models = ["small"]

`XMLCALL_SERVE__PORT=9000` overrides `port`; `XMLCALL_MODEL` and `XMLCALL_KEY` each hold a JSON list of tables that replaces the
file's tables. The file may also hold rules about tools, which `agent.policy_file` reads. Unknown keys are errors, because a
misspelled key would otherwise be ignored silently. No message shows a secret.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from ..agent.policy_file import RULE_KEYS, is_rule
from ..errors import UsageError
from ..toml_file import read_toml
from ..turn.asking import SERVED, read_ask_table
from ..wire.openai import mapping
from .http.access import ALL, Key, key_of

KEY_BYTES: Final = 4096  # the largest file that may hold a key
_STRICT: Final = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
_PREFIX: Final = "XMLCALL_"
_TABLES: Final = ("serve", "ask", "model", "key")
_LISTS: Final = ("allow_origin", "allow_host")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER: Final = re.compile(r"\s*\[{1,2}\s*([A-Za-z_]+)\s*\]{1,2}")
_COUNTED: Final = "was removed: let a gateway in front count, such as LiteLLM or nginx"
_REMOVED: Final = {
    "requests_per_minute": _COUNTED,
    "tokens_per_minute": _COUNTED,
    "share": "was removed: have a balancer keep a client on one process (docs/scale.md)",
    "workers": "was removed: `uvicorn --factory xmlcall.proxy:configured_app --workers N` serves the same file",
}


AskTable = Annotated[dict[str, Any], AfterValidator(lambda table: {**read_ask_table(table, SERVED)})]
Positive = Field(default=None, ge=1)
Name = Field(min_length=1, max_length=200)


class ModelSettings(BaseModel):
    """A `[[model]]`; the name `*` means each model that the server lists. `way` is the old spelling of `ask.mode`."""

    model_config = _STRICT

    name: str = Name
    address: str = Name
    ask: AskTable = Field(default_factory=dict)
    way: Literal["auto", "xml", "native"] | None = None
    profile: str = "auto"
    context: int | None = Positive
    api_key: SecretStr | None = None
    aliases: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_one_or_all(self) -> Self:
        if self.name == ALL and self.aliases:
            raise ValueError(f'expected aliases of one model, got them for all of a server (name = "{ALL}")')
        return self

    def asked(self, common: Mapping[str, Any], first: Mapping[str, Any] | None = None) -> Self:
        """Return this model with all that says how it is asked in its `ask`: what is in `first`, else its own, else `common`."""
        way = {} if self.way is None else {"mode": self.way}
        return self.model_copy(update={"ask": {**common, **way, **self.ask, **(first or {})}, "way": None})


class KeySettings(BaseModel):
    """A `[[key]]`; exactly one of `key`, `key_file` and `sha256` gives the key itself."""

    model_config = _STRICT

    name: str = Name
    key: SecretStr | None = None
    key_file: Path | None = None
    sha256: str | None = Field(default=None, pattern="^[0-9a-fA-F]{64}$")
    models: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        given = [name for name in ("key", "key_file", "sha256") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of key, key_file and sha256, got {' and '.join(given) or 'none of them'}")
        if self.key is not None and not self.key.get_secret_value():
            raise ValueError("expected a key that is not empty")
        return self


class ServeSettings(BaseModel):
    """`[serve]`: the options of `xmlcall serve` with the same names; None means not given."""

    model_config = _STRICT

    host: str | None = None
    port: int | None = Field(default=None, ge=0, le=65535)
    grace: float | None = Field(default=None, ge=0)
    wait: float | None = Field(default=None, ge=0)
    log_format: Literal["text", "json"] | None = None
    open_metrics: bool | None = None
    traces: bool | None = None
    allow_origin: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()


class ProxySettings(BaseModel):
    """All settings of a proxy; without any key, everyone who can reach the port may call."""

    model_config = _STRICT

    serve: ServeSettings = Field(default_factory=ServeSettings)
    ask: AskTable = Field(default_factory=dict)
    model: tuple[ModelSettings, ...] = ()
    key: tuple[KeySettings, ...] = ()

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        for kind, given in (("model", [each.name for each in self.model]), ("key", [each.name for each in self.key])):
            if twice := sorted({name for name in given if given.count(name) > 1 and (kind, name) != ("model", ALL)}):
                raise ValueError(f"expected each {kind} to have a name of its own, got {twice[0]!r:.80} twice")
        known = {each.name for each in self.model}
        for key in self.key if known and ALL not in known else ():
            if missing := sorted({*(key.models or ())} - known):
                names = ", ".join(sorted(known))
                raise ValueError(f"key {key.name!r:.80}: expected models of this file ({names:.200}), got {missing[0]!r:.80}")
        return self


def read_settings(file: Path | None, environ: Mapping[str, str] = os.environ) -> ProxySettings:
    """Read the settings from a file and the environment; an error names file, line, what was expected and what was found."""
    text, data = "", dict[str, Any]()
    if file is not None:
        data = read_toml(file, "settings of a proxy")
        text = file.read_text(encoding="utf-8")
    where = str(file) if file is not None else "the environment"
    ours = {name: value for name, value in data.items() if name not in RULE_KEYS or not is_rule(name, value)}
    try:
        ours = _expanded(ours, environ)
    except KeyError as error:
        raise UsageError(f"{where}: the variable {error.args[0]} is not set: set it, or write the value") from None
    try:
        return ProxySettings(**_with_variables(ours))
    except ValidationError as error:
        raise UsageError(f"{where}: {_first_error(error, text)}") from None


def _with_variables(ours: dict[str, Any]) -> dict[str, Any]:
    """Put the environment over a file: `XMLCALL_MODEL` in place of its tables, `XMLCALL_SERVE__PORT` in place of one key."""
    whole = {name: _json(variable) for name in _TABLES if (variable := f"{_PREFIX}{name.upper()}") in os.environ}
    tables = {name: {**mapping(ours.get(name)), **mapping(whole.get(name)), **_keys_of(name)} for name in ("serve", "ask")}
    return ours | whole | {name: table for name, table in tables.items() if table}


def _keys_of(table: str) -> dict[str, Any]:
    start = f"{_PREFIX}{table.upper()}__"
    keys = {name.removeprefix(start).lower(): name for name in os.environ if name.startswith(start)}
    return {key: _json(name) if key in _LISTS else os.environ[name] for key, name in keys.items()}


def _json(variable: str) -> Any:
    try:
        return json.loads(os.environ[variable])
    except (ValueError, RecursionError):
        raise UsageError(f"expected JSON in the environment variable {variable}") from None


def _expanded(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _expanded(each, environ) for name, each in value.items()}
    if isinstance(value, list):
        return [_expanded(each, environ) for each in value]
    return _VARIABLE.sub(lambda match: environ[match[1]], value) if isinstance(value, str) else value


def _first_error(error: ValidationError, text: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = first["loc"]
    line = line_of(text, place)
    names = ".".join(f"{each + 1}" if isinstance(each, int) else str(each) for each in place)
    at = f"line {line}: " if line else ""
    if first["type"] == "extra_forbidden":
        if place[-1] in _REMOVED:
            return f"{at}{names[:100]}: {_REMOVED[str(place[-1])]}"
        known = ", ".join(_known(place))
        return f"{at}{names[:100]}: no such key; expected one of {known}"
    words = first["msg"].removeprefix("Value error, ")
    return f"{at}{names[:100]}: {words[:300]}" if names else f"{at}{words[:300]}"


def _known(place: Sequence[int | str]) -> list[str]:
    kinds: dict[str, type[BaseModel]] = {"serve": ServeSettings, "model": ModelSettings, "key": KeySettings}
    return sorted(kinds[str(place[0])].model_fields) if len(place) > 1 else [*kinds, *RULE_KEYS]


def line_of(text: str, place: Sequence[int | str]) -> int:
    """Return the number of the line that holds the value at a path such as `("model", 1, "name")`, else of its table, else 0."""
    if not place:
        return 0
    table, names = str(place[0]), [str(each) for each in place[1:] if isinstance(each, str)]
    wanted = next((each for each in place[1:] if isinstance(each, int)), 0)
    count, found, here = -1, 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            here = header[1]
            count += here == table
            found = number if (here, count) == (table, wanted) else found
            continue
        is_inside = names and (here, count) == (table, wanted)
        name = names[0] if is_inside else table if not here else ""
        if name and re.match(rf'\s*"?{re.escape(name)}"?\s*=', line):
            return number
    return found


# -- keys --------------------------------------------------------------------------------------------------------------


def keys_of(settings: ProxySettings) -> tuple[Key, ...]:
    """Return the keys that the settings define; reads the key files."""
    return tuple(_key(row) for row in settings.key)


def _key(row: KeySettings) -> Key:
    models = None if row.models is None else frozenset(row.models)
    if row.sha256 is not None:
        return Key(name=row.name, digest=bytes.fromhex(row.sha256), models=models)
    secret = row.key.get_secret_value() if row.key is not None else _read(row)
    return key_of(secret, row.name, models=models)


def _read(row: KeySettings) -> str:
    assert row.key_file is not None
    try:
        with row.key_file.expanduser().open(encoding="utf-8") as file:
            secret = file.read(KEY_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"key {row.name}: expected a key in {row.key_file}, got: {error}") from None
    if not secret:
        raise UsageError(f"key {row.name}: expected a key in {row.key_file}, got an empty file")
    return secret
