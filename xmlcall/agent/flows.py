"""Finds values of a call that do not come from the user, because injected text acts through such values.

In a call that may change something or send it out, the user is asked about a value in these cases:

- The whole value comes from a result of another server (`provenance`: by its words, also in other spellings).
- A name in it (an address, host, account, path and the like) comes from a result of another server, or from that server's
  descriptions of its tools.
- A name comes from a result of the same server and leads out: an e-mail address, a host, a phone number, a bank account. Any
  other name (a channel, a user, but not a path) only if the tool may write, and the name is in running text, not a list entry.
- Its destination appears nowhere in the conversation, which contains a result of another server, or one with hidden characters.
  If the destination leads out and the tool may write, a result of any other tool is enough.
- The user mentioned the host, but a part of the address, or a value sent along with it, comes from another server's result or
  looks like a key that appears nowhere.
- A piece of a key in it, of letters and digits, comes from another server's result.

All this also applies to names of fields that are unusual and that the tool does not declare, and to a text split into pieces.

A name counts as the user's only if the user wrote it exactly so; it is not enough that its words are somewhere in the
conversation. It does not matter how a name was decoded from unreadable text (base64, reversed letters): it appears nowhere. A
tool that only reads may follow a link that a result of its own server contains as a whole.

Known limits: words that were rewritten (a translation, reversed letters) and go to a place that the user named; and a call whose
values are all the user's own.

The cost is linear in the value and in the conversation; each message is read once.
"""

import csv
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice
from typing import Any, Final, Literal
from urllib.parse import unquote, unquote_plus

from ..addresses import host_readings
from ..binding.echo import words_of
from ..binding.provenance import SaidIndex, member_path, values_in
from ..dialects.write import said_by_whom
from ..schema.references import nodes
from ..text_forms import INVISIBLE, normalized
from ..types.calls import Message
from .policy import Proposal

# -- destinations ------------------------------------------------------------------------------------------------------
# Finds where a value of a call leads, and its parts: hosts, mailboxes, phones, accounts, paths, names.
#
# Only the text of the value counts; `flows` finds out who mentioned it. Destinations that lead out are found in any value. A
# host without a scheme, a path or a name counts only in a parameter that is meant for one, because a text to be written or sent
# is full of words that look like them.
#
# The cost is linear in the length of the value.


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
_PLACE_NAME: Final = re.compile(
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
    is_name = _PLACE_NAME.fullmatch(text) or _OTHER_SCHEME.fullmatch(text) or (is_place and text not in _SELF)
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


# -- what each message said, read once; which names a result lists -----------------------------------------------------
# A conversation grows at its end, and its messages never change. So the index is kept with the messages it was built from, and
# if a longer conversation begins with the same messages, only the rest is read. The few most recently used conversations are
# kept.
#
# An entry is a name that a result lists, rather than mentions in running text. A server may list names in JSON or as Python
# values: there, each string without white space is an entry, unless its key says that it is a text. Or it may list them in
# lines of one form: names with or without bullets, keys with values, or rows of a table; the first line may be a heading. A
# single line of another form makes the whole result a text without entries. Otherwise a name on a line of its own would count,
# even in an issue that anybody can write.
#
# Known limit: whoever controls a whole result can write a list.
#
# The cost is linear in the messages that were not read before.


TURNS: Final = re.compile("[0-9][A-Za-z]+[0-9]|[A-Za-z][0-9]+[A-Za-z]")  # letters and digits that alternate, as in keys
_KEPT: Final = 4  # conversations, in this process
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{8,}")
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|[bfnrt/\"\\])")  # an escape of JSON
_BLANKS: Final = dict.fromkeys("bfnrt", " ")
_HIDDEN: Final = re.compile(f"{INVISIBLE.pattern}{{8,}}")  # longer than what emoji need

_HEADLINE: Final = re.compile(r"\A\s{0,20}[^\n]{1,200}:[ \t]{0,20}\r?\n")
_NAME_PIECE: Final = re.compile(
    r"\s*(?:\"(?P<double>[^\"\\]*(?:\\.[^\"\\]*)*)\"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'|[\[\]{}(),]|(?P<colon>:)"
    r"|[-+]?[0-9][0-9.]*(?:e[-+]?[0-9]+)?|(?:true|false|null|none)\b|[a-z_.]{1,40}(?=\())",
    re.IGNORECASE | re.DOTALL,
)
_BULLET: Final = re.compile(r"^(?:[-*•+]|[0-9]{1,4}[.)]|\[[\w ]{1,10}\])\s+|^(?:commit|branch|id|path|file|name)\s+(?=\S+$)")
_FIRST_CELL: Final = re.compile(r"[|,;\t]|\s{2}|:\s|\s[-–—]\s")
_KEYED: Final = re.compile(r"(?:[^\W_]{1,30}[ _]){0,2}(?P<key>[^\W_]{1,30}):\s+(?P<value>\S.*)")
_OF_KEYS: Final = (
    "account assignee author branch channel commit email file group guest host id key login mail member name number owner path "
    "phone project recipient repo repository role room slug team url user username"
)
_KEYS: Final = frozenset(_OF_KEYS.split())
_MARKS: Final = "\"'`()<>[]{}*_ "


@dataclass(frozen=True)
class ToldResult:
    """A result, with properties that are computed on demand."""

    tool: str
    raw: str

    @cached_property
    def text(self) -> str:
        """The text, normalized and in lower case; also without JSON escapes if it has any, because one may precede a name."""
        plain = _ESCAPE.sub(_unescaped, self.raw)
        return even(self.raw if plain == self.raw else f"{self.raw}\n{plain}").lower()

    @cached_property
    def hides(self) -> bool:
        """Whether it contains characters that only a model sees."""
        return _HIDDEN.search(self.raw) is not None

    @cached_property
    def keys(self) -> str:
        """The runs of letters and digits that may belong to a key, without dashes and underscores, separated by spaces."""
        runs = (re.sub("[_-]", "", match[0]) for match in _KEY.finditer(self.raw))
        return " ".join(run for run in runs if TURNS.search(run))

    @cached_property
    def entries(self) -> frozenset[str]:
        """The names that it lists as entries, not in running text."""
        return entries_of(self.raw)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape["code"], 16)) if escape["code"] else _BLANKS.get(escape[0][1], escape[0][1])


