"""Finds secrets in calls by the names of their parameters, and masks them wherever a call is recorded.

Names are compared in lower case without separators, so `API-Key`, `apiKey` and `api_key` are the same. Values are masked at any
depth of the arguments. In a call as the model wrote it, the same values are masked as text; if the text contains a secret's name
but not one of these values, the whole text is left out, because a partial mask protects nothing.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..types.calls import MISSING, RawCall, Span

MASK: Final = "***"

# Names that mean a secret as a whole, and endings that do with any word before them (`github_token`, `dbPassword`).
_NAMES: Final = frozenset(
    [
        *("auth", "authorization", "proxyauthorization", "bearer", "cookie", "setcookie", "credential", "credentials", "otp"),
        *("passphrase", "passwd", "password", "passwords", "pat", "pin", "pwd", "secret", "secrets", "sessionid", "token"),
        *("apikey", "accesskey", "accesstoken", "authtoken", "clientsecret", "privatekey", "refreshtoken", "secretkey"),
        *("密码", "口令", "密钥", "令牌"),
    ]
)
_ENDINGS: Final = ("apikey", "accesskey", "password", "passwd", "passphrase", "privatekey", "secret", "secretkey", "token")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_SHORTEST: Final = 4  # characters of a value that is searched for in a text; a shorter one occurs by chance
_NEAR: Final = 60  # characters after a name within which its mask is expected
# A value after a name: in quotes, bare (with the word that some headers have before it), and as the text of an element.
_NAMED: Final = r"(?<![\w-])([\w-]{3,40}+)"
_GIVEN: Final = tuple(
    map(
        re.compile,
        (
            rf"""{_NAMED}["']?\s{{0,3}}[=:]\s{{0,3}}"((?:[^"\\\n]|\\.)+)\"""",
            rf"""{_NAMED}["']?\s{{0,3}}[=:]\s{{0,3}}'((?:[^'\\\n]|\\.)+)\'""",
            rf"""{_NAMED}["']?\s{{0,3}}[=:]\s{{0,3}}(?:(?:bearer|basic|token)\s+)?((?!null\b|true\b|false\b)[^\s"',;<>{{}}\[\]]{{4,}}+)""",
            rf"""{_NAMED}["']?(?:\s[^<>\n]{{0,60}})?>([^<]*[^<\s])""",
        ),
        (re.IGNORECASE,) * 4,
    )
)
# A word in the place of a parameter's name: in quotes, as a tag, as a key or before an equals sign.
_KEY: Final = re.compile(r"""(?<![\w-])[\w-]++(?=["'>\\]*\s*[=:>])|(?<=["'=<>])[\w-]++(?=["'<>\s])""")


def is_secret(name: str) -> bool:
    plain = _SEPARATORS.sub("", name).lower()
    return plain in _NAMES or plain.endswith(_ENDINGS)


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with a mask in place of each secret."""
    if name and is_secret(name):
        return MASK
    if isinstance(value, Mapping):
        return {str(key): masked(part, str(key)) for key, part in value.items()}
    return [masked(part) for part in value] if isinstance(value, list | tuple) else value


def masked_text(raw: RawCall, arguments: Mapping[str, Any]) -> str | None:
    """Return a call as the model wrote it, with its secrets masked; None if a secret cannot be separated from the rest."""
    text = raw.text
    values = {each.text for each in raw.arguments if is_secret(each.name)}
    values |= {
        value
        for argument in raw.arguments
        if argument.value is not MISSING
        for value in secrets_in({argument.name: argument.value})
    }
    values |= set(secrets_in(arguments))
    for written in sorted({each for value in values for each in _spellings(value)}, key=len, reverse=True):
        text = text.replace(written, MASK) if len(written) >= _SHORTEST else text
    return None if shows_secret(text) else text


def shows_secret(text: str) -> bool:
    """Say whether a call, or a text that may be one, contains the name of a secret without a mask after it."""
    named = (found for found in _KEY.finditer(text) if is_secret(found[0]) and text[found.start() - 1 : found.start()] != "/")
    return any(MASK not in text[found.end() : found.end() + _NEAR] for found in named)


def secret_places(text: str, known: Iterable[str] = ()) -> list[Span]:
    """Return the spans of secrets in any text, sorted and disjoint: known values, and values after a secret's name."""
    written = {each for value in known for each in _spellings(value) if len(each) >= _SHORTEST}
    places = [found.span(2) for given in _GIVEN for found in given.finditer(text) if is_secret(found[1])]
    for each in written:
        places += [found.span() for found in re.finditer(re.escape(each), text)]
    apart: list[Span] = []
    for start, end in sorted(places):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def secrets_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from secrets_in(part, str(key) if not (name and is_secret(name)) else name)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from secrets_in(part, name)
    elif name and is_secret(name):
        yield value if isinstance(value, str) else json.dumps(value)


def _spellings(value: str) -> tuple[str, ...]:
    """Return a text as the formats of calls write it."""
    as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    return value, value.strip(), html.escape(value), html.escape(value, quote=False), *as_json
