"""Writes the report of runs as one self-contained HTML file: it needs no network, server or library.

Text from models, servers and data sets may be hostile. Three measures keep it plain text. The template escapes every value.
Characters without a glyph are written as escapes, so they cannot hide or reorder the text around them. And the page's policy
admits only the template's own script and style, by their hashes. The script reads all data from the page's elements; no value is
ever inserted into it.
"""

import base64
import hashlib
import io
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ..errors import REPAIRS, UsageError
from ..installed import missing_extra
from ..types.calls import Message
from .case import Case
from .failures import CAUSES, arguments_of, call_text, causes_of, difference, expected_of, to_json
from .funnel import Verdict, rates
from .report import SHOWN, compared
from .store import RecordedRun
from .ways import Asked, prompt_hash, way_of

Shown = tuple[RecordedRun, Mapping[str, Sequence[Verdict]], Mapping[str, Any]]
"""A run, its verdicts by way, and its report."""

PROMPT_LIMIT = 8000  # characters of a message; the rest is counted

# Control characters except tab and line feed, marks that reorder text or take no room (Unicode UAX 9), lone surrogates,
# and what XML cannot hold.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufffe\uffff]"
)

_BARS = ("failures", "causes", "repairs")
_OTHER_PROMPT = "the run was asked with the prompts of another version; those below are of this one"


def page(runs: Sequence[Shown], *, live: str = "") -> str:
    """Render the report of runs as a page, with links to `xmlcall ui` at `live`, which shows runs span by span; "" for none."""
    template, texts = _environment().get_template("page.html.j2"), _Texts()
    columns = _columns(runs)
    return template.render(
        style_hash=_hash(template, "style"),
        script_hash=_hash(template, "script"),
        runs=[_run_facts(place, shown, columns) for place, shown in enumerate(runs)],
        columns=columns,
        pairs=_pairs(columns),
        overview=Markup(comparison([(_visible(column["label"]), column["metrics"]) for column in columns], name="comparison")),
        growths=_growths(columns),
        metrics=[metric for metric in SHOWN if any(metric in column["metrics"] for column in columns)],
        categories=list(dict.fromkeys(category for column in columns for category in column["report"]["categories"])),
        rows=[row for column in columns for row in _rows(column, texts)],
        texts=texts,
        most={kind: max((max(column["bars"][kind].values(), default=1) for column in columns), default=1) for kind in _BARS},
        codes={kind: sorted({code for column in columns for code in column["bars"][kind]}) for kind in _BARS},
        causes=CAUSES,
        repairs=REPAIRS,
        live=live,
        place_of=_place_of,
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        words=lambda name: name.replace("_", " "),
        percent=lambda rate: f"{100 * rate['count'] / rate['total']:.1f}",
        bounds=lambda rate: f"{100 * rate['low']:.0f}–{100 * rate['high']:.0f}",
        number=lambda value: f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
        json=to_json,
    )
    return environment


def _hash(template: Template, block: str) -> str:
    """Return the hash with which the page's policy admits a block of the template."""
    text = "".join(template.blocks[block](template.new_context()))
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- text --------------------------------------------------------------------------------------------------------------


def _visible(value: Any) -> Any:
    """Escape characters without a glyph; markup and values that are not text stay unchanged."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", value)


class _Texts:
    """The texts of prompts, each paragraph kept once: rules and tools repeat from case to case."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def parts(self, text: str) -> str:
        """Return the numbers of a text's paragraphs; joined in this order, they are the text."""
        paragraphs = re.split(r"(?<=\n\n)(?!\n)", text)
        return " ".join(str(self.numbers.setdefault(each, len(self.numbers))) for each in paragraphs)


# -- runs and ways -----------------------------------------------------------------------------------------------------


