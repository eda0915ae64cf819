"""xmlcall's parser for vLLM: `vllm serve MODEL --enable-auto-tool-choice --tool-call-parser xmlcall`.

vLLM runs `register` in each of its processes, because the installed xmlcall declares it as an entry point of
`vllm.general_plugins`. The parser itself (`vllm_parser`) is loaded only where it is used, because workers never need it.
"""

NAME = "xmlcall"
"""The value for `--tool-call-parser`."""

if __name__ == "vllm":  # loaded as the file of `--tool-parser-plugin`, so it has replaced vLLM itself
    import sys

    del sys.modules["vllm"]
    raise ImportError("expected --tool-parser-plugin xmlcall.integrations.vllm_parser, or that module's file; got vllm.py")


def register() -> None:
    """Register the parser with vLLM; repeated calls have no further effect."""
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager  # type: ignore[import-not-found]

    ToolParserManager.register_lazy_module(NAME, "xmlcall.integrations.vllm_parser", "XmlcallToolParser")
