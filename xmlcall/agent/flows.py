"""Values of a call that somebody else told than the person: injected text acts by them.

Two things are looked for. A whole value that was found in the result of another server (`provenance`: by its words, in other
spellings). And names in a value: addresses, hosts, accounts, paths and the like, which say where something goes. A name is looked
for as it stands, also as it would be read out of an encoding, and is only the person's if the person wrote it so; that its words
stand somewhere in the conversation is not enough.

| a name was told by | it is a flow |
|---|---|
| the person, or the tool's own description | no |
| a result of another server | yes |
| the description of another server's tool, or its instructions | yes |
| a result of the same server | if it leads out: an e-mail address, a host, a phone number, a bank account |
| and the tool only reads, and the whole value stood in the result | no: that is how a link is followed |

Not seen: what was rewritten (a translation, a sum, letters that are shifted or in reverse), and a call whose values are all the
person's own.

Cost: linear in the conversation; the encodings are read only for a call with names that the person did not write.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

from ..binding.echo import words_of
from ..binding.provenance import provenance, values_in
from ..dialects.replies import said_by_whom
from .policy import Proposal

__all__ = ["flows"]

_LEADS_OUT: Final = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"  # e-mail
    r"|(?<=://)[^\s/?#\"'<>]{1,253}"  # host of an address
    r"|\+[0-9](?: ?[0-9]){7,14}"  # phone
    r"|\b[a-z]{2}[0-9]{2}[a-z0-9]{10,30}\b",  # bank account (ISO 13616)
)
_NAME: Final = re.compile(
    r"(?:~|\.{1,2})?/[\w./-]{3,}"  # path
    r"|\b[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[a-z]{2,10}\b"  # host or file
    r"|#[\w-]{3,}"  # channel
    r"|\b(?=[\w-]*[0-9])(?=[\w-]*[^\W0-9])[\w-]{6,}\b"  # with letters and digits
    r"|\b[0-9]{6,}\b"
    r"|\b\w+(?:[-_]\w+){2,}\b",
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:t[0-9:.z+-]*)?")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){6,}")
_SPELLED: Final = ((r" ?[\[(]at[\])] ?| at ", "@"), (r" ?[\[(]dot[\])] ?| dot ", "."), (r"['\"] \+ ['\"]", ""))
_RUN: Final = re.compile("[\U000e0000-\U000e0fff]+")
_ENOUGH: Final = 1_000_000  # characters of a text that are searched for encodings


def flows(proposal: Proposal) -> dict[str, str]:
    """Find values that somebody else told than the person, in a call that may change something.

    A tool may change something or send it away, unless its own server says that it only reads, and reads nothing of the open
    world: an address that is fetched can carry a secret. MCP takes a tool without hints for one that does both (2025-11-25,
    ToolAnnotations).

    Args:
        proposal: with the conversation.

    Returns:
        JSON path of the value -> name of the server that told it.
    """
    hints = proposal.tool.annotations or {}
    if (hints.get("readOnlyHint") is True and hints.get("openWorldHint") is False) or not proposal.conversation:
        return {}
    sources = provenance(proposal.call, proposal.conversation, [proposal.tool])
    servers = {path: proposal.server_of(source.tool) for path, source in sources.items() if source.kind == "result"}
    found = {path: server for path, server in servers.items() if server and server != proposal.host}
    names = {path: told for path, _, value in values_in(proposal.call.arguments) if path not in found and (told := _names(value))}
    return {**found, **_named(proposal, names, only_reads=hints.get("readOnlyHint") is True)} if names else found


def _named(proposal: Proposal, names: dict[str, list[str]], *, only_reads: bool) -> dict[str, str]:
    """Return the values with a name that somebody else told."""
    texts = [*_texts(proposal)]
    own = "\n".join([*(text for server, text in texts if not server), words_of(proposal.tool)]).lower()
    results = [(server, text) for server, text in texts if server]
    left = {path: [name for name in each if not _stands_in(name, own)] for path, each in names.items()}
    if not any(left.values()):
        return {}
    others = [(server, text.lower()) for server, text in proposal.described() if server != proposal.host]
    readings = [(server, reading) for server, text in results for reading in _readings(text)]
    leading = {match[0] for each in values_in(proposal.call.arguments) for match in _LEADS_OUT.finditer(str(each[2]).lower())}
    found: dict[str, str] = {}
    for path, each in left.items():
        for name in each:
            for server, text in (*readings, *others):
                if path not in found and _stands_in(name, text) and (server != proposal.host or name in leading):
                    found[path] = server
    return {
        path: server
        for path, server in found.items()
        if not (only_reads and server == proposal.host and _is_link(path, proposal, results))
    }


def _is_link(path: str, proposal: Proposal, results: Iterable[tuple[str, str]]) -> bool:
    """Say whether a whole value stood in a result of the tool's own server, as a link does."""
    value = next(value for found, _, value in values_in(proposal.call.arguments) if found == path)
    return any(server == proposal.host and _stands_in(str(value).lower(), text.lower()) for server, text in results)


