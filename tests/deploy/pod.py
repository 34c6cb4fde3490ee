"""Runs the containers of a rendered pod as processes on this machine, in the order of Kubernetes.

A pod has its own addresses, files and environment. Here, each port of the pod is a free port on the loopback, each
volume is a folder, and the environment of a container is what Kubernetes would make of its `env`.
"""

import http.client
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tests.deploy.kubernetes_tools import Manifest
from tests.kafka.processes import GIVE_UP_SECONDS, Address, ChildProcess, free_addresses
from tests.kafka.sidecar_process import COMMAND

_VARIABLE = re.compile(r"\$\((\w+)\)")
_POLL_SECONDS = 0.05


class Pod:
    """One pod of a rendered StatefulSet or Deployment.

    Args:
        manifests: everything that was rendered, with the workload and its ConfigMaps.
        folder: an empty folder for its volumes.
        ports: the ports of the pod that are used. Each gets a free port here.
        hosts: names that stand for the loopback here.
        secrets: the files of each Secret, by its name.
    """

    def __init__(
        self,
        manifests: list[Manifest],
        folder: Path,
        *,
        ports: tuple[int, ...],
        hosts: tuple[str, ...] = (),
        secrets: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> None:
        [workload] = [each for each in manifests if each["kind"] in {"StatefulSet", "Deployment"}]
        self.spec: Manifest = workload["spec"]["template"]["spec"]
        self._name, self._namespace = f"{workload['metadata']['name']}-0", workload["metadata"]["namespace"]
        self.address = dict(zip(ports, free_addresses(len(ports)), strict=True))
        self._hosts = ("0.0.0.0", *hosts)
        self._folder = folder
        maps = {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "ConfigMap"}
        self._files = {name: {key: text.encode() for key, text in data.items()} for name, data in maps.items()}
        self._secrets = secrets or {}
        self._mounts = dict[str, Path]()

    def container(self, name: str) -> Manifest:
        """Returns a container's part of the manifest."""
        found = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        return next(each for each in found if each["name"] == name)

    def environment(self, name: str) -> dict[str, str]:
        """Returns the environment of a container. As in Kubernetes, `$(NAME)` stands for an earlier variable only."""
        values = dict[str, str]()
        for each in self.container(name).get("env", ()):
            text: str = each["value"] if "value" in each else self._field(each["valueFrom"]["fieldRef"]["fieldPath"])
            values[each["name"]] = _VARIABLE.sub(lambda found: values.get(found[1], str(found[0])), text)
        return values

    def _field(self, path: str) -> str:
        index = "metadata.labels['apps.kubernetes.io/pod-index']"
        fields = {"metadata.name": self._name, "metadata.namespace": str(self._namespace), index: "0"}
        return fields[path]

    def here(self, text: str) -> str:
        """Returns a text with the ports, hosts and paths of the pod replaced by those of this machine."""
        for path, folder in sorted(self._mounts.items(), reverse=True):
            text = text.replace(f"{path}/", f"{folder}/")
        for host in self._hosts:
            text = text.replace(host, "127.0.0.1")
        text = re.sub(r"(//):(?=\d)", r"\g<1>127.0.0.1:", text)
        return re.sub(r"(?<=:)\d{4,5}\b", lambda found: str(self._port(int(found[0]))), text)

    def _port(self, port: int) -> int:
        return self.address[port][1] if port in self.address else port

    def mount(self, name: str) -> None:
        """Puts the files of a container's volumes into place."""
        volumes = {each["name"]: each for each in self.spec["volumes"]}
        contents = dict[Path, Mapping[str, bytes]]()
        for number, each in enumerate(self.container(name)["volumeMounts"]):
            source = volumes[each["name"]]
            folder = self._mounts[each["mountPath"]] = self._folder / f"{name}-{number}"
            is_map = "configMap" in source
            contents[folder] = (
                self._files[source["configMap"]["name"]] if is_map else self._secrets[source["secret"]["secretName"]]
            )
        for folder, files in contents.items():
            folder.mkdir(parents=True)
            for key, data in files.items():
                is_text = key.endswith(".yaml")
                (folder / key).write_bytes(self.here(data.decode()).encode() if is_text else data)

    def sidecar(self, name: str = "group-sidecar") -> ChildProcess:
        """Returns the process of a sidecar's container, not yet started. Its image runs `group-sidecar`."""
        self.mount(name)
        arguments = [self.here(each) for each in self.container(name)["args"]]
        return ChildProcess([str(COMMAND), *arguments], self._folder / f"{name}.log", self.environment(name))

    def probe(self, container: str, kind: str) -> bool:
        """Runs a probe once, for instance `readinessProbe`, as the kubelet does."""
        probe = self.container(container)[kind]
        seconds = probe.get("timeoutSeconds", 1)
        if "tcpSocket" in probe:
            return _accepts(self.address[probe["tcpSocket"]["port"]], seconds)
        return 200 <= _status(self.address[probe["httpGet"]["port"]], probe["httpGet"]["path"], seconds) < 400

    def wait_for(self, container: str, kind: str) -> None:
        """Runs a probe again and again until it succeeds, for as long as the kubelet would, or as tests wait.

        Raises:
            TimeoutError: the kubelet would restart the container.
        """
        probe = self.container(container)[kind]
        allowed = max(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3), GIVE_UP_SECONDS)
        deadline = time.monotonic() + allowed
        while not self.probe(container, kind):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the {kind} of {container} failed for {allowed} s")
            time.sleep(_POLL_SECONDS)


def _accepts(address: Address, seconds: float) -> bool:
    try:
        with socket.create_connection(address, timeout=seconds):
            return True
    except OSError:
        return False


def _status(address: Address, path: str, seconds: float) -> int:
    """Returns the status of a reply, or 0 if there is none in time."""
    connection = http.client.HTTPConnection(*address, timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
