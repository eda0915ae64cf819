"""`xmlcall template`: a chat template that offers tools, for servers that render their own."""

import argparse
from pathlib import Path

from ..prompting.chat_template import CHATML, chat_template, read_base, supported
from ..prompting.format import PromptFormat
from .exits import OK
from .options import add_asking_options

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = """Write a chat template that offers tools, as `xmlcall prompt` shows them: for vLLM, SGLang and others that render
templates themselves, and models whose own template knows no tools."""
EPILOG = f"""examples:
  xmlcall template > tools.jinja
  xmlcall template --ask lang=zh --ask dialect=hermes > tools.jinja
  xmlcall template --base the_models_own.jinja > tools.jinja
  vllm serve MODEL --chat-template tools.jinja --enable-auto-tool-choice --tool-call-parser xmlcall

A template can write these formats: {", ".join(supported())}.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_asking_options(parser, ("dialect", "lang", "parallel"))
    parser.add_argument(
        "--reminder",
        action="store_true",
        help="end each user message with a reminder of the tools, which small models need",
    )
    parser.add_argument(
        "--base",
        default="chatml",
        metavar="chatml|FILE",
        help="how to wrap messages: as ChatML, or with a Jinja file such as the model's own template, which gets plain messages "
        "and no tools (default: %(default)s)",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    base = CHATML if options.base == "chatml" else read_base(Path(options.base))
    print(chat_template(PromptFormat(**options.ask), base, with_reminder=options.reminder), end="")
    return OK
