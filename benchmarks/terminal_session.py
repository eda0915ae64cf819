"""The first picture of the README: a session in a terminal, as it came.

    python benchmarks/terminal_session.py record    # runs the model; writes docs/images/session.cast, then draws
    python benchmarks/terminal_session.py           # draws docs/images/session.svg from the recording

The recording is a file of asciinema (version 2): what the program wrote, with times, without most frames of the spinner. The
last screen is drawn.
"""

import io
import itertools
import json
import os
import pty
import re
import select
import signal
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any, Final

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
CAST: Final = ROOT / "docs" / "images" / "session.cast"
PICTURE: Final = CAST.with_suffix(".svg")
COLUMNS, ROWS = 92, 40
SECONDS: Final = 90.0  # until something more is shown
SERVERS: Final = {"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "Europe/Berlin"]}}}
COMMAND: Final = "xmlcall chat --mcp servers.json"
_SPINNER: Final = re.compile("^\\r?(\x1b\\[2K)?\x1b\\[32m[\u2800-\u28ff]")  # one frame of each second is kept
PROMPT: Final = r"\n> ?\x08*$"
# What is awaited, and what is typed then.
TYPED: Final = (
    (PROMPT, "It is 14:30 in Asia/Tokyo. What time is it in Europe/London?\r"),
    (r"\[s\]top: ?$", "y\r"),
    (PROMPT, "Write one sentence about rain in London.\r"),
    (PROMPT, "/quit\r"),
)


def record() -> None:
    """Run the session on a terminal of its own and write it down."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "servers.json").write_text(json.dumps(SERVERS))
        process, terminal = pty.fork()
        if not process:
            os.chdir(folder)
            own = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": folder, "XMLCALL_RECORDS": folder}
            bin_folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            command = [sys.executable, "-m", "xmlcall", *COMMAND.split()[1:]]
            os.execve(sys.executable, command, {**os.environ, **own, "PATH": bin_folder})
        termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
        try:
            events = [(0.0, f"$ {COMMAND}\r\n"), *_played(terminal)]
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "timestamp": int(time.time()), "title": COMMAND}
    lines = [json.dumps(head), *(json.dumps([round(at, 3), "o", text]) for at, text in events)]
    CAST.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _played(terminal: int) -> list[tuple[float, str]]:
    events: list[tuple[float, str]] = []
    since, typed = time.monotonic(), list(TYPED)
    unread = shown_frame = ""
    while True:
        if not select.select([terminal], [], [], SECONDS)[0]:
            raise SystemExit(f"expected {typed[:1]}, got {unread[-500:]!r}")
        try:
            text = os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # the program has ended
            return events
        if (frame := _SPINNER.sub("", text)) == shown_frame:
            continue
        events.append((time.monotonic() - since, text))
        shown_frame = frame if frame != text else ""
        unread += re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)
        if typed and re.search(typed[0][0], unread.replace("\r", "")):
            time.sleep(0.5)
            os.write(terminal, typed.pop(0)[1].encode())
            unread = ""


def screen() -> list[Text]:
    """Return the last screen of the recording."""
    head, *events = map(json.loads, CAST.read_text(encoding="utf-8").splitlines())
    shown = pyte.Screen(head["width"], head["height"])
    stream = pyte.Stream(shown)
    for _, _, text in events:
        # The emulator knows no faint text: it is drawn grey.
        stream.feed(re.sub(r"\x1b\[((?:[013-9]\d*;)*)2((?:;\d+)*)m", "\x1b[\\g<1>90\\2m", text))
    lines = [_line(shown.buffer[row], head["width"]) for row in range(head["height"])]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def _line(cells: Any, width: int) -> Text:
    line = Text()
    for style, run in itertools.groupby((cells[column] for column in range(width)), _style):
        line.append("".join(cell.data for cell in run), style)
    line.rstrip()
    return line


def _style(cell: Any) -> Style:
    color = {"default": None, "brightblack": "bright_black", "brown": "yellow"}.get(cell.fg, cell.fg)
    return Style(color=color, bold=cell.bold, italic=cell.italics, reverse=cell.reverse)


def draw() -> None:
    """Draw the last screen; the picture fetches no font."""
    lines = screen()
    console = Console(record=True, width=max(cell_len(each.plain) for each in lines), file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(line, soft_wrap=True)
    plain = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code", "monospace")
    drawn = console.export_svg(title=COMMAND, code_format=plain, unique_id="session")
    PICTURE.write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    if "record" in sys.argv[1:]:
        record()
    draw()
