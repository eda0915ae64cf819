"""What the makers of models recommend: rows with a source, found by a model's name."""

import datetime
import re

import pytest

from xmlcall.models.recommended import RECOMMENDED, Recommended, in_words, recommended, recommended_values
from xmlcall.types.completion import SAMPLED


@pytest.mark.parametrize("row", RECOMMENDED, ids=lambda row: row.family)
def test_a_row_says_where_it_is_from_and_has_options_that_can_be_sent(row: Recommended) -> None:
    assert row.source.startswith("https://")
    assert datetime.date.fromisoformat(row.read) <= datetime.date.today()
    assert row.values
    assert {*row.values} <= {*SAMPLED}
    assert 0 < row.values["temperature"] <= 1
    re.compile(row.names)


NAMES: dict[str, list[str]] = {
    # a family of models, and names of its models; "" is none
    "Qwen2.5-Coder": ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"],
    "Qwen2.5-Coder-32B": ["Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-coder:32b"],
    "Qwen2.5": ["qwen2.5:7b-instruct", "qwen2.5", "Qwen2.5 7B Instruct"],
    "Qwen2.5-1.5B": ["Qwen2.5-1.5B-Instruct"],
    "": [
        *["Qwen2.5-0.5B-Instruct", "Qwen2.5-Math-7B-Instruct", "Qwen3-VL-8B-Instruct", "Qwen3.5-9B"],
        *["gemma-3n-E4B-it", "functiongemma-270m-it", "Mistral-Small-Instruct-2409"],
        *["Mistral-7B-Instruct-v0.3", "Devstral-Small-2505", "Hermes-3-Llama-3.1-8B", "phi4", "GLM-4.5V"],
        *["GLM-4-9B-0414", "granite-3.3-8b-instruct", "LFM2.5-1.2B-Instruct", "smollm2-135m", "", "\\"],
        "x" * 100_000 + "qwen3",
    ],
    "Qwen3, which thinks": ["qwen3:8b", "hf.co/unsloth/Qwen3-4B-Thinking-2507-GGUF:Q4_K_M"],
    "Qwen3-Instruct-2507": ["Qwen3-4B-Instruct-2507"],
    "Qwen3-Coder": ["Qwen3-Coder-30B-A3B-Instruct"],
    "Gemma 3": ["google_gemma-3-4b-it-Q4_K_M.gguf", "gemma3:4b"],
    "Gemma 4": ["gemma-4-E4B-it"],
    "Mistral Small 3": ["mistral-small3.2:24b", "Mistral-Small-3.1-24B-Instruct-2503"],
    "Magistral Small": ["Magistral-Small-2506"],
    "Llama 3": ["Meta-Llama-3.1-8B-Instruct", "llama3.2:3b"],
    "DeepSeek-R1 and its distillates": ["DeepSeek-R1-Distill-Qwen-7B"],
    "Phi-4-reasoning": ["microsoft_Phi-4-reasoning-plus-Q4_K_M.gguf"],
    "GLM-4.5 and 4.6": ["GLM-4.6"],
    "gpt-oss": ["gpt-oss:20b"],
    "LFM2": ["LFM2-1.2B"],
    "LFM2-VL": ["LFM2-VL-1.6B"],
    "LFM2.5-8B-A1B": ["LFM2.5-8B-A1B"],
    "SmolLM3": ["SmolLM3-3B"],
    "Kimi K2 Thinking": ["Kimi-K2-Thinking"],
    "Kimi K2": ["Kimi-K2-Instruct-0905"],
}


@pytest.mark.parametrize(("name", "family"), [(name, family) for family, names in NAMES.items() for name in names])
def test_a_model_is_found_by_its_name(name: str, family: str) -> None:
    row = recommended(name)
    assert (row.family if row else "") == family


def test_one_of_several_names_is_enough() -> None:
    assert recommended_values("mine", "Qwen2.5 Coder 7B Instruct") == recommended_values("qwen2.5-coder:7b")
    assert recommended_values("mine") == {}


def test_a_model_that_may_think_has_its_values_only_where_it_does() -> None:
    assert recommended("qwen3.5:27b") is None
    row = recommended("qwen3.5:27b", opens_thought=True)
    assert row is not None
    expected = "temperature 1, top_p 0.95, top_k 20, min_p 0, presence_penalty 1.5, repeat_penalty 1"
    assert in_words(row.values) == expected
