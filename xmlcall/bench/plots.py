"""The pictures of a report page: the funnel of a way, ways side by side, and growth with the number of tools.

Matplotlib draws the pictures, and its output is then adapted to an HTML page. Colours become variables of the page, so a picture
follows its theme. Text stays text in the page's own font. Style attributes, which the page's policy forbids, become separate
attributes. The same rates always give the same output.

A picture is as wide as a phone's screen, and one unit is one pixel there: its text can be read without zooming.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rates = Mapping[str, Mapping[str, float]]
"""Metric -> `count`, `total`, `low` and `high`, as in a report."""

# Colours that stand for variables of the page until the picture is drawn.
_INKS = {"text": "#000001", "muted": "#000002", "line": "#000003", "track": "#000004", "first": "#000005", "second": "#000006"}
_VARIABLES = {colour: f"var(--{name})" for name, colour in _INKS.items()}

_WIDTH = 340
_TEXT, _SMALL = 12.0, 10.5
_LABEL_LIMIT = 46  # characters that fit into the width
_GRID = (0, 0.25, 0.5, 0.75, 1)

# The stages as they are drawn: a side branch is indented and says what the tolerances are worth.
_FUNNEL = (
    ("completed", False),
    ("intent", False),
    ("parsed_as_written", True),
    ("parsed_with_repairs", False),
    ("tool_known", False),
    ("valid_as_written", True),
    ("valid", False),
    ("call_correct", False),
)
_BAR_LEFT, _BAR_RIGHT = 128, 238


def funnel(rates: Rates, *, name: str) -> str:
    """Draw how many replies reach each stage, and how many are lost on the way to it."""
    shown = [(stage, is_branch, rates[stage]) for stage, is_branch in _FUNNEL if stage in rates]
    with _canvas(len(shown) * 26 + 2) as (figure, axes):
        before: float | None = None
        for row, (stage, is_branch, rate) in enumerate(shown):
            _stage(axes, row * 26 + 14, _words(stage), rate, is_branch=is_branch)
            if not is_branch:
                if before is not None and rate["count"] < before:
                    lost = f"−{before - rate['count']:g}"
                    _text(axes, _WIDTH, row * 26 + 14, lost, color=_INKS["muted"], size=_SMALL, ha="right")
                before = rate["count"]
        return _svg(figure, name, "Funnel: the share of replies that reach each stage")


def _stage(axes: "Axes", y: float, title: str, rate: Mapping[str, float], *, is_branch: bool) -> None:
    share = rate["count"] / rate["total"]
    left, height = (10, 7) if is_branch else (0, 15)
    full = _BAR_RIGHT - _BAR_LEFT
    axes.barh(y, full, left=_BAR_LEFT, height=height, color=_INKS["track"])
    axes.barh(y, full * share, left=_BAR_LEFT, height=height, color=_INKS["second" if is_branch else "first"])
    ink = _INKS["muted" if is_branch else "text"]
    _text(axes, left, y, title, color=ink, size=_SMALL if is_branch else _TEXT)
    _text(axes, _BAR_RIGHT + 58, y, f"{100 * share:.1f} %", color=ink, size=_SMALL if is_branch else _TEXT, ha="right")


# What is drawn in a pair: the metric, its ink and its marker. The second pair is for runs without cases that need a single call.
_PAIRS = (
    (("call_correct", "first", "o"), ("parsed_as_written", "second", "D")),
    (("task_correct", "first", "o"), ("completed", "second", "D")),
)


def comparison(ways: Sequence[tuple[str, Rates]], *, name: str) -> str:
    """Draw two rates of each way with their intervals, one way below the other."""
    pair = _PAIRS[0] if any("call_correct" in rates for _, rates in ways) else _PAIRS[1]
    top, step = 40, 58
    bottom = top + len(ways) * step
    with _canvas(bottom + 8) as (figure, axes):
        _legend(axes, pair)
        for row, (label, rates) in enumerate(ways):
            y = top + row * step
            _text(axes, 0, y, _cut(label), color=_INKS["text"], size=_TEXT)
            for share in _GRID:
                axes.plot([_across(share)] * 2, [y + 11, y + 43], color=_INKS["line"], linewidth=1)
            for place, (metric, ink, marker) in enumerate(pair):
                if metric in rates:
                    _dot(axes, y + 20 + 15 * place, rates[metric], ink, marker)
        for share in _GRID:
            _text(axes, _across(share), bottom, f"{100 * share:.0f} %", color=_INKS["muted"], size=_SMALL, ha="center")
        return _svg(figure, name, f"{_words(pair[0][0])} and {_words(pair[1][0])}, with 95 % intervals")


def _across(share: float) -> float:
    return 14 + share * (_WIDTH - 84)


def _dot(axes: "Axes", y: float, rate: Mapping[str, float], ink: str, marker: str) -> None:
    share = rate["count"] / rate["total"]
    axes.plot([_across(rate["low"]), _across(rate["high"])], [y, y], color=_INKS[ink], linewidth=2, solid_capstyle="round")
    axes.plot([_across(share)], [y], marker=marker, markersize=8 if marker == "o" else 6.5, color=_INKS[ink])
    _text(axes, _WIDTH, y, f"{100 * share:.1f} %", color=_INKS["muted"], size=_SMALL, ha="right")


def _legend(axes: "Axes", metrics: Sequence[tuple[str, str, str]]) -> None:
    for place, (metric, ink, marker) in enumerate(metrics):
        left = 6 + place * 130
        axes.plot([left], [10], marker=marker, markersize=7 if marker == "o" else 5.5, color=_INKS[ink])
        _text(axes, left + 10, 10, _words(metric), color=_INKS["muted"], size=_SMALL)


_GROWTH = (("call_correct", "first", "o"), ("tool_known", "second", "D"))


def growth(categories: Mapping[str, Rates], *, name: str) -> str:
    """Draw two rates, with intervals, over catalogs of growing size: the first number in the name of a category."""
    sizes, top, bottom = _sizes(categories), 38, 208
    with _canvas(bottom + 24) as (figure, axes):
        _legend(axes, _GROWTH)
        for share in _GRID:
            y = bottom - share * (bottom - top)
            axes.plot([44, _WIDTH], [y, y], color=_INKS["line"], linewidth=1)
            _text(axes, 36, y, f"{100 * share:.0f} %", color=_INKS["muted"], size=_SMALL, ha="right")
        places = [62 + index * (_WIDTH - 90) / max(len(sizes) - 1, 1) for index in range(len(sizes))]
        for x, (label, _) in zip(places, sizes, strict=True):
            _text(axes, x, bottom + 14, label, color=_INKS["muted"], size=_SMALL, ha="center")
        for metric, ink, marker in _GROWTH:
            points = [(x, rates[metric]) for x, (_, rates) in zip(places, sizes, strict=True) if metric in rates]
            _curve(axes, points, top, bottom, ink, marker)
        return _svg(figure, name, "Call correct and tool known, by the number of tools offered")


def _sizes(categories: Mapping[str, Rates]) -> list[tuple[str, Rates]]:
    """Return label and rates from small to large."""
    numbered = [(re.search(r"\d+", category), category) for category in categories]
    ordered = sorted((int(match[0]) if match else 0, category) for match, category in numbered)
    return [(str(size) if size else _cut(category), categories[category]) for size, category in ordered]


def _curve(
    axes: "Axes", points: Sequence[tuple[float, Mapping[str, float]]], top: float, bottom: float, ink: str, marker: str
) -> None:
    def up(share: float) -> float:
        return bottom - share * (bottom - top)

    # The two curves stand a little apart, so that an interval does not hide the other's.
    shift = 2 if marker == "o" else -2
    xs = [x + shift for x, _ in points]
    axes.plot(xs, [up(rate["count"] / rate["total"]) for _, rate in points], color=_INKS[ink], linewidth=2, marker=marker)
    for x, (_, rate) in zip(xs, points, strict=True):
        axes.plot([x, x], [up(rate["low"]), up(rate["high"])], color=_INKS[ink], linewidth=1)


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL_LIMIT else f"{label[: _LABEL_LIMIT - 1]}…"


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _text(axes: "Axes", x: float, y: float, text: str, *, color: str, size: float, ha: str = "left") -> None:
    axes.text(x, y, text, color=color, fontsize=size, ha=ha, va="center_baseline", parse_math=False)


@contextmanager
def _canvas(height: float) -> Iterator[tuple["Figure", "Axes"]]:
    """Open a picture whose unit is a pixel, counted from the upper left corner."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(missing_extra("the HTML report needs Matplotlib", "bench")) from error
    with rc_context({"svg.fonttype": "none", "font.family": "DejaVu Sans"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of glyphs that Matplotlib's font lacks and the page's fonts have
        figure = Figure(figsize=(_WIDTH / 72, height / 72))
        figure.patch.set_visible(False)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set(xlim=(0, _WIDTH), ylim=(height, 0), autoscale_on=False)
        yield figure, axes


_NO_METADATA: Mapping[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def _svg(figure: "Figure", name: str, title: str) -> str:
    """Write a picture as an element of an HTML page."""
    from lxml import etree
    from matplotlib import rc_context

    drawn = io.BytesIO()
    with rc_context({"svg.hashsalt": name}):  # ids are hashes; with the name in them no two pictures share one
        figure.savefig(drawn, format="svg", metadata=_NO_METADATA)
    root = etree.fromstring(drawn.getvalue(), etree.XMLParser(remove_comments=True, remove_blank_text=True, no_network=True))
    for element in list(root.iter()):
        element.tag = etree.QName(element).localname
        if element.tag in ("metadata", "style"):
            element.getparent().remove(element)
        else:
            _plain_attributes(element)
    etree.cleanup_namespaces(root)
    attributes = {"class": "plot", "viewBox": str(root.get("viewBox")), "role": "img", "aria-label": title}
    root.attrib.clear()
    for key, value in attributes.items():
        root.set(key, value)
    return str(etree.tostring(root, encoding="unicode"))


def _plain_attributes(element: Any) -> None:
    """Turn styles into attributes, colours into variables; drop the ids that nothing refers to, and the font."""
    styles = (part.partition(":") for part in element.attrib.pop("style", "").split(";") if part.strip())
    named = {key.strip(): value.strip() for key, _, value in styles}
    named.pop("font-family", None)
    for key, value in named.items():
        element.set(key, _VARIABLES.get(value, value))
    if link := element.attrib.pop("{http://www.w3.org/1999/xlink}href", None):
        element.set("href", link)
    if element.tag == "g":
        element.attrib.pop("id", None)
    if "rotate(-0" in element.get("transform", ""):
        del element.attrib["transform"]
