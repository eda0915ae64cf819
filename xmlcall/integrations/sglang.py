"""xmlcall's parser for SGLang: `sglang serve --model-path MODEL --tool-call-parser xmlcall`.

SGLang runs `register` in each of its processes, because the installed xmlcall declares it as an entry point of
`sglang.srt.plugins`. Where SGLang does not find it (a checkout on the path, another plugin list in `SGLANG_PLUGINS`), this module
can start SGLang itself:

    python -m xmlcall.integrations.sglang --model-path MODEL --tool-call-parser xmlcall
"""

import runpy
import sys
from collections.abc import Sequence

NAME = "xmlcall"
"""The value for `--tool-call-parser`."""


def register() -> None:
    """Register the parser with SGLang, whose command line then offers it; repeated calls have no further effect."""
    from sglang.srt.function_call.function_call_parser import FunctionCallParser  # type: ignore[import-not-found]

    from .sglang_detector import XmlcallDetector

    FunctionCallParser.ToolCallParserEnum[NAME] = XmlcallDetector


def main(arguments: Sequence[str]) -> None:
    """Run SGLang's server in this process, with the parser; the arguments are those of `sglang.launch_server`."""
    register()
    sys.argv = ["sglang.launch_server", *arguments]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
