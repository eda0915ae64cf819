"""Finds where a value of a call leads, and its parts: hosts, mailboxes, phones, accounts, paths, names.

Only the text of the value counts; `flows` finds out who mentioned it. Destinations that lead out are found in any value. A host
without a scheme, a path or a name counts only in a parameter that is meant for one, because a text to be written or sent is full
of words that look like them.

The cost is linear in the length of the value.
"""

import ipaddress
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_plus

from ..addresses import host_readings
from ..text_forms import INVISIBLE, normalized

MOST_PARTS: Final = 200  # the most parts of an address, and addresses in a value, that are checked

# Names of parameters for texts, commands, addresses and receivers; file extensions, some of which are also top-level domains.
_OF_TEXTS: Final = (
    "body caption code comment content contents data description file_text instructions keywords markdown message new_str "
    "new_string new_text newtext note notes old_str old_string old_text oldtext pattern prompt q query question reason regex "
    "search search_query sql subject summary text title value"
)
_OF_COMMANDS: Final = "arg args argv bash cmd cmdline command commands exec script shell"
_OF_ADDRESSES: Final = "callback domain endpoint host hostname href link server site uri url urls webhook"
_OF_PLACES: Final = (
    "account assignee attendee attendees bcc bucket card cc channel channels chat_id collaborator collaborators email "
    "emails guest guests iban invitee invitees login member members owner payee phone phone_number receiver recipient "
    "recipients room sendto to user username users wallet"
)
_OF_FILES: Final = (
    "avi bak bmp bz2 c cc cfg conf cpp cs css csv db doc docx env gif go gz h html ics ini ipynb java jpeg jpg js json jsonl key "
    "lock log lua md mjs mov mp3 mp4 odt old pdf php pl png ppt pptx ps py rb rs rst rtf sh sql sqlite svg swp tar tex tmp toml "
    "ts tsv tsx txt wav webm webp xls xlsx xml yaml yml zip"
)
_CONTENT: Final = frozenset(_OF_TEXTS.split())
_COMMANDS: Final = frozenset(_OF_COMMANDS.split())
_ADDRESSES: Final = frozenset(_OF_ADDRESSES.split())
_PLACES: Final = frozenset(_OF_PLACES.split())
_FILES: Final = frozenset(_OF_FILES.split())
_MACHINES: Final = frozenset({"host", "hostname"})  # in these, a single word is a host name
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|-")
_KIND_OF_NAME: Final = re.compile(r"_(?:id|name|address)(?:s|es)?\Z")
_SELF: Final = frozenset({"me", "self", "myself", "@me"})
_LEAST_OPAQUE: Final = 6  # characters
_ALWAYS_OPAQUE: Final = 20
_LONG_NUMBER: Final = 100_000
_SPLIT: Final = re.compile(r"[^\w]+|_+")
_SCHEME: Final = re.compile(
    r"(?:(?<![a-z0-9])(?:https?|wss?|ftp):[/\\]*|(?<![a-z0-9+.-])"
    r"(?:ftps|sftp|scp|ssh|smb|nfs|git(?:\+\w{1,8})?|ldaps?|dict|gopher|telnet|tcp|udp|rsync|s3|gs|rtsp|ircs?|mqtts?|amqps?|redis|"
    r"mongodb(?:\+srv)?|mysql|postgres(?:ql)?)://|(?:\A|(?<==))//)"
    r"(?P<host>[^\s/\\?#\"'<>`]{1,300})",
    re.IGNORECASE,
)
_WHOLE_ADDRESS: Final = re.compile(_SCHEME.pattern + r"[^\s\"'<>`]*", re.IGNORECASE)
_END: Final = re.compile(r"[\s\"'<>`]")
_OTHER_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://\S+")
_LAST_LABEL: Final = r"(?:xn--[\w-]{2,59}|[^\W\d_]{2,24})(?![\w-])"
# Values with known spellings, as two patterns: an exact one, which `flows` searches for in other texts, and a lenient one
# for the ways people format them. The lenient one matches more, sometimes also adjacent text; that value is found nowhere else.
WRITTEN: Final = {
    "mail": (
        r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
        r"[^\s@<>\"',;:/()\[\]=&?]{1,64}@(?P<host>[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\."
        + _LAST_LABEL
        + r"|\[?[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b)",
    ),
    "phone": (r"\+[0-9](?: ?[0-9]){7,14}", r"\+[0-9](?:[ .()/-]{0,2}[0-9]){7,14}"),
    "account": (  # ISO 13616
        r"\b[a-z]{2}[0-9]{2}[a-z0-9]{10,30}\b",
        r"\b[a-z]{2}[0-9]{2}(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?\b",
    ),
    "date": (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:t[0-9:.z+-]*)?",
        r"[12][0-9]{3}-?[01][0-9]-?[0-3][0-9](?:t[0-9:.z+-]*)?|[0-9]{1,2}-[0-9]{1,2}-[0-9]{2,4}",
    ),
}
_MAIL, _PHONE, _ACCOUNT, _DATE = (re.compile(wide) for _, wide in WRITTEN.values())
_BARE_HOST: Final = re.compile(
    r"(?<![\w@./\\-])(?:\w[\w-]{0,62}\.){1,9}" + _LAST_LABEL + r"|(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.])"
    r"|(?<![\w.-])localhost(?![\w-])"
)
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[a-f:]{0,38}[0-9])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?![\w:])")
_DOT: Final = re.compile("(?<=[a-z0-9])\u3002(?=[a-z0-9])")  # as IDNA reads it (RFC 3490, 3.1)
_PATH: Final = re.compile(
    r"(?<![\w./\\:~-])(?:~[\w.-]{0,40}(?=[/\\])|/|[a-z]:[\\/]|\\\\)[^\s\"'<>|;&()]*"
    r"|(?:^|(?<=[\s\"'=]))[^\s\"'<>|;&()]{0,300}\.\.[/\\][^\s\"'<>|;&()]*"
)
_NAME: Final = re.compile(
    r"[#@][\w-]{2,}|(?=[\w-]*[0-9])(?=[\w-]*[^\W0-9])[\w-]{6,}|[0-9][0-9 -]{4,}[0-9]|[^\W_]+(?:[-_]+[^\W_]+){2,}"
)
_COLOR: Final = re.compile(r"#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_NUMBERED: Final = re.compile(r"[A-Z]?[a-z]{5,}[0-9]{1,2}")  # python3, section12
_TURNS: Final = re.compile(r"[a-z](?=[A-Z])|[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")

Kind = Literal["host", "mail", "phone", "account", "path", "name"]


@dataclass(frozen=True, slots=True)
class Destination:
    """A place that a value leads to."""

    kind: Kind
    text: str
    leads_out: bool = True


@dataclass(frozen=True, slots=True)
class Address:
    """A URL in a value."""

    host: str
    parts: tuple[str, ...]  # user, segments of the path, keys and values of the query, fragment; percent-decoded


def even(text: str) -> str:
    """Normalize a text to what a reader sees: without invisible characters, full-width letters as plain ones."""
    return text if text.isascii() else INVISIBLE.sub("", normalized("NFKC", text))


def is_text(name: str) -> bool:
    """Say whether the values of a parameter, or of a field in it, are texts, by its name."""
    return _spelled(name) in _CONTENT


def is_place(name: str) -> bool:
    """Say whether the values of a parameter, or of a field in it, are receivers or accounts, by its name."""
    return _is_of(_PLACES, _spelled(name))


def _spelled(name: str) -> str:
    return _HUMP.sub("_", name[:200]).lower()


def _is_of(kind: Collection[str], name: str) -> bool:
    """Say whether a name is of a kind, as a whole or by its last word: `toUser`, `channel_id`, `webhook_url`."""
    stem = _KIND_OF_NAME.sub("", name)
    return any(each in kind for each in (name, stem, name.rpartition("_")[2], stem.rpartition("_")[2]))


def is_file(text: str) -> bool:
    """Say whether a name has a common file extension."""
    return "." in text and text.rpartition(".")[2] in _FILES


def destinations(name: str, value: Any) -> Iterator[Destination]:
    """Yield the places that a value leads to."""
    if not isinstance(value, str):
        if isinstance(value, int) and not isinstance(value, bool) and is_place(name) and abs(value) >= _LONG_NUMBER:
            yield Destination("name", str(value), leads_out=False)
        return
    text = _DOT.sub(".", even(value).lower())
    for each in (text, unquote_plus(text)) if "%" in text else (text,):
        yield from _leading_out(each)
    if not is_text(name):
        rest = _MAIL.sub(" ", _WHOLE_ADDRESS.sub(" ", text))
        yield from _where_meant(_spelled(name), rest.strip())


def _leading_out(text: str) -> Iterator[Destination]:
    for address in addresses_in(text):
        yield Destination("host", address.host)
    for match in _MAIL.finditer(text):
        yield Destination("mail", match[0])
    yield from (Destination("phone", match[0]) for match in _PHONE.finditer(text))
    for match in _ACCOUNT.finditer(text):
        if sum(map(str.isdigit, match[0])) >= (8 if " " in match[0] else 4):  # else a word with two digits and short words
            yield Destination("account", match[0])


def _where_meant(name: str, text: str) -> Iterator[Destination]:
    """Yield hosts without a scheme, paths and names from a value that is one of them, or a command that contains them."""
    is_command, is_address, is_place = (_is_of(kind, name) for kind in (_COMMANDS, _ADDRESSES, _PLACES))
    if (
        not (is_command or is_address or is_place)
        and re.search(r"\s", text)
        and not re.match(r"[~/.]|[a-z]:|\\\\|[0-9 -]+$", text)
    ):
        return
    for match in _PATH.finditer(text.removeprefix("file://")):
        if match[0].strip("/\\.~"):
            yield Destination("path", match[0], leads_out=match[0].startswith(("\\\\", "//")))
    for match in _BARE_HOST.finditer(_PATH.sub(" ", text)):
        may_be_file = is_file(match[0]) and not is_address
        if is_command or not may_be_file:
            yield Destination("host", match[0], leads_out=not may_be_file)
    yield from (Destination("host", match[0]) for match in _IPV6.finditer(text) if _is_ip(match[0]))
    if is_address and (host := _numbers_or_word(name, text)):
        yield Destination("host", host)
    is_name = _NAME.fullmatch(text) or _OTHER_SCHEME.fullmatch(text) or (is_place and text not in _SELF)
    if text and is_name and not _DATE.fullmatch(text) and not _COLOR.fullmatch(text):
        yield Destination("name", text, leads_out=False)


def _numbers_or_word(name: str, text: str) -> str:
    """Return the host of an address if it is written in numbers, or as a single word in a parameter for hosts; else ""."""
    host = re.split(r"[/\\?#\s]", text, maxsplit=1)[0].rpartition("@")[2]
    host = re.sub(r":[0-9]*\Z", "", host)
    is_word = _is_of(_MACHINES, name) and host == text.partition(":")[0] and re.fullmatch(r"[\w-]{1,63}", host)
    return host if is_word or any(map(_is_ip, host_readings(host))) else ""


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def addresses_in(text: str) -> Iterator[Address]:
    """Yield the URLs in a text; a text that begins with a host counts as one."""
    found = [*_SCHEME.finditer(text)]
    ends = (*(match.start() for match in found[1:]), len(text))
    for match, end in zip(found, ends, strict=False):
        user, _, host = match["host"].rpartition("@")
        name = host.partition("]")[0] + "]" if host.startswith("[") else re.sub(r":[0-9]*\Z", "", host)
        yield Address(
            name.rstrip(".,;:!)*") or host, (*_parts(user), *_parts(_END.split(text[match.end() : end], maxsplit=1)[0]))
        )
    bare = None if found or "@" in text else _BARE_HOST.match(text)
    if bare is not None and text[bare.end() : bare.end() + 1] in ("/", "?", "#", ":"):
        yield Address(bare[0], _parts(text[bare.end() :]))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (unquote_plus(part).strip() for part in re.split(r"[/\\?#&=;:,]", text))))


def spellings(host: str) -> set[str]:
    """Return the spellings of a host: as written, as programs read it, with and without "www"."""
    names = {host, *host_readings(host)}
    return names | {name.removeprefix("www.") for name in names} | {f"www.{name}" for name in names}


def tokens(text: str) -> Iterator[str]:
    """Yield the runs of letters and digits of a text."""
    return filter(None, _SPLIT.split(text))


def is_opaque(token: str) -> bool:
    """Say whether a run of letters and digits may be a key, an encoding or an account, rather than a word or a small number."""
    if len(token) < _LEAST_OPAQUE or _DATE.fullmatch(token) or _NUMBERED.fullmatch(token):
        return False
    return (
        token.isdigit() or len(token) >= _ALWAYS_OPAQUE or len(_TURNS.findall(token)) > (0 if any(map(str.isdigit, token)) else 2)
    )
