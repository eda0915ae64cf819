"""The manifests: held against the schemas of several versions of Kubernetes, and to what schemas do not ask."""

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from cli_harness import run_here
from deploy.containerfile import stages_of
from deploy.contract import ALIVE, DEPLOY, HOME, METRIC, METRICS, PORT, READY, TELL_SECONDS, USER
from deploy.manifests import FILES, MANIFESTS, Manifest, config_of, containers_of, manifest, options_of

VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")  # sidecars are on by default since 1.29
KINDS = {
    "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Service",
}  # fmt: skip
OWN = [each for each in MANIFESTS if each["kind"] != "ServiceMonitor"]  # that is a kind of the Prometheus operator
DEPLOYMENTS = ("xmlcall", "xmlcall-vllm")
CONTAINERS = [(name, container["name"]) for name in DEPLOYMENTS for container in containers_of(manifest("Deployment", name))]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def named(each: Manifest) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = manifest("Deployment", name)["spec"]["template"]["spec"]
    return found


def container(deployment: str, name: str = "xmlcall") -> dict[str, Any]:
    [found] = [each for each in containers_of(manifest("Deployment", deployment)) if each["name"] == name]
    return found


# -- against the schemas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_admits_it(version: str) -> None:
    """Strictly: a field that the version does not know is refused."""
    for each in OWN:
        kubernetes_validate.validate(copy.deepcopy(each), version, strict=True)


def test_a_field_that_does_not_exist_is_refused() -> None:
    """Or that the manifests are admitted would say nothing."""
    wrong = copy.deepcopy(manifest("Deployment", "xmlcall"))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_metric_that_is_commented_out_is_admitted() -> None:
    """In place of the CPU."""
    text = (DEPLOY / "kubernetes/base/autoscaler.yaml").read_text()
    lines = [line.replace("# ", "", 1) for line in text.splitlines() if re.match(r"    # ( |- type)", line)]
    metrics = yaml.safe_load("\n".join(lines))
    assert [each["pods"]["metric"]["name"] for each in metrics] == [METRIC]
    scaled = copy.deepcopy(manifest("HorizontalPodAutoscaler", "xmlcall"))
    scaled["spec"]["metrics"] = metrics
    kubernetes_validate.validate(scaled, VERSIONS[0], strict=True)


def test_everything_is_there() -> None:
    base = [each for path, many in FILES.items() if path.parent.name == "base" for each in many]
    assert {each["kind"] for each in base} == KINDS
    assert {each["metadata"]["name"] for each in base} == {"xmlcall"}


def test_no_secret_is_in_a_file() -> None:
    assert [named(each) for each in MANIFESTS if each["kind"] == "Secret"] == []
    for each in MANIFESTS:
        assert re.findall(r"(?i)\bkey = |password|://[^/\s]*@", yaml.safe_dump(each)) == [], named(each)


