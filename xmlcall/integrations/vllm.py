"""xmlcall's parser for vLLM: `vllm serve MODEL --enable-auto-tool-choice --tool-call-parser xmlcall`.

vLLM runs `register` in each of its processes, if the installed xmlcall declares it as an entry point of `vllm.general_plugins`.
The parser itself (`vllm_parser`) is loaded where it is asked for: workers never need it.
"""

__all__ = ["NAME", "register"]

NAME = "xmlcall"
"""What `--tool-call-parser` takes."""

if __name__ == "vllm":  # loaded as the file of `--tool-parser-plugin`, and now in the place of vLLM itself
    import sys

    del sys.modules["vllm"]
    raise ImportError("expected --tool-parser-plugin xmlcall.integrations.vllm_parser, or that module's file; got vllm.py")


def register() -> None:
    """Make the parser known to vLLM; as often as one likes."""
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager  # type: ignore[import-not-found]

    ToolParserManager.register_lazy_module(NAME, "xmlcall.integrations.vllm_parser", "XmlcallToolParser")
