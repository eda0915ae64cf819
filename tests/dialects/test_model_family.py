"""Which wire format a model was trained on, from its chat template and its name."""

import pytest

from xmlcall.dialects import DIALECTS
from xmlcall.dialects.model_family import _NAMES, family_of

# What templates of these families hold, in extracts.
TEMPLATES = {
    "hermes": '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    "qwen": "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>",
    "glm": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    "llama3": "{{- '<|python_tag|>' + tool_call.name }}",
    "mistral_list": "{{- '[TOOL_CALLS] [' }}",
    "mistral": "{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}",
    "gemma4": """{{- '<|tool_call>call:' + function['name'] + '{' }}{{ '<|"|>' + value + '<|"|>' }}""",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.{{ name }}:0<|tool_call_argument_begin|>",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>",
    "": "{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}",
}


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_template_tells(family: str) -> None:
    assert family_of(TEMPLATES[family], "some-model") == family


def test_the_template_goes_before_the_name() -> None:
    assert family_of(TEMPLATES["llama3"], "qwen2.5") == "llama3"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "hermes"),
        ("Qwen3-Coder-30B-A3B", "qwen"),
        ("meta-llama/Llama-3.2-1B-Instruct", "pythonic"),
        ("llama4:scout", "llama4"),
        ("ministral-8b", "mistral"),
        ("magistral-small", "mistral"),
        ("gemma3:4b", "tool_code"),
        ("gemma-4-e4b", "gemma4"),
        ("functiongemma-270m", "functiongemma"),
        ("gpt-oss:20b", "harmony"),
        ("SmolLM2-135M-Instruct", ""),
    ],
)
def test_without_a_template_the_name_tells(name: str, family: str) -> None:
    assert family_of("", name) == family


def test_every_family_is_a_format() -> None:
    assert {*_NAMES.values()} <= DIALECTS.keys()