@dataclass(slots=True)
class _MessageIndex:
    messages: list[Message] = field(default_factory=list)
    index: SaidIndex = field(default_factory=SaidIndex)
    own: str = ""  # the text of the user and the program, normalized and in lower case
    own_words: set[str] = field(default_factory=set)
    own_run: str = ""
    results: list[ToldResult] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)

    def begins(self, conversation: Sequence[Message]) -> bool:
        """Say whether a conversation continues the one that was read, including the calls known to be in its texts."""
        return len(self.messages) <= len(conversation) and all(
            one is other or (one == other and one.written == other.written)
            for one, other in zip(self.messages, conversation, strict=False)
        )

    def read(self, conversation: Sequence[Message]) -> None:
        start, own = len(self.messages), [self.own]
        for place, role, tool, text in said_by_whom(conversation[start:], self.called):
            self.index.add_said(start + place, role, tool, text)
            if role == "tool":
                self.results.append(ToldResult(tool or "", text))
            elif role == "user" or (role == "system" and tool is None):
                own.append(even(text).lower())
        self.messages += conversation[start:]
        runs = [*tokens("\n".join(own[1:]))]
        self.own = "\n".join(own)
        self.own_words.update(runs)
        self.own_run += "".join(runs)


_known: OrderedDict[int, _MessageIndex] = OrderedDict()


def told_in(conversation: Sequence[Message]) -> _MessageIndex:
    """Return the index of a conversation; only new messages are read."""
    fitting = [index for index in [*_known.values()] if index.begins(conversation)]
    index = max(fitting, key=lambda index: len(index.messages), default=_MessageIndex())
    if _known.pop(id(index), None) is None:  # another thread is reading it
        index = _MessageIndex()
    index.read(conversation)
    _known[id(index)] = index
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return index


def entries_of(result: str) -> frozenset[str]:
    """Return the entries of a raw result, normalized and in lower case; normalizing it first could add quotes."""
    body = _HEADLINE.sub("", result, count=1)
    strings = [*_strings(body)]
    if not strings:
        found = _listed(body)
    elif len(strings) == 1:  # a text that the server wrapped in an object
        found = [] if is_text(strings[0][0]) else _listed(strings[0][1].replace("\\n", "\n"))
    else:
        found = [text for key, text in strings if not is_text(key) and _is_name(text)]
    return frozenset(even(entry).lower().strip(_MARKS) for entry in found)


