"""The steps of the Containerfile without a container engine: bubblewrap gives each a root of its own.

The build stages see this machine's `/usr` and `/etc` in place of the base image, and folders of the test at the paths that the
Containerfile names, so its `RUN` lines run as they are written. What the image would start runs as its user, without a single
capability, as process 1 of a name space of its own, and every file system that it sees is read-only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deploy.containerfile import Stage
from deploy.contract import HOME, USER, VENV

__all__ = ["built", "missing", "running"]

RUN_SECONDS = 240.0
_SYSTEM = ("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev")
_APART = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--clearenv")


def missing() -> str:
    """Say what this machine lacks for a sandbox; "" if nothing."""
    if os.geteuid() != 0:
        return "only root can give a folder to the user of the image"
    lacking = [name for name in ("bwrap", "setpriv") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (Debian: bubblewrap, util-linux)" if lacking else ""


def _links() -> list[str]:
    """Repeat the links of a root whose programs are all in `/usr`."""
    names = [path for path in map(Path, ("/bin", "/sbin", "/lib", "/lib64")) if path.is_symlink()]
    return [word for path in names for word in ("--symlink", str(path.readlink()), str(path))]


def _variables(variables: Mapping[str, str]) -> list[str]:
    return [word for name, value in variables.items() for word in ("--setenv", name, value)]


def _pip_of_this_machine() -> dict[str, str]:
    """Where packages come from here, and the certificates for it."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}


def built(stages: Sequence[Stage], context: Path, root: Path, arguments: Mapping[str, str] | None = None) -> Path:
    """Do what a build does; gives the folder that would be the root of the image."""
    for folder in ("build", VENV[1:], "var/lib", "tmp"):
        (root / folder).mkdir(parents=True)
    for stage in stages:
        folder = "/"
        given = stage.pairs("ARG") | dict(arguments or {})
        for name, rest in stage.steps:
            if name == "WORKDIR":
                folder = rest
            elif name == "COPY" and not rest.startswith("--from"):
                _copied(rest.split(), context, root / folder[1:])
            elif name == "RUN":
                _run(rest, folder, root, given | stage.pairs("ENV"))
    return root


def _copied(words: Iterable[str], context: Path, target: Path) -> None:
    *sources, last = words
    for source in sources:
        if (context / source).is_dir():
            shutil.copytree(context / source, target / last, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(context / source, target / last)


def _run(line: str, folder: str, root: Path, variables: Mapping[str, str]) -> None:
    """Run a line with the tests' own Python as that of the base image."""
    python = str(Path(sys.executable).parent)
    binds = [word for name in ("build", VENV[1:], "var/lib", "tmp") for word in ("--bind", str(root / name), f"/{name}")]
    environment = _pip_of_this_machine() | {"HOME": "/tmp"} | dict(variables) | {"PATH": f"{python}:/usr/bin:/bin"}
    argv = ["bwrap", *_APART, *_SYSTEM, *_links(), "--ro-bind", sys.prefix, sys.prefix, *binds, *_variables(environment)]
    if sys.base_prefix != "/usr":
        argv += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    argv += ["--chdir", folder if (root / folder[1:]).is_dir() else "/", "--", "sh", "-c", line]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, umask=0o022)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def _open_folders(*paths: str) -> list[str]:
    """Make the folders above some paths, which bubblewrap would close to everybody but root."""
    above = dict.fromkeys(str(folder) for path in paths for folder in [*Path(path).parents][-2::-1])
    return [word for folder in above for word in ("--perms", "0755", "--dir", folder)]


def running(
    words: Sequence[str], stage: Stage, root: Path, env: Mapping[str, str], stderr: Path, *, as_root: bool = False
) -> "Contained":
    """Start what the image would start.

    Args:
        words: the command.
        stage: the last one.
        root: from `built`.
        env: variables beside those of the stage.
        stderr: where its errors go.
        as_root: with all rights, to see what not even these allow.
    """
    variables = {"PATH": "/usr/bin:/bin"} | stage.pairs("ENV")
    variables["PATH"] = variables["PATH"].replace("$PATH", "/usr/bin:/bin")
    binds = [*_open_folders(VENV, HOME, "/tmp/file", f"{sys.base_prefix}/bin"), *_SYSTEM, *_links()]
    binds += [word for name in (VENV, HOME) for word in ("--ro-bind", str(root / name[1:]), name)]
    if sys.base_prefix != "/usr":
        binds += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    user = [
        "setpriv",
        f"--reuid={USER}",
        f"--regid={USER}",
        "--clear-groups",
        "--no-new-privs",
        "--pdeathsig=KILL",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--",
    ]
    closed = ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, *_variables(variables | dict(env))]
    sandbox = ["bwrap", "--as-pid-1", "--unshare-cgroup-try", *_APART, *binds, *closed]
    return Contained(sandbox, [] if as_root else user, words, stderr)


class Contained:
    """A process in a sandbox; `with` kills it at the end if it still runs."""

    def __init__(self, sandbox: Sequence[str], user: Sequence[str], words: Sequence[str], stderr: Path) -> None:
        self._sandbox, self._user, self._errors = sandbox, user, stderr
        read, write = os.pipe()
        argv = [*sandbox, "--info-fd", str(write), "--", *user, *words]
        with stderr.open("w") as errors:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True, pass_fds=[write])
        os.close(write)
        with open(read, encoding="utf-8") as info:  # up to the end of the object: the process keeps the other end open
            self.inner = int(json.loads("".join(iter(lambda: info.read(1), "}")) + "}")["child-pid"])

    def __enter__(self) -> "Contained":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.kill(self.inner, signal.SIGKILL)  # the other end of bubblewrap, which would live on without it
        self.process.communicate(timeout=RUN_SECONDS)

    @property
    def errors(self) -> str:
        """What it wrote to standard error until now."""
        return self._errors.read_text()

    def beside(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in a sandbox of the same kind, as the checks of a container engine do."""
        argv = [*self._sandbox, "--", *self._user, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
