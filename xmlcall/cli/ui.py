"""`xmlcall ui`: the page as a program, with a chat over the configured servers."""

import argparse

from ..backends.http import is_loopback
from ..errors import UsageError
from .exits import run_async
from .options import add_model_options, number
from .session import add_record_options

DESCRIPTION = "Open a page with a chat that shows what the model writes, how it is parsed, and why a call runs or does not."
EPILOG = """examples:
  xmlcall ui                                             # a local model, fetched on first use, and the demo server
  xmlcall ui --model ollama:gemma3:4b --mcp servers.json
  xmlcall ui runs/talk                                   # a run of `xmlcall bench run`, beside the chat
  xmlcall ui --no-chat replies.jsonl                     # recorded turns or replies only, without a model

PATH is the folder of a run, a file of turns (`--record`) or of replies, a JSON object or string a line, or a folder of
such files. The page is for this machine alone, and its address holds a token: whoever has it can do what the page can.
Calls are asked about on the page as they are in `xmlcall chat`; conversations are kept with those of `chat` (see `xmlcall log`).
To see the traffic of other clients, use `xmlcall serve --ui`.
"""

COMMON = "--model --mcp --no-tools --profile --ask --system --allow --port --no-browser --no-chat"
PORT = 8486


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="recordings to open in the page")
    add_model_options(parser, talks=True)
    add_record_options(parser)
    page = parser.add_argument_group("the page")
    page.add_argument("--host", default="127.0.0.1", help="address of this machine to listen on (default: %(default)s)")
    page.add_argument(
        "--port", type=number(int, least=0), default=PORT, metavar="N", help="port; 0 takes a free one (default: %(default)s)"
    )
    page.add_argument("--no-browser", action="store_true", help="do not open a browser; the address is printed in any case")
    page.add_argument("--no-chat", action="store_true", help="no model and no chat: only show recordings and parse texts")
    page.add_argument(
        "--record", metavar="DIR", help="append each turn to a file in this folder, one JSON object per line, with secrets masked"
    )
    parser.set_defaults(ui=True)


def execute(options: argparse.Namespace) -> int:
    if not is_loopback(options.host):
        raise UsageError(f"--host {options.host}: the page is only for this machine: give an address such as 127.0.0.1")
    from .ui_page import serve_page  # the help needs none of what it imports

    return run_async(serve_page(options))