def _strings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the strings of JSON or Python values, each with the key before it; if the text was cut, those before the cut."""
    key, last, place = "", None, 0
    if text.lstrip()[:1] not in ("[", "{", "("):
        return
    while piece := _NAME_PIECE.match(text, place):
        place = piece.end()
        if piece["colon"] and last is not None:
            key, last = last, None
        elif not piece["colon"]:
            if last is not None:
                yield key, last
            last = piece["double"] if piece["double"] is not None else piece["single"]
    if last is not None:
        yield key, last


def _is_name(text: str) -> bool:
    return bool(text) and not re.search(r"\s", text)


def _listed(text: str) -> Iterable[str]:
    """Return the entries of a text whose lines all have the same form."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    bare = [_BULLET.sub("", line) for line in lines]
    if all(map(_is_name, bare)):
        return bare
    keyed = [match for line in bare if (match := _KEYED.fullmatch(line))]
    if len(keyed) == len(bare):
        return [match["value"] for match in keyed if match["key"].lower() in _KEYS and _is_name(match["value"])]
    if all(line != whole for line, whole in zip(bare, lines, strict=True)):
        return [_FIRST_CELL.split(line, maxsplit=1)[0] for line in bare]
    tables = (_cells([*filter(None, rows)], mark) for mark in "|\t;," if (rows := _rows(text, mark)))
    columns = [re.split(r"\s{2,}", line) for line in lines]
    return next(filter(None, tables), None) or _cells(columns, "  ")


def _rows(text: str, mark: str) -> list[list[str]]:
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(keepends=True), delimiter=mark)]
    except csv.Error:  # a cell that is too long for the reader
        return []


def _cells(rows: list[list[str]], mark: str) -> list[str]:
    """Return the cells of a table that may be names; prose has commas, too, but not each time after a single word."""
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return []
    if len(rows) == 1:
        return rows[0] if all(map(_is_name, rows[0])) else []
    if mark in ",;" and not all(_is_name(row[0]) for row in rows):
        return []
    return [cell for row in rows for head, cell in zip(rows[0], row, strict=True) if not is_text(head) and _is_name(cell)]


# -- flows -------------------------------------------------------------------------------------------------------------


NOBODY: Final = ""  # the server name of a value that appears nowhere in the conversation

_EXACT_MAIL, _EXACT_PHONE, _EXACT_ACCOUNT, _EXACT_DATE = (exact for exact, _ in WRITTEN.values())
_HOST: Final = r"(?<=://)[^\s/?#\"'<>]{1,253}"  # the host of an address
_LEADS_OUT: Final = re.compile("|".join((_EXACT_MAIL, _HOST, _EXACT_PHONE, _EXACT_ACCOUNT)))
_NAME: Final = re.compile(
    r"(?:~|\.{1,2})?/[\w./-]{3,}"  # path
    r"|\b[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.(?:xn--[a-z0-9-]{2,59}|[a-z]{2,10})\b"  # host or file
    r"|#[\w-]{3,}"  # channel
    r"|\b(?=[\w-]*[0-9])(?=[\w-]*[^\W0-9])[\w-]{6,}\b"  # with letters and digits
    r"|\b[0-9]{6,}\b"
    r"|\b[^\W_]+(?:[-_]+[^\W_]+){2,}\b"
)
_PIECE: Final = 8  # characters of a key that are unlikely to match by chance
_MEMBER: Final = re.compile(r"\.(\w+)(?:\[\d+\])*\Z|\['([^']*)'\](?:\[\d+\])*\Z")
_FIELD: Final = re.compile(r"[A-Za-z]{1,24}(?:[_-][A-Za-z]{1,24}){0,2}")  # a plain identifier; anything else is data
_NAME_OF_FIELD: Final = re.compile(r"[?&;][^=&;#]{0,100}=")  # of an address's query
_BEFORE_DATA: Final = re.compile(rf"https?://[^/?#]{{0,300}}|{_NAME_OF_FIELD.pattern}")
_LEAST_PIECES: Final = 4  # fewest pieces of a text that counts as split
_SMALL: Final = 3  # characters of such a piece
_USUAL: Final = "about api blog data docs en help home html https index info json latest login news page search user wiki www"
_COMMON: Final = frozenset(_USUAL.split())
_TELLING: Final = 4  # least characters of a part that is looked up
_LONG_RUN: Final = 16  # characters
_NUMBERS: Final = 5  # digits in a part; more of them may encode something
_DEEPEST: Final = 50  # folders of a path
_BEFORE_NAME: Final = re.compile(r"[a-z0-9_@.-]")
_AFTER_NAME: Final = re.compile(r"[a-z0-9_@-]|\.[a-z0-9_]")
_BEFORE_PATH: Final = re.compile(r"[\w~./-]")
_AFTER_PATH: Final = re.compile(r"(?!/?(?![\w/-]|\.\w))")
_FEW: Final = 64  # pieces; up to this many are searched for one by one


