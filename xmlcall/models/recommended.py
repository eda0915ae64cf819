"""The sampling that the makers of a model recommend: temperature and the like, with the page that says so.

A row is here only if a source states its values. The pages were read on the date of the row, mostly in copies and quotations of
them. What a page does not state is left to the server. The makers of Phi-4, Granite 3.3, GLM-4-0414 and OLMo 2 recommend nothing.

A name is matched from its beginning, so that a model that others trained further under a name of their own has no row.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_CARD: Final = "https://huggingface.co/"
_LONGEST: Final = 200  # characters of a name; a server chooses it
_QWEN: Final = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
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


RECOMMENDED: Final = (
    Recommended(
        family="Qwen2.5-Coder-32B",
        names=r"qwen-?2\.5-coder[-:]32b",
        values={**_QWEN, "repeat_penalty": 1.05},
        source=f"{_CARD}Qwen/Qwen2.5-Coder-32B-Instruct generation_config.json",
    ),
    Recommended(
        family="Qwen2.5-Coder",
        names=r"qwen-?2\.5-coder",
        values={**_QWEN, "repeat_penalty": 1.1},
        source=f"{_CARD}Qwen/Qwen2.5-Coder-7B-Instruct generation_config.json",
    ),
    Recommended(
        family="Qwen2.5-1.5B",
        names=r"qwen-?2\.5[-:]1\.5b",
        values={**_QWEN, "repeat_penalty": 1.1},
        source=f"{_CARD}Qwen/Qwen2.5-1.5B-Instruct generation_config.json",
    ),
    Recommended(
        family="Qwen2.5",
        names=r"qwen-?2\.5(?:[-:](?:3|7|14|32|72)b|$|:latest|-instruct)",
        values={**_QWEN, "repeat_penalty": 1.05},
        source=f"{_CARD}Qwen/Qwen2.5-7B-Instruct generation_config.json",
    ),
    Recommended(
        family="QwQ",
        names=r"qwq(?![a-z])",
        values=_THOUGHT,
        source=f"{_CARD}Qwen/QwQ-32B usage guidelines",
    ),
    Recommended(
        family="Qwen3-Coder",
        names=r"qwen-?3-coder(?!-next)",
        values={**_QWEN, "repeat_penalty": 1.05},
        source=f"{_CARD}Qwen/Qwen3-Coder-30B-A3B-Instruct generation_config.json",
    ),
    Recommended(
        family="Qwen3-Instruct-2507", names=r"qwen-?3[-:]\d.*instruct", values={**_QWEN, "min_p": 0.0}, source=_QWEN_DOCS
    ),
    Recommended(
        family="Qwen3, which thinks",
        names=r"qwen-?3(?:[-:]\d|$|:latest)",
        values={**_THOUGHT, "top_k": 20, "min_p": 0.0},
        source=_QWEN_DOCS,
    ),
    Recommended(
        family="Qwen3.5, thinking",
        names=r"qwen-?3\.5",
        values={"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "presence_penalty": 1.5, "repeat_penalty": 1.0},
        source=f"{_CARD}Qwen/Qwen3.5-27B best practices, general tasks",
        opens_thought=True,
    ),
    Recommended(
        family="Gemma 3",
        names=r"gemma-?3(?!n)",
        values={"temperature": 1.0, "top_p": 0.95, "top_k": 64},
        source=f"{_CARD}google/gemma-3-27b-it generation_config.json, whose readers take temperature 1",
    ),
    Recommended(
        family="Gemma 4",
        names=r"gemma-?4",
        values={"temperature": 1.0, "top_p": 0.95, "top_k": 64},
        source=f"{_CARD}google/gemma-4-E4B-it generation_config.json",
    ),
    Recommended(
        family="Mistral Small 3",
        names=r"mistral-small(?:-?3|[-:]24b|.*250[136])",
        values={"temperature": 0.15},
        source=f"{_CARD}mistralai/Mistral-Small-3.2-24B-Instruct-2506",
    ),
    Recommended(
        family="Magistral Small",
        names=r"magistral(?:-small|[-:]24b|$|:latest)",
        values={"temperature": 0.7, "top_p": 0.95},
        source=f"{_CARD}mistralai/Magistral-Small-2506",
    ),
    Recommended(
        family="Llama 3",
        names=r"(?:meta-)?llama-?3",
        values={"temperature": 0.6, "top_p": 0.9},
        source=f"{_CARD}meta-llama/Llama-3.1-8B-Instruct generation_config.json",
    ),
    Recommended(
        family="Llama 4",
        names=r"(?:meta-)?llama-?4",
        values={"temperature": 0.6, "top_p": 0.9},
        source=f"{_CARD}meta-llama/Llama-4-Scout-17B-16E-Instruct generation_config.json",
    ),
    Recommended(
        family="DeepSeek-R1 and its distillates",
        names=r"deepseek-r1",
        values=_THOUGHT,
        source="https://github.com/deepseek-ai/DeepSeek-R1 usage recommendations, evaluation",
    ),
    Recommended(
        family="Phi-4-reasoning",
        names=r"phi-?4-reasoning",
        values={"temperature": 0.8, "top_p": 0.95, "top_k": 50},
        source=f"{_CARD}microsoft/Phi-4-reasoning",
    ),
    Recommended(
        family="GLM-Z1",
        names=r"glm-?z1",
        values={**_THOUGHT, "top_k": 40},
        source=f"{_CARD}zai-org/GLM-Z1-32B-0414",
    ),
    Recommended(
        family="GLM-4.5 and 4.6",
        names=r"glm-?4\.[56](?!v)",
        values={"temperature": 1.0},
        source=f"{_CARD}zai-org/GLM-4.6 recommended evaluation parameters",
    ),
    Recommended(
        family="gpt-oss",
        names=r"gpt-?oss",
        values={"temperature": 1.0, "top_p": 1.0},
        source="https://github.com/openai/gpt-oss recommended sampling parameters",
    ),
    Recommended(
        family="LFM2.5-8B-A1B",
        names=r"lfm-?2\.5-8b",
        values={"temperature": 0.2, "top_k": 80, "repeat_penalty": 1.05},
        source=f"{_CARD}LiquidAI/LFM2.5-8B-A1B",
    ),
    Recommended(
        family="LFM2-VL",
        names=r"lfm-?2-vl",
        values={"temperature": 0.1, "min_p": 0.15, "repeat_penalty": 1.05},
        source=f"{_CARD}LiquidAI/LFM2-VL-1.6B",
    ),
    Recommended(
        family="LFM2",
        names=r"lfm-?2(?![.\d])",
        values={"temperature": 0.3, "min_p": 0.15, "repeat_penalty": 1.05},
        source=f"{_CARD}LiquidAI/LFM2-1.2B",
    ),
    Recommended(family="SmolLM3", names=r"smollm-?3", values=_THOUGHT, source=f"{_CARD}HuggingFaceTB/SmolLM3-3B"),
    Recommended(
        family="Kimi K2 Thinking",
        names=r"kimi-k2-thinking",
        values={"temperature": 1.0},
        source=f"{_CARD}moonshotai/Kimi-K2-Thinking",
    ),
    Recommended(
        family="Kimi K2", names=r"kimi-k2(?!\.)", values={"temperature": 0.6}, source=f"{_CARD}moonshotai/Kimi-K2-Instruct"
    ),
    Recommended(
        family="MiniMax-M2",
        names=r"minimax-m2(?!\.)",
        values={"temperature": 1.0, "top_p": 0.95, "top_k": 40},
        source=f"{_CARD}MiniMaxAI/MiniMax-M2 generation_config.json",
    ),
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
