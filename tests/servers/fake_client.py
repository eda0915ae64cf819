"""A client for `xmlcall launch`: it keeps what it is started with, asks the proxy that it is told of, and does what it is told.

It runs under the names of real clients. The folder that FAKE_CLIENT names takes `run-N.json`, a file for each run; its file
`orders.json`, if it is there, has `code`, `waits`, and `kills` (the proxy).
"""

import json
import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

PLACE = re.compile(r"http://127\.0\.0\.1:\d+")


def told() -> dict[str, object]:
    """What it is started with; files of every folder that a variable or an argument names."""
    ours = {name: value for name, value in os.environ.items() if name not in ("HOME", "PWD", "PATH", "FAKE_CLIENT")}
    ours_alone = f"{os.environ['TMPDIR']}/xmlcall-"
    paths = [Path(value) for value in (*ours.values(), *sys.argv[1:]) if value.startswith(ours_alone)]
    folders = {path if path.is_dir() else path.parent for path in paths}
    files = {
        str(path.relative_to(folder)): path.read_text() for folder in folders for path in folder.rglob("*") if path.is_file()
    }
    modes = [path.stat().st_mode & 0o077 for folder in folders for path in (folder, *folder.rglob("*")) if path.is_file()]
    return {"argv": sys.argv[1:], "env": ours, "files": files, "folders": sorted(map(str, folders)), "open": sum(modes)}


def answer(record: dict[str, object]) -> str:
    """Ask the proxy whose address is in the settings."""
    found = PLACE.search(json.dumps([record["argv"], record["files"], record["env"]]))
    if found is None:
        return ""
    tool = {"type": "function", "function": {"name": "f"}}
    body = json.dumps({"model": "local", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('XMLCALL_API_KEY', 'none')}"}
    with urllib.request.urlopen(urllib.request.Request(f"{found[0]}/v1/chat/completions", body, headers)) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def keep_settings() -> None:
    """Keep what a first run is told, in the folder of the client, as Cline does."""
    folder = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    os.umask(0o077)
    (folder / "told.json").write_text(json.dumps(sys.argv[1:]))


def kill_proxy() -> None:
    """Kill the proxy that was started for this client: it has the same parent."""
    for child in Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split():
        if b"\0serve\0" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)
    time.sleep(0.5)


def main() -> int:
    if sys.argv[1:2] == ["auth"]:
        keep_settings()
        return 0
    folder = Path(os.environ["FAKE_CLIENT"])
    orders = json.loads((folder / "orders.json").read_text()) if (folder / "orders.json").exists() else {}
    record = told()
    record["answer"] = answer(record)
    (folder / f"run-{len(list(folder.glob('run-*')))}.json").write_text(json.dumps(record))
    if orders.get("kills"):
        kill_proxy()
    line = "client is ready"
    for waits in range(orders.get("waits", 0), -1, -1):
        try:  # an interruption may come as soon as the line can be read
            print(line, flush=True)
            time.sleep(60 if waits else 0)
        except KeyboardInterrupt:
            line = "client was interrupted"
    return int(orders.get("code", 0))


if __name__ == "__main__":
    sys.exit(main())