def flows(proposal: Proposal, settled: Collection[str] = ()) -> dict[str, str]:
    """Map the JSON path of each value that does not come from the user to its server, `NOBODY` if the value appears nowhere.

    A tool counts as changing something or sending it out, unless its server declares that it only reads, and reads nothing of the
    open world: a fetched address can carry a secret. By MCP, a tool without hints counts as doing both (2025-11-25,
    ToolAnnotations). The user's rules say where the `settled` parameters may lead.
    """
    hints = proposal.tool.annotations or {}
    if (hints.get("readOnlyHint") is True and hints.get("openWorldHint") is False) or not proposal.conversation:
        return {}
    said = _heard(proposal, only_reads=hints.get("readOnlyHint") is True)
    values = [*values_in(proposal.call.arguments), *_beside_values(proposal)]
    keys = _teller_of_keys(((path, value) for path, _, value in values), said)
    servers = ((path, _teller(path, name, value, said, name in settled)) for path, name, value in values)
    found = ((path, keys.get(path) if server is None else server) for path, server in servers)
    return {path: server for path, server in found if server is not None}


def _beside_values(proposal: Proposal) -> Iterator[tuple[str, str, Any]]:
    """Yield further data in the arguments, as `values_in` does: names of fields that are data, and texts split into pieces.

    The path is that of the object or list, because the name of a field can be a secret, and paths are logged.
    """
    properties = (node.get("properties") for node in nodes(proposal.tool.input_schema))
    declared = {name for each in properties if isinstance(each, Mapping) for name in each}
    stack = [(member_path("$", name), name, value) for name, value in proposal.call.arguments.items()]
    while stack:
        path, name, value = stack.pop()
        if isinstance(value, dict):
            stack += [(member_path(path, key), name, each) for key, each in value.items()]
            is_open = is_place(_member_of(path, name))
            data = (key for key in value if key not in declared and (is_open or not _FIELD.fullmatch(key)))
            yield from ((path, name, key) for key in data)
            yield from ((path, name, key[2:]) for key in value if key not in declared and key[:2] in ("x-", "X-"))  # headers
        elif isinstance(value, list):
            stack += [(f"{path}[{place}]", name, each) for place, each in enumerate(value)]
        pieces = [*(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())]
        if len(pieces) >= _LEAST_PIECES and all(isinstance(each, str) and len(each) <= _SMALL for each in pieces):
            yield path, name, "".join(pieces)


def _member_of(path: str, parameter: str) -> str:
    """Return the name of the field that contains a value, or else of its parameter."""
    return next(filter(None, match.groups()), parameter) if (match := _MEMBER.search(path)) else parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """The conversation before a call, by source; texts are normalized and in lower case."""

    proposal: Proposal
    only_reads: bool
    index: SaidIndex
    own: str
    own_words: tuple[Collection[str], ...]
    own_run: str
    others: tuple[tuple[str, ToldResult], ...]
    ours: tuple[ToldResult, ...]
    described: tuple[tuple[str, str], ...]  # descriptions by other servers, each with the server's name
    has_results: bool
    hides: bool
    posts: bool  # whether the call has a URL, to which its other values may be sent