def _names(value: Any) -> list[str]:
    """Return what of a value says where something goes, in small letters; of a value without white space the whole, too."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return []
    text = str(value).lower()
    found = [match[0] for pattern in (_LEADS_OUT, _NAME) for match in pattern.finditer(text)]
    if len(text) > 5 and not re.search(r"\s", text) and not text.isalpha():
        found.append(text)
    return [name for name in dict.fromkeys(found) if not _DATE.fullmatch(name)]


def _stands_in(name: str, text: str) -> bool:
    """Say whether a name stands in a text, and not as a part of a longer one."""
    if name not in text:
        return False
    return re.search(rf"(?<![a-z0-9_@.-]){re.escape(name)}(?![a-z0-9_@-]|\.[a-z0-9_])", text) is not None


def _texts(proposal: Proposal) -> Iterator[tuple[str, str]]:
    """Yield who wrote what: a server's name, or "" for the person and the program."""
    for _, role, tool, text in said_by_whom(proposal.conversation):
        if tool is not None:
            yield proposal.server_of(tool) or proposal.host, text
        elif role in ("user", "system"):
            yield "", text


def _readings(text: str) -> Iterator[str]:
    """Yield a text as it stands, and as it reads once it is decoded; in small letters."""
    head = text[:_ENOUGH]
    yield text.lower()
    for reading in _READINGS:
        if (found := reading(head)) != head:
            yield found.lower()


def _seen(text: str) -> str:
    """Read hidden tags and selectors as the letters that they stand for, and leave out what has no glyph."""
    read = _RUN.sub(lambda run: f" {''.join(_letter(ord(char)) for char in run[0])} ", text)
    return "".join(char for char in read if not _is_hidden(char))


def _is_hidden(char: str) -> bool:
    return char > "~" and (unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f")


def _letter(code: int) -> str:
    """Return what a tag (U+E0000) or a selector (U+E0100, as bytes from 16 on) stands for."""
    return chr(code - 0xE0000) if code < 0xE0080 else chr(code - 0xE0100 + 16) if 0xE0100 <= code <= 0xE01EF else ""


def _unpacked(pattern: re.Pattern[str], unpack: Callable[[str], bytes]) -> Callable[[str], str]:
    def reading(text: str) -> str:
        return "\n".join(filter(None, (_decoded(match[0], unpack) for match in pattern.finditer(text)))) or text

    return reading


def _decoded(text: str, unpack: Callable[[str], bytes]) -> str:
    try:
        return unpack(text).decode()
    except (ValueError, binascii.Error):
        return ""


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_" if {*text} & {*"-_"} else None)


def _spelled(text: str) -> str:
    for pattern, becomes in _SPELLED:
        text = re.sub(pattern, becomes, text, flags=re.IGNORECASE)
    return text


def _joined(text: str) -> str:
    """Close up letters that stand apart: "e x a m p l e"."""
    return re.sub(r"(?<!\S)(\S) (?=\S(?:\s|\Z))", r"\1", text)


_READINGS: Final[Sequence[Callable[[str], str]]] = (
    _seen,
    html.unescape,
    unquote,
    _unpacked(_ENCODED, _from_base64),
    _unpacked(_HEX, bytes.fromhex),
    _spelled,
    _joined,
)
"""Ways to read a text that was written to be read by a model, and by no search for words."""
