"""Each example configuration in deploy/examples is checked and started. Requests pass it to its broker.

Addresses become free ports of this machine, and folders become temporary ones. Nothing else is changed.
"""

import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest
from tests.certificates import Authority
from tests.kafka.processes import Address, ChildProcess, free_addresses, host_port
from tests.kafka.sidecar_process import COMMAND
from tests.kafka.wire import Wire
from tests.proxy.real_ports import kafka_port, server_context
from tests.proxy.scripted_broker import ScriptedBroker

EXAMPLES = sorted((Path(__file__).parents[2] / "deploy" / "examples").glob("*.yaml"))
ADDRESS = re.compile(r"\b\d+(?:\.\d+){3}:\d+\b")
BROKER, GATEWAY = "broker-1.example", "gateway.example"
API_VERSIONS = ApiVersionsRequest()


class StartedExample:
    """A sidecar that runs with an example configuration.

    Args:
        file: the example.
        folder: an empty folder.
        stack: ends the brokers and the sidecar.

    Attributes:
        settings: the settings of the example with the changed addresses.
        upstreams: the broker behind each address.
        client: a client's certificate that the example accepts.
    """

    def __init__(self, file: Path, folder: Path, stack: ExitStack) -> None:
        self._authority = Authority(folder / "etc")
        self.client = self._authority.issue("client.example")
        self.upstreams: dict[str, ScriptedBroker] = {}
        self._write_certificates(folder / "etc")
        text = re.sub(r"(?m)^ *#.*\n", "", file.read_text())
        for old, new in self._places(yaml.safe_load(text), folder, stack).items():
            text = text.replace(old, new)
        self.file = folder / file.name
        self.file.write_text(text)
        self.settings: dict[str, Any] = yaml.safe_load(text)
        self.process = ChildProcess([str(COMMAND), "run", "--config", str(self.file)], folder / "log")

    def _write_certificates(self, folder: Path) -> None:
        own = self._authority.issue(BROKER, "127.0.0.1")
        own.certificate_file.rename(folder / "broker-1.pem")
        own.key_file.rename(folder / "broker-1.key").chmod(0o600)
        (folder / "clients-ca.pem").write_bytes(self._authority.file.read_bytes())

    def _places(self, settings: dict[str, Any], folder: Path, stack: ExitStack) -> dict[str, str]:
        """Starts a broker at each upstream address. Returns what replaces each address, host and folder."""
        places = {
            "/etc/group-sidecar": str(folder / "etc"),
            "/var/lib/group-sidecar": str(folder),
            GATEWAY: "127.0.0.1",
        }
        listeners = settings.get("listeners", [settings])
        upstreams = {each["upstream"]: "upstream_tls" in each for each in listeners}
        if "own_connection" in settings:
            upstreams[settings["own_connection"]["address"]] = False
        for address, encrypted in upstreams.items():
            broker = ScriptedBroker({ListGroupsRequest: ListGroupsResponse(error_code=0, groups=())})
            context = server_context(self._authority, BROKER) if encrypted else None
            [place] = stack.enter_context(kafka_port(broker, context)).addresses
            places[address] = host_port(place)
            self.upstreams[host_port(place)] = broker
        ours = {address for address in ADDRESS.findall(str(settings)) if address not in places}
        places |= dict(zip(ours, map(host_port, free_addresses(len(ours))), strict=True))
        return places

    def is_up(self) -> bool:
        """Whether the log reports that the sidecar has started."""
        return '"started"' in self.process.tail()

    def client_context(self) -> ssl.SSLContext:
        """Returns the TLS settings of a client with a certificate."""
        context = ssl.create_default_context(cafile=self._authority.file)
        context.load_cert_chain(self.client.certificate_file, self.client.key_file)
        return context


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda file: file.name)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedExample]:
    """Runs a sidecar with each example."""
    with ExitStack() as stack:
        example = StartedExample(request.param, tmp_path_factory.mktemp("example"), stack)
        stack.enter_context(example.process)
        example.process.wait_until(example.is_up)
        yield example


def test_check_config_accepts(example: StartedExample) -> None:
    """`check-config` reports neither a fault nor a warning, and reaches the brokers with `--connect`."""
    for flags in ([], ["--connect"]):
        command = [str(COMMAND), "check-config", *flags, str(example.file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_requests_reach_broker(example: StartedExample) -> None:
    """Through each listener, ApiVersions and ListGroups pass to the broker of that listener."""
    settings = example.settings
    for listener in settings.get("listeners", [settings]):
        tls = example.client_context() if "tls" in listener else None
        client_id = f"client of {listener['listen']}"
        with Wire(address_of(listener["listen"]), client_id=client_id, tls=tls) as wire:
            assert wire.ask(API_VERSIONS, 0).error_code == 0
            assert wire.ask(ListGroupsRequest(), 0).error_code == 0
        assert client_id in example.upstreams[listener["upstream"]].clients


def test_gateway_replaces_addresses(example: StartedExample) -> None:
    """A gateway names itself in Metadata. All other examples leave the broker's address as it is."""
    settings = example.settings
    [listener, *_] = settings.get("listeners", [settings])
    with Wire(address_of(listener["listen"])) as wire:
        [broker] = wire.ask(MetadataRequest(topics=()), 0).brokers
    is_upstream = (broker.host, broker.port) == address_of(listener["upstream"])
    assert is_upstream == (settings.get("mode") != "gateway")