def _heard(proposal: Proposal, *, only_reads: bool) -> _Heard:
    messages = told_in(proposal.conversation)
    servers = {tool: proposal.server_of(tool) for tool in {result.tool for result in messages.results}}
    results = [(servers[result.tool] or proposal.host, result) for result in messages.results]
    described = even(words_of(proposal.tool)).lower()
    return _Heard(
        proposal=proposal,
        only_reads=only_reads,
        index=messages.index,
        own=f"{described}\n{messages.own}",
        own_words=(messages.own_words, frozenset(tokens(described))),
        own_run="".join(tokens(described)) + messages.own_run,
        others=tuple((server, result) for server, result in results if server != proposal.host),
        ours=tuple(result for server, result in results if server == proposal.host),
        described=tuple((server, text.lower()) for server, text in proposal.described() if server != proposal.host),
        has_results=any(server and tool != proposal.call.name for tool, server in servers.items()),
        hides=any(result.hides for result in messages.results),
        posts=any(
            isinstance(value, str) and not is_text(name) and any(True for _ in addresses_in(even(value)))
            for _, name, value in values_in(proposal.call.arguments)
        ),
    )


def _teller(path: str, parameter: str, value: Any, said: _Heard, is_settled: bool) -> str | None:
    """Return the source of a value that the user has to be asked about; None if they need not."""
    proposal = said.proposal
    source = said.index.source_of(value, proposal.tool, parameter)
    server = proposal.server_of(source.tool) if source.kind == "result" else ""
    if server and server != proposal.host:
        return server
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if said.others and isinstance(value, str) and _HIDDEN.search(value):
        return NOBODY
    name = _member_of(path, parameter)
    teller = _teller_of_name(name, value, said)
    if teller is not None:
        return teller
    text = even(str(value)).lower()
    if _stands_in(text, said.own) or (said.only_reads and any(_stands_in(text, heard.text) for heard in said.ours)):
        return None  # the user's value, or a link to follow
    is_said = source.kind in ("person", "schema", "system", "trivial")
    if not is_settled and any(_is_unknown(each, said, is_said) for each in destinations(name, value)):
        return NOBODY
    if not said.others or not isinstance(value, str):
        return None
    if split := next(filter(None, (_other_teller(run, said) for run in _joined(value))), ""):
        return split
    return NOBODY if said.posts and _has_code(value, said) else _teller_of_address(value, said)


def _joined(value: str) -> Iterator[str]:
    """Yield what pieces in a row give together, without the names of fields: a text may be split over an address."""
    pieces = tokens(unquote(even(_BEFORE_DATA.sub(" ", value))))
    rows = ([*row] for is_small, row in groupby(pieces, key=lambda each: len(each) <= _SMALL) if is_small)
    yield from ("".join(row) for row in rows if len(row) >= _LEAST_PIECES)


def _other_teller(text: str, said: _Heard) -> str:
    """Return the server, other than the call's own, in whose results a text stands; "" if there is none."""
    source = said.index.find(text) if len(text) >= _TELLING else None
    server = said.proposal.server_of(source.tool) if source is not None and source.kind == "result" else ""
    return server if server != said.proposal.host else ""


def _has_code(value: str, said: _Heard) -> bool:
    """Say whether the value has a long run of letters and digits, as in encodings, that the user did not mention."""
    runs = (run for run in tokens(even(value)) if len(run) >= _LONG_RUN and any(map(str.isdigit, run)))
    return any(is_opaque(run) and not _is_own_word(run, said) for run in runs)


def _is_own_word(run: str, said: _Heard) -> bool:
    return any(run.lower() in words for words in said.own_words)


def _teller_of_name(name: str, value: str | int, said: _Heard) -> str | None:
    """Return the source of a name in a value that the user did not mention."""
    text = even(str(value)).lower()
    left = [each for each in _names(text) if not _stands_in(each, said.own)]
    others = [*((server, heard.text) for server, heard in said.others), *said.described] if left else []
    if server := next((server for each in left for server, heard in others if _stands_in(each, heard)), None):
        return server
    ours = [(each, heard) for each in left for heard in said.ours if _stands_in(each, heard.text)]
    leading = {match[0] for match in _LEADS_OUT.finditer(text)}
    if any(each in leading for each, _ in ours):
        is_link = said.only_reads and any(_stands_in(text, heard.text) for heard in said.ours)
        return None if is_link else said.proposal.host
    is_plain = isinstance(value, int) or "/" in text or "\\" in text or is_file(text)  # a number of a list, a path
    is_name = not said.only_reads and not is_text(name) and not is_plain and any(each == text for each, _ in ours)
    return said.proposal.host if is_name and not any(text in heard.entries for each, heard in ours if each == text) else None


