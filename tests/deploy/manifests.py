"""The manifests as data, and what stands in them as text: options of commands, a file of settings."""

import tomllib
from pathlib import Path
from typing import Any, Final

import yaml
from deploy.contract import DEPLOY

__all__ = ["FILES", "MANIFESTS", "Manifest", "config_of", "containers_of", "manifest", "options_of"]

Manifest = dict[str, Any]

FILES: Final[dict[Path, list[Manifest]]] = {
    path: [*yaml.safe_load_all(path.read_text(encoding="utf-8"))] for path in sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
}
MANIFESTS: Final = [each for many in FILES.values() for each in many]


def manifest(kind: str, name: str) -> Manifest:
    """Return the one of a kind and a name."""
    [found] = [each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def containers_of(deployment: Manifest) -> list[dict[str, Any]]:
    """Return all containers of a Deployment's pods, those that begin first included."""
    pod = deployment["spec"]["template"]["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]


def options_of(container: dict[str, Any]) -> dict[str, str]:
    """Return the options of a container's arguments, all of the form `--name=value`."""
    pairs = (word.partition("=") for word in container["args"] if word.startswith("--"))
    return {name: value for name, _, value in pairs}


def config_of(name: str) -> dict[str, Any]:
    """Return the settings in a ConfigMap."""
    [text] = manifest("ConfigMap", name)["data"].values()
    return tomllib.loads(text)
