"""The sampling that the makers of a model recommend: temperature and the like, with the page that says so.

A row is here only if a source states its values. The pages were read on the date of the row, mostly in copies and quotations of
them. What a page does not state is left to the server. The makers of Phi-4, Granite 3.3, GLM-4-0414 and OLMo 2 recommend nothing.

A name is matched from its beginning, so that a model that others trained further under a name of their own has no row.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

_LONGEST: Final = 200  # characters of a name; a server chooses it
_QWEN: Final = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
_QWEN_35: Final = {"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "presence_penalty": 1.5, "repeat_penalty": 1.0}
_THOUGHT: Final = {"temperature": 0.6, "top_p": 0.95}
_QWEN_DOCS: Final = "https://qwen.readthedocs.io/en/latest/getting_started/quickstart.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What the makers of a family of models recommend."""

    family: str
    names: str  # a pattern for the beginning of a model's name, in lower case, with `-` for blanks and `_`
    values: Mapping[str, float]  # sampling options by their common names (`types.completion.SAMPLED`)
    source: str  # the page that states them
    read: str = "2026-11-27"  # the date on which it was read
    opens_thought: bool = False  # whether this holds only if the chat template opens a thought


def _row(family: str, names: str, source: str, /, **values: float) -> Recommended:
    """Make a row; a source without a scheme is a model's card."""
    page = source if source.startswith("https://") else f"https://huggingface.co/{source}"
    return Recommended(family=family, names=names, values=values, source=page)


