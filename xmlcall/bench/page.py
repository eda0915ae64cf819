"""Writes the report of runs as one self-contained HTML file: it needs no network, server or library.

Text from models, servers and data sets may be hostile. Three measures keep it plain text. The template escapes every value.
Characters without a glyph are written as escapes, so they cannot hide or reorder the text around them. And the page's policy
admits only the template's own script and style, by their hashes. The script reads all data from the page's elements; no value is
ever inserted into it.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ..errors import REPAIRS
from ..turn_records.record import CallRecord
from .as_turns import turn_of_row
from .failures import CAUSES, call_text, causes_of, expected_of, to_json
from .funnel import STAGES, Verdict, rates
from .report import SHOWN, compared
from .store import RecordedRun
from .ways import prompt_hash, way_of

Shown = tuple[RecordedRun, Mapping[str, Sequence[Verdict]], Mapping[str, Any]]  # a run, its verdicts by way, and its report

PROMPT_LIMIT = 8000  # characters of a message; the rest is counted

# Control characters except tab and line feed, marks that reorder text or take no room (Unicode UAX 9), lone surrogates,
# and what XML cannot hold.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufffe\uffff]"
)

_BARS = ("failures", "causes", "repairs")
_BRANCHES: Final = ("parsed_as_written", "valid_as_written")  # side branches, which show how much the tolerances contribute
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
        overview=[(column["label"], column["metrics"]) for column in columns],
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
    run, _, report = shown
    own = [column for column in columns if column["place"] == place]
    ways = [column["way"] for column in own]
    # Runs of earlier versions did not record their prompts, so there is nothing to compare.
    kept = run.about.get("prompts", {})
    changed = [way for way in ways if way in kept and kept[way] != prompt_hash(way_of(way), run.settings)]
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


def _funnel(column: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stages over the cases that need a call; `completed` alone counts in the other cases, too."""
    found = rates(verdict for verdict in column["verdicts"] if verdict.case.expects in ("calls", "any_call"))
    stages: list[dict[str, Any]] = []
    before = 0
    for name in STAGES:
        count, total = found[name]
        if total:
            is_branch = name in _BRANCHES
            stages.append({"name": name, "is_branch": is_branch, "count": count, "total": total, "lost": before - count})
            before = before if is_branch else count
    return stages


def _pairs(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the first way with each other one on the cases that both answered."""
    found = [(column, compared(columns[0]["verdicts"], column["verdicts"])) for column in columns[1:]]
    return [
        {"label": column["label"], "cases": each["cases"], **each["metrics"]["task_correct"]}
        for column, each in found
        if each["cases"]
    ]


def _growths(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return each way's rates by the number of tools offered, which is the category of suite `catalog`."""
    drawn = [column for column in columns if column["run"].about.get("suite") == "catalog"]
    return [(column["label"], sorted(column["report"]["categories"].items(), key=_size)) for column in drawn]


def _size(category: tuple[str, Any]) -> tuple[int, str]:
    found = re.search(r"\d+", category[0])
    return int(found[0]) if found else 0, category[0]


# -- cases -------------------------------------------------------------------------------------------------------------


def _rows(column: Mapping[str, Any], texts: _Texts) -> Iterable[dict[str, Any]]:
    for verdict in column["verdicts"]:
        case, seconds = verdict.case, [kept.get("seconds", 0.0) for kept in verdict.row["rounds"]]
        replies = turn_of_row(column["run"], case, verdict.row, column["way"]).replies
        yield {
            "column": column,
            "case": case,
            "question": case.messages[-1]["content"] if case.messages else "",
            "verdict": verdict,
            "causes": causes_of(verdict),
            "repairs": list(dict.fromkeys(verdict.repairs)),
            "seconds": f"{sum(seconds):.2f}",
            "expected": expected_of(case),
            "replies": replies,
            "calls": [(_call_text(call), call.issues) for reply in replies for call in reply.calls],
            "prompt": [
                {
                    "role": message.role,
                    "length": len(message.content),
                    "parts": texts.parts(message.content[:PROMPT_LIMIT]),
                    "over": max(len(message.content) - PROMPT_LIMIT, 0),
                }
                for message in (replies[0].prompt if replies else ())
            ],
        }


def _call_text(call: CallRecord) -> str:
    answer = call.reason or call.result
    written = call.text or call.name if call.arguments is None else call_text(call.name, call.arguments)
    return written + (f"\n→ {answer}" if answer else "")