def _columns(runs: Sequence[Shown]) -> list[dict[str, Any]]:
    """Return every way of every run, in the order of all tables."""
    names = _run_names([run.about for run, _, _ in runs])
    found: list[dict[str, Any]] = []
    for place, (name, (run, verdicts, report)) in enumerate(zip(names, runs, strict=True)):
        for way, of_way in report["ways"].items():
            label = f"{name} · {way}" if name else way
            own = {"number": len(found), "place": place, "run": run, "run_name": name, "way": way, "label": label}
            figures = {"report": of_way, "metrics": of_way["metrics"], "bars": _bars(of_way)}
            found.append({**own, "verdicts": verdicts[way], **figures})
    return found


def _bars(report: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    """Return what is drawn as bars: how many replies have a failure, a main cause, a repair."""
    causes = {cause: counts["main"] for cause, counts in report["causes"].items() if counts["main"]}
    most_first = dict(sorted(causes.items(), key=lambda each: -each[1]))
    return {"failures": report["failures"], "causes": most_first, "repairs": report["repairs"]}


def _run_names(abouts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name runs by their differences; a single run needs no name."""
    facts = [[str(about.get("model")), str(about.get("suite")), _date(about)] for about in abouts]
    differing = [place for place in range(3) if len({fact[place] for fact in facts}) > 1]
    names = [" · ".join(fact[place] for place in differing) for fact in facts]
    alike = len(set(names)) < len(names)
    return [f"run {number} · {name}".removesuffix(" · ") if alike else name for number, name in enumerate(names, 1)]


def _date(about: Mapping[str, Any]) -> str:
    return str(about.get("started", ""))[:10]


def _place_of(run: RecordedRun, *parts: str, **filters: str) -> str:
    """Return the address at which `xmlcall ui` lists the replies of a run, or shows one (`parts`: its case and way)."""
    path = "/".join(quote(part, safe="") for part in (run.folder.resolve().name, *parts))
    return f"#/recorded/run/{path}" + (f"?{urlencode(filters)}" if filters else "")


def _run_facts(place: int, shown: Shown, columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is shown above the numbers of a run."""
    run, _, report = shown
    own = [column for column in columns if column["place"] == place]
    ways = [column["way"] for column in own]
    # Runs of earlier versions did not record their prompts, so there is nothing to compare.
    prompts = {way: prompt_hash(way_of(way), run.settings) for way in ways} if "prompts" in run.about else {}
    changed = [way for way in prompts if run.about["prompts"].get(way, prompts[way]) != prompts[way]]
    return {
        "name": own[0]["run_name"] if own else "",
        "title": f"{run.about.get('model')} on {run.about.get('suite')}",
        "date": _date(run.about),
        "about": run.about,
        "cases": run.cases,
        "folder": shlex.quote(str(run.folder)),
        "ways": [(column, _funnel(column)) for column in own],
        "warnings": [
            *(warning.partition(": ")[::2] for warning in report["warnings"]),  # pairs of a way and its warning
            *((way, _OTHER_PROMPT) for way in changed),
        ],
    }


def _funnel(column: Mapping[str, Any]) -> str:
    """Draw the stages over the cases that need a call; `completed` alone counts in the other cases, too."""
    found = rates(verdict for verdict in column["verdicts"] if verdict.case.expects in ("calls", "any_call"))
    stages = {metric: {"count": count, "total": total} for metric, (count, total) in found.items() if total}
    return Markup(funnel(stages, name=f"funnel-{column['number']}")) if stages else ""


def _pairs(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the first way with each other one on the cases that both answered."""
    found = [(column, compared(columns[0]["verdicts"], column["verdicts"])) for column in columns[1:]]
    return [
        {"label": column["label"], "cases": each["cases"], **each["metrics"]["task_correct"]}
        for column, each in found
        if each["cases"]
    ]


def _growths(columns: Sequence[Mapping[str, Any]]) -> Sequence[tuple[str, str]]:
    """Draw for each way how its rates change with the number of tools offered, which is the category of suite `catalog`."""
    drawn = []
    for column in columns:
        if column["run"].about.get("suite") == "catalog":
            sizes = {_visible(category): metrics for category, metrics in column["report"]["categories"].items()}
            drawn.append((column["label"], Markup(growth(sizes, name=f"growth-{column['number']}"))))
    return drawn


# -- cases -------------------------------------------------------------------------------------------------------------


# The fields that a saved round omits if they are empty.
_ROUND: Mapping[str, Any] = {"text": "", "reasoning": "", "calls": (), "finish_reason": "stop", "seconds": 0.0, "usage": {}}


def _rows(column: Mapping[str, Any], texts: _Texts) -> Iterable[dict[str, Any]]:
    for verdict in column["verdicts"]:
        case, seconds = verdict.case, [kept.get("seconds", 0.0) for kept in verdict.row["rounds"]]
        shown = _task(verdict.row["outcome"], case) if "outcome" in verdict.row else _reply(verdict, column)
        yield {
            "column": column,
            "case": case,
            "question": case.messages[-1]["content"] if case.messages else "",
            "verdict": verdict,
            "causes": causes_of(verdict),
            "repairs": list(dict.fromkeys(verdict.repairs)),
            "seconds": f"{sum(seconds):.2f}",
            **shown,
            "prompt": [
                {
                    "role": message.role,
                    "length": len(message.content),
                    "parts": texts.parts(message.content[:PROMPT_LIMIT]),
                    "over": max(len(message.content) - PROMPT_LIMIT, 0),
                }
                for message in shown["prompt"]
            ],
        }


def _reply(verdict: Verdict, column: Mapping[str, Any]) -> dict[str, Any]:
    case, calls, rounds = verdict.case, verdict.reply.calls, verdict.row["rounds"]
    got = [(call.name, arguments_of(call)) for call in calls]
    return {
        "prompt": Asked(way_of(column["way"]), case, column["run"].settings).sent(rounds),
        "rounds": [{**_ROUND, "title": f"Raw reply {number}", **kept} for number, kept in enumerate(rounds, 1)],
        "calls": [(call_text(*each), getattr(call, "issues", ())) for each, call in zip(got, calls, strict=True)],
        "expected": expected_of(case),
        "diff": [] if verdict.is_right else difference(case, got),
    }


def _task(outcome: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """Return what is shown of a task of several turns, or of one turn of a conversation."""
    first = len(case.messages) if case.expects == "talk" else 1
    turns = list(enumerate(outcome["turns"], first))
    replies = [
        (f"Raw reply {place}, turn {turn}", text) for turn, played in turns for place, text in enumerate(played["replies"], 1)
    ]
    calls = [call for _, played in turns for call in played["calls"]]
    return {
        "prompt": [Message(role=message["role"], content=message["content"]) for message in case.messages],
        "rounds": [{**_ROUND, "title": title, "text": text, "finish_reason": ""} for title, text in replies],
        "calls": [(_task_call(call), call.get("issues", ())) for call in calls],
        "expected": expected_of(case) if case.expects == "talk" else _expected_task(outcome),
        "diff": [],
    }


def _expected_task(outcome: Mapping[str, Any]) -> dict[str, str]:
    failed = "" if outcome["valid"] else f" The first turn that is wrong: {outcome['failed_turn'] + 1}."
    return {"text": "", "note": f"The state and the results that the expected calls of each turn lead to.{failed}"}


def _task_call(call: Mapping[str, Any]) -> str:
    answer = call.get("denied") or call.get("result", "")
    return call_text(call["name"], call.get("arguments", {})) + (f"\n→ {answer}" if answer else "")


# -- the pictures: the funnel of a way, ways side by side, and growth with the number of tools -------------------------
# Matplotlib draws the pictures, and its output is then adapted to an HTML page. Colours become variables of the page, so a
# picture follows its theme. Text stays text in the page's own font. Style attributes, which the page's policy forbids, become
# separate attributes. The same rates always give the same output.
#
# A picture is as wide as a phone's screen, and one unit is one pixel there: its text can be read without zooming.


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

# The stages as they are drawn: a side branch is indented and shows how much the tolerances contribute.
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

    # The two curves are drawn slightly apart, so that their intervals do not hide each other.
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
        warnings.simplefilter("ignore")  # warnings about glyphs that Matplotlib's font lacks and the page's fonts have
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
