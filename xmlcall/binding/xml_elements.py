"""Nested XML elements in a value -> a tree of names and texts.

Models that write parameters as tags go on in tags where the schema asks for an array or an object:
`<item>a</item><item>b</item>`, `<name>x</name><size>1</size>`. What JSON value they stand for, the schema says: see `bind.py`.

lxml reads the text strictly: entities other than XML's own five are text, a DTD or a processing instruction is refused, nothing
is fetched, and what is not well-formed is not mended. Depth is bounded by `MAX_DEPTH`, because what validates a value recurses.
"""

from dataclasses import dataclass
from typing import Any

import regex

from ..schema.references import MAX_DEPTH

__all__ = ["Node", "read"]

_BARE_AMPERSAND = regex.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")


@dataclass(frozen=True, slots=True)
class Node:
    """An element: its children, or its text if it has none."""

    name: str
    text: str
    children: tuple["Node", ...]


def read(text: str) -> tuple[Node, ...] | None:
    """Read a value that is written as XML elements.

    Returns:
        The elements; None if the text is anything else: not well-formed, with a DTD, a comment or an attribute, with text between
    """
    stripped = text.strip()
    if not (stripped.startswith("<") and stripped.endswith(">")) or "<!" in text or "<?" in text:
        return None
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(f"<v>{_BARE_AMPERSAND.sub('&amp;', text)}</v>".encode(), parser)
    except (etree.XMLSyntaxError, UnicodeEncodeError):
        return None
    return _nodes(root, MAX_DEPTH)


def _nodes(parent: Any, depth: int) -> tuple[Node, ...] | None:
    """Return the children of an element, or None if one of them is refused."""
    if (parent.text or "").strip() or not depth:
        return None
    nodes = []
    for child in parent:
        below = _nodes(child, depth - 1) if len(child) else ()
        if below is None or child.attrib or (child.tail or "").strip():
            return None
        nodes.append(Node(child.tag, "" if below else child.text or "", below))
    return tuple(nodes)