def _names(text: str) -> list[str]:
    """Return the names in a text that may be destinations; also the whole text if it has no white space."""
    found = [match[0] for pattern in (_LEADS_OUT, _NAME) for match in pattern.finditer(text)]
    if len(text) > 5 and not re.search(r"\s", text) and not text.isalpha():
        found.append(text)
    return [name for name in dict.fromkeys(found) if not re.fullmatch(_EXACT_DATE, name)]


def _stands_in(name: str, text: str) -> bool:
    """Say whether a text contains a name, and not just as a part of a longer one."""
    return bool(name) and _is_found(name, text, _BEFORE_NAME, _AFTER_NAME)


def _is_found(part: str, text: str, before: re.Pattern[str], after: re.Pattern[str]) -> bool:
    """Say whether a text contains a part that does not continue on either side; this is faster than one pattern."""
    at = text.find(part)
    while at >= 0 and ((at and before.match(text, at - 1)) or after.match(text, at + len(part))):
        at = text.find(part, at + 1)
    return at >= 0


def _teller_of_keys(values: Iterable[tuple[str, Any]], said: _Heard) -> dict[str, str]:
    """Return the values that contain a piece of a key from another server, each with that server."""
    places = {
        piece: path
        for path, value in values
        if isinstance(value, str)
        for text in {value, _NAME_OF_FIELD.sub("", value)}
        for piece in _windows("".join(tokens(unquote(even(text)))))
        if TURNS.search(piece)  # letters and digits alternate, as in keys
    }
    found: dict[str, str] = {}
    if not places:
        return found
    for server, result in said.others:
        is_few = len(places) <= _FEW
        for piece in [each for each in places if each in result.keys] if is_few else places.keys() & {*_windows(result.keys)}:
            if places[piece] not in found and piece.lower() not in said.own_run:
                found[places[piece]] = server
    return found


def _windows(run: str) -> Iterator[str]:
    return (run[place : place + _PIECE] for place in range(len(run) - _PIECE + 1))


def _is_unknown(place: Destination, said: _Heard, is_said: bool) -> bool:
    """Say whether a destination appears nowhere, while other texts could have made the model go there."""
    asks = bool(said.others) or said.hides or (said.has_results and place.leads_out and not said.only_reads)
    if not asks or (said.only_reads and not place.leads_out):
        return False
    match place.kind:
        case "host":
            return not any(_stands_in(each, said.own) for each in spellings(place.text))
        case "mail":
            return not _stands_in(place.text, said.own)
        case "phone" | "account":
            return "".join(tokens(place.text)) not in said.own_run
        case "path":
            return not _is_below_said(place.text, said)
    return (
        not is_said
        and not _stands_in(place.text, said.own)
        and not any(_stands_in(place.text, heard.text) for heard in said.ours)
    )


def _is_below_said(path: str, said: _Heard) -> bool:
    """Say whether a path, or a folder above it, was mentioned by the user or the tool's own server."""
    parts = path.replace("\\", "/").rstrip("/").split("/")
    texts = [text.replace("\\", "/") for text in (said.own, *(each.text for each in said.ours))]
    for end in range(len(parts), 1, -1):
        if len(parts) > _DEEPEST or any(part.startswith(".") for part in parts[end:]):
            return False  # naming a folder does not include what is hidden in it
        if any(_is_found("/".join(parts[:end]), text, _BEFORE_PATH, _AFTER_PATH) for text in texts):
            return True
    return False


def _teller_of_address(value: str, said: _Heard) -> str | None:
    """Return the source of a part of an address whose host the user mentioned."""
    addresses = [*islice(addresses_in(even(value)), MOST_PARTS + 1)]
    parts = [part for address in addresses for part in address.parts]
    if len(addresses) > MOST_PARTS or len(parts) > MOST_PARTS:
        return NOBODY
    return next((server for part in parts if (server := _teller_of_part(part, said)) is not None), None)


def _teller_of_part(part: str, said: _Heard) -> str | None:
    runs = [run for run in tokens(part) if not _is_own_word(run, said)]
    if not runs or _stands_in(part.lower(), said.own):
        return None
    if part.lower() not in _COMMON and (server := _other_teller(part, said)):
        return server
    is_code = sum(map(str.isdigit, runs)) > _NUMBERS
    return NOBODY if is_code or any(is_opaque(run) for run in runs) else None