# -- what a pod may do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_is_not_root_and_has_no_account(name: str) -> None:
    spec = pod(name)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert {spec["securityContext"][field] for field in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_services_do_not_become_variables(name: str) -> None:
    """A Service `xmlcall` would be `XMLCALL_PORT=tcp://...`, and xmlcall reads `XMLCALL_*`."""
    assert pod(name)["enableServiceLinks"] is False


@pytest.mark.parametrize(("deployment", "name"), CONTAINERS)
def test_a_container_may_do_little(deployment: str, name: str) -> None:
    each = container(deployment, name)
    assert each["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert each["resources"].keys() == {"requests", "limits"}
    assert {"cpu", "memory"} <= each["resources"]["limits"].keys()
    assert re.fullmatch(r"\S+:v?\d[\w.]*", each["image"]), "an image has a version"


@pytest.mark.parametrize(("deployment", "name"), CONTAINERS)
def test_what_a_container_mounts_is_there(deployment: str, name: str) -> None:
    volumes = {volume["name"] for volume in pod(deployment)["volumes"]}
    mounted = {mount["name"] for mount in container(deployment, name)["volumeMounts"]}
    assert mounted <= volumes
    assert volumes == {
        mount["name"] for each in containers_of(manifest("Deployment", deployment)) for mount in each["volumeMounts"]
    }
    assert not any(mount["mountPath"] == HOME for mount in container(deployment, name)["volumeMounts"])


# -- how it begins and ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deployment", "name"), CONTAINERS)
def test_a_container_is_asked_how_it_is(deployment: str, name: str) -> None:
    each = container(deployment, name)
    assert {*PROBES} <= each.keys()
    for probe in PROBES:
        assert {"periodSeconds", "timeoutSeconds", "failureThreshold"} <= each[probe].keys()
        assert each[probe]["timeoutSeconds"] <= each[probe]["periodSeconds"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_only_whether_it_is_ready_goes_by_the_model(deployment: str) -> None:
    asked = {probe: container(deployment)[probe]["httpGet"] for probe in PROBES}
    assert {probe: each["path"] for probe, each in asked.items()} == dict(zip(PROBES, (ALIVE, READY, ALIVE), strict=True))
    assert {each["port"] for each in asked.values()} == {"http"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_pod_has_the_time_that_its_answers_need(deployment: str) -> None:
    each = container(deployment)
    [command] = [each["lifecycle"]["preStop"]["exec"]["command"]]
    assert command[0] == "sleep"
    needed = int(command[1]) + int(options_of(each)["--grace"]) + TELL_SECONDS
    assert needed < pod(deployment)["terminationGracePeriodSeconds"]


def test_the_startup_probe_waits_as_long_as_the_server_does() -> None:
    probe = container("xmlcall")["startupProbe"]
    assert float(options_of(container("xmlcall"))["--wait"]) < probe["periodSeconds"] * probe["failureThreshold"]


def test_the_model_begins_before_xmlcall_and_ends_after_it() -> None:
    [model] = pod("xmlcall-vllm")["initContainers"]
    assert model["restartPolicy"] == "Always"
    assert {"startupProbe", "livenessProbe"} <= model.keys()
    address = options_of(container("xmlcall-vllm"))["--model"]
    given = dict(word.split("=") for word in model["command"] if word.startswith("--"))
    assert address == f"http://{given['--host']}:{given['--port']}/v1"
    assert given["--host"] == "127.0.0.1", "nobody goes round xmlcall"
    probe = model["startupProbe"]["exec"]["command"][-1]
    compile(probe, "probe", "exec")
    assert f"//127.0.0.1:{given['--port']}/" in probe


# -- names and numbers that stand in several places ----------------------------------------------------------------------


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_ports_are_the_same_everywhere(deployment: str) -> None:
    each = container(deployment)
    assert options_of(each)["--port"] == str(PORT)
    assert [(port["name"], port["containerPort"]) for port in each["ports"]] == [("http", PORT)]
    [port] = manifest("Service", deployment)["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("http", PORT, "http")
    for rule in manifest("NetworkPolicy", "xmlcall")["spec"]["ingress"]:
        assert [port["port"] for port in rule["ports"]] == [PORT]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_labels_lead_to_the_pods(deployment: str) -> None:
    spec = manifest("Deployment", deployment)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert manifest("Service", deployment)["spec"]["selector"] == labels


def test_what_stands_beside_the_deployment_means_it() -> None:
    labels = manifest("Deployment", "xmlcall")["spec"]["template"]["metadata"]["labels"]
    assert manifest("PodDisruptionBudget", "xmlcall")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("NetworkPolicy", "xmlcall")["spec"]["podSelector"]["matchLabels"] == labels
    target = manifest("HorizontalPodAutoscaler", "xmlcall")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", "xmlcall")
    assert "replicas" not in manifest("Deployment", "xmlcall")["spec"], "the autoscaler's"
    assert pod("xmlcall")["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels


def test_a_replica_is_always_left() -> None:
    scaled = manifest("HorizontalPodAutoscaler", "xmlcall")["spec"]
    assert 2 <= scaled["minReplicas"] < scaled["maxReplicas"]
    assert manifest("PodDisruptionBudget", "xmlcall")["spec"]["maxUnavailable"] < scaled["minReplicas"]
    assert manifest("Deployment", "xmlcall")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "cpu" in container("xmlcall")["resources"]["requests"], "utilization is of what is requested"


def test_prometheus_finds_the_service_and_has_a_key() -> None:
    spec = manifest("ServiceMonitor", "xmlcall")["spec"]
    service = manifest("Service", "xmlcall")
    assert spec["selector"]["matchLabels"] == service["metadata"]["labels"]
    [endpoint] = spec["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert endpoint["path"] == METRICS
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["name"] == secret_of("xmlcall")
    assert credentials["key"] in {Path(key["key_file"]).name for key in config_of("xmlcall")["key"]}


def test_xmlcall_may_call_the_models_of_its_settings() -> None:
    allowed = {
        (peer["podSelector"]["matchLabels"].get("app.kubernetes.io/name"), port["port"])
        for rule in manifest("NetworkPolicy", "xmlcall")["spec"]["egress"]
        for peer in rule["to"]
        for port in rule["ports"]
    }
    for model in config_of("xmlcall")["model"]:
        host, port = re.fullmatch(r"http://([\w-]+):(\d+)/v1", model["address"]).groups()  # type: ignore[union-attr]
        assert (host, int(port)) in allowed


def secret_of(deployment: str) -> str:
    [name] = [volume["secret"]["secretName"] for volume in pod(deployment)["volumes"] if "secret" in volume]
    return str(name)


def test_keys_are_files_of_the_secret() -> None:
    [folder] = [mount["mountPath"] for mount in container("xmlcall")["volumeMounts"] if mount["name"] == "keys"]
    files = [Path(key["key_file"]) for key in config_of("xmlcall")["key"]]
    assert {str(file.parent) for file in files} == {folder}
    readme = (DEPLOY / "README.md").read_text()
    made = set(re.findall(r"--from-literal=([\w-]+)=", readme))
    assert {file.name for file in files} == made
    assert f"create secret generic {secret_of('xmlcall')}" in readme
    [variable] = container("xmlcall-vllm")["env"]
    assert variable["valueFrom"]["secretKeyRef"]["name"] == secret_of("xmlcall")
    assert variable["valueFrom"]["secretKeyRef"]["key"] in made


def test_settings_are_those_that_xmlcall_reads(tmp_path: Path) -> None:
    """Strictly: a name that it does not know is refused. The files of keys are not looked into."""
    settings = pytest.importorskip("xmlcall.proxy.settings", reason="this xmlcall reads no file of settings")
    [text] = manifest("ConfigMap", "xmlcall")["data"].values()
    file = tmp_path / "xmlcall.toml"
    file.write_text(text)
    read = settings.read_settings(file, {})
    assert [model.name for model in read.model] == ["assistant"]
    assert {key.name: key.models for key in read.key} == {"team": ("assistant",), "prometheus": ()}


def test_the_settings_are_mounted_where_they_are_read() -> None:
    [folder] = [mount["mountPath"] for mount in container("xmlcall")["volumeMounts"] if mount["name"] == "config"]
    [file] = manifest("ConfigMap", "xmlcall")["data"]
    assert options_of(container("xmlcall"))["--config"] == f"{folder}/{file}"


@cache
def known_options() -> frozenset[str]:
    return frozenset(re.findall(r"--[a-z][a-z-]+", run_here("serve", "--help-all").stdout))


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_options_are_those_of_serve(deployment: str) -> None:
    pytest.importorskip("xmlcall.proxy.settings", reason="this xmlcall has not all of them yet")
    assert container(deployment)["args"][0] == "serve"
    assert options_of(container(deployment)).keys() <= known_options()


def test_the_images_are_one_version() -> None:
    version = stages_of(DEPLOY / "Containerfile")[-1].pairs("ARG")["VERSION"]
    assert {container(name)["image"].rpartition(":")[2] for name in DEPLOYMENTS} == {version}
    assert f"xmlcall:{version}" in (DEPLOY / "compose.yaml").read_text()