RECOMMENDED: Final = (
    _row(
        "Qwen2.5-Coder-32B",
        r"qwen-?2\.5-coder[-:]32b",
        "Qwen/Qwen2.5-Coder-32B-Instruct generation_config.json",
        **_QWEN,
        repeat_penalty=1.05,
    ),
    _row(
        "Qwen2.5-Coder", r"qwen-?2\.5-coder", "Qwen/Qwen2.5-Coder-7B-Instruct generation_config.json", **_QWEN, repeat_penalty=1.1
    ),
    _row(
        "Qwen2.5-1.5B", r"qwen-?2\.5[-:]1\.5b", "Qwen/Qwen2.5-1.5B-Instruct generation_config.json", **_QWEN, repeat_penalty=1.1
    ),
    _row(
        "Qwen2.5",
        r"qwen-?2\.5(?:[-:](?:3|7|14|32|72)b|$|:latest|-instruct)",
        "Qwen/Qwen2.5-7B-Instruct generation_config.json",
        **_QWEN,
        repeat_penalty=1.05,
    ),
    _row("QwQ", r"qwq(?![a-z])", "Qwen/QwQ-32B usage guidelines", **_THOUGHT),
    _row(
        "Qwen3-Coder",
        r"qwen-?3-coder(?!-next)",
        "Qwen/Qwen3-Coder-30B-A3B-Instruct generation_config.json",
        **_QWEN,
        repeat_penalty=1.05,
    ),
    _row("Qwen3-Instruct-2507", r"qwen-?3[-:]\d.*instruct", _QWEN_DOCS, **_QWEN, min_p=0.0),
    _row("Qwen3, which thinks", r"qwen-?3(?:[-:]\d|$|:latest)", _QWEN_DOCS, **_THOUGHT, top_k=20, min_p=0.0),
    replace(
        _row("Qwen3.5, thinking", r"qwen-?3\.5", "Qwen/Qwen3.5-27B best practices, general tasks", **_QWEN_35),
        opens_thought=True,
    ),
    _row(
        "Gemma 3",
        r"gemma-?3(?!n)",
        "google/gemma-3-27b-it generation_config.json, whose readers take temperature 1",
        temperature=1.0,
        top_p=0.95,
        top_k=64,
    ),
    _row("Gemma 4", r"gemma-?4", "google/gemma-4-E4B-it generation_config.json", temperature=1.0, top_p=0.95, top_k=64),
    _row(
        "Mistral Small 3",
        r"mistral-small(?:-?3|[-:]24b|.*250[136])",
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        temperature=0.15,
    ),
    _row(
        "Magistral Small", r"magistral(?:-small|[-:]24b|$|:latest)", "mistralai/Magistral-Small-2506", temperature=0.7, top_p=0.95
    ),
    _row("Llama 3", r"(?:meta-)?llama-?3", "meta-llama/Llama-3.1-8B-Instruct generation_config.json", temperature=0.6, top_p=0.9),
    _row(
        "Llama 4",
        r"(?:meta-)?llama-?4",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct generation_config.json",
        temperature=0.6,
        top_p=0.9,
    ),
    _row(
        "DeepSeek-R1 and its distillates",
        r"deepseek-r1",
        "https://github.com/deepseek-ai/DeepSeek-R1 usage recommendations, evaluation",
        **_THOUGHT,
    ),
    _row("Phi-4-reasoning", r"phi-?4-reasoning", "microsoft/Phi-4-reasoning", temperature=0.8, top_p=0.95, top_k=50),
    _row("GLM-Z1", r"glm-?z1", "zai-org/GLM-Z1-32B-0414", **_THOUGHT, top_k=40),
    _row("GLM-4.5 and 4.6", r"glm-?4\.[56](?!v)", "zai-org/GLM-4.6 recommended evaluation parameters", temperature=1.0),
    _row("gpt-oss", r"gpt-?oss", "https://github.com/openai/gpt-oss recommended sampling parameters", temperature=1.0, top_p=1.0),
    _row("LFM2.5-8B-A1B", r"lfm-?2\.5-8b", "LiquidAI/LFM2.5-8B-A1B", temperature=0.2, top_k=80, repeat_penalty=1.05),
    _row("LFM2-VL", r"lfm-?2-vl", "LiquidAI/LFM2-VL-1.6B", temperature=0.1, min_p=0.15, repeat_penalty=1.05),
    _row("LFM2", r"lfm-?2(?![.\d])", "LiquidAI/LFM2-1.2B", temperature=0.3, min_p=0.15, repeat_penalty=1.05),
    _row("SmolLM3", r"smollm-?3", "HuggingFaceTB/SmolLM3-3B", **_THOUGHT),
    _row("Kimi K2 Thinking", r"kimi-k2-thinking", "moonshotai/Kimi-K2-Thinking", temperature=1.0),
    _row("Kimi K2", r"kimi-k2(?!\.)", "moonshotai/Kimi-K2-Instruct", temperature=0.6),
    _row("MiniMax-M2", r"minimax-m2(?!\.)", "MiniMaxAI/MiniMax-M2 generation_config.json", temperature=1.0, top_p=0.95, top_k=40),
)
"""The first row that fits counts."""


def recommended(*names: str, opens_thought: bool = False) -> Recommended | None:
    """Return what the makers of a model recommend; None if that is unknown.

    Args:
        names: what the model is called: by its server, or by its file.
        opens_thought: whether the chat template ends the prompt in an open thought.
    """
    called = list(_forms(names))
    rows = (row for row in RECOMMENDED if opens_thought or not row.opens_thought)
    return next((row for row in rows if any(re.match(row.names, name) for name in called)), None)


def recommended_values(*names: str, opens_thought: bool = False) -> dict[str, float]:
    """Return the sampling options that the makers of a model recommend; empty if unknown."""
    row = recommended(*names, opens_thought=opens_thought)
    return dict(row.values) if row else {}


def _forms(names: Iterable[str]) -> Iterator[str]:
    """Yield the names to compare: without folders, and also without a maker in front, as in `maker_Model`."""
    for name in names:
        last = re.split(r"[/\\]", name[-_LONGEST:].strip().lower())[-1]
        for form in (last, last.partition("_")[2]):
            if form:
                yield re.sub(r"[\s_]+", "-", form)


def in_words(values: Mapping[str, float]) -> str:
    """Write sampling options: `temperature 0.7, top_p 0.8`."""
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
