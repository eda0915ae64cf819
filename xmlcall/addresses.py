"""Normalize the hosts of addresses, so that a rule about a host cannot be bypassed by spelling it another way.

Browsers and resolvers read `2130706433`, `0x7f.1`, `127.1`, `[::ffff:127.0.0.1]` and full-width digits as 127.0.0.1 (WHATWG URL,
host parsing; POSIX, inet_aton). Where programs differ, a host has several readings: `010.0.0.1` is 8.0.0.1 for some and 10.0.0.1
for others, and an IPv6 address that embeds an IPv4 address may lead to either. No DNS lookup is made.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from .text_forms import INVISIBLE, normalized

_LONGEST: Final = 1000  # characters of a host; a longer one is compared unchanged
_DOTS: Final = str.maketrans("\u3002\uff0e\uff61", "...")
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
# Endings that public DNS does not have (RFC 6761, RFC 6762, RFC 8375, ICANN); it has no name without a dot either.
_LOCAL: Final = (".localhost", ".localdomain", ".localdomain6", ".local", ".internal", ".lan", ".home.arpa")

# IPv6 networks whose addresses embed an IPv4 address, and how many bits follow it.
_CARRIES: Final = (
    ("::ffff:0:0/96", 0),  # IPv4-mapped (RFC 4291, 2.5.5.2)
    ("::/96", 0),  # IPv4-compatible (RFC 4291, 2.5.5.1)
    ("::ffff:0:0:0/96", 0),  # IPv4-translated (RFC 2765)
    ("64:ff9b::/96", 0),  # NAT64 (RFC 6052)
    ("64:ff9b:1::/48", 0),  # NAT64 of a network's own (RFC 8215)
    ("2002::/16", 80),  # 6to4 (RFC 3056)
)
_NETWORKS: Final = tuple((ipaddress.IPv6Network(network), bits) for network, bits in _CARRIES)


def host_readings(host: str) -> tuple[str, ...]:
    """Return every way that programs read a host: a lower-case name or an address in its usual form. Most have one reading."""
    if len(host) > _LONGEST:
        return (host.lower(),)
    name = _spelled(host)
    if ":" in name:
        return _of_ipv6(name)
    numbers = [ipaddress.IPv4Address(value) for value in _of_ipv4(name)]
    return tuple(dict.fromkeys(map(str, numbers))) or (name,)


def is_inside(host: str) -> bool:
    """Say whether at least one program reads a host, by its name alone, as this machine or an address of its network."""
    return any(_is_inside(reading) for reading in host_readings(host))


def _is_inside(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(_LOCAL)
    return not address.is_global or address.is_multicast or (address.version == 6 and address.is_site_local)


def _spelled(host: str) -> str:
    """Undo what disguises a host: percent encoding, full-width forms, invisible characters, capitals, a trailing dot."""
    name = INVISIBLE.sub("", normalized("NFKC", unquote(unquote(host))).translate(_DOTS)).strip().lower()
    name = name.removeprefix("[").removesuffix("]").partition("%")[0]  # the zone of IPv6 follows "%"
    name = name.rstrip(".")
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name


def _of_ipv6(name: str) -> tuple[str, ...]:
    try:
        address = ipaddress.IPv6Address(name)
    except ValueError:
        return (name,)
    if int(address) <= 1:  # the unspecified address, and this machine
        return (str(address),)
    carried = [ipaddress.IPv4Address(int(address) >> bits & 0xFFFFFFFF) for network, bits in _NETWORKS if address in network]
    if int(address) >> 32 & 0xFDFFFFFF == 0x5EFE:  # ISATAP (RFC 5214, 6.1), in any network
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(dict.fromkeys((str(address), *map(str, carried))))


def _of_ipv4(name: str) -> Iterator[int]:
    """Yield the addresses that one to four numbers stand for; the last number covers all remaining bytes."""
    parts = name.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return
    for octal in (True, False):
        *first, last = (_number(part, octal=octal) for part in parts)
        if all(number < 256 for number in first) and last < 256 ** (5 - len(parts)):
            yield sum(number << 8 * (3 - place) for place, number in enumerate(first)) + last


def _number(part: str, *, octal: bool) -> int:
    if part[:2] in ("0x", "0X"):
        return int(part[2:] or "0", 16)
    is_octal = octal and len(part) > 1 and part[0] == "0" and not {*part} & {"8", "9"}
    return int(part, 8 if is_octal else 10)
