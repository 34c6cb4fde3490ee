"""A gateway with one TLS port for all brokers. The name that a client asks for (SNI) chooses the broker."""

import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from group_sidecar.proxy.runtime.addresses import Address
from tests.certificates import Authority
from tests.kafka.processes import free_addresses, host_port
from tests.kafka.wire import Wire
from tests.proxy.generations import Generations, scripted
from tests.proxy.scripted_broker import listening

BOOTSTRAP = "kafka.example"
NAMES = "Broker-{node}.kafka.example"


class NamedWire(Wire):
    """A client that asks for a name. `name`: None for no name."""

    def __init__(self, address: tuple[str, int], name: str | None, authority: Authority) -> None:
        super().__init__(Address(*address))
        context = ssl.create_default_context(cafile=authority.file)
        context.check_hostname = name is not None
        self._socket = context.wrap_socket(self._socket, server_hostname=name)


class NamedCluster:
    """A gateway process with brokers that say who they are: each reports its own id as the controller's."""

    def __init__(self, folder: Path, addresses: tuple[Address, ...], **gateway: Any) -> None:
        self.nodes = dict(enumerate(addresses))
        self.authority = Authority(folder / "certificates")
        [at] = free_addresses(1)
        certificate = self.authority.issue(BOOTSTRAP, "*.kafka.example")
        listener = {
            "name": "NAMED",
            "listen": host_port(at),
            "upstream": str(addresses[0]),
            "tls": certificate.settings,
        }
        settings = {"one_port": True, "advertise": NAMES, "bootstrap_names": [BOOTSTRAP], **gateway}
        self.sidecar = Generations(folder, addresses[0], mode="gateway", listeners=[listener], gateway=settings)
        self.address = at

    def ask(self, name: str | None) -> MetadataResponse:
        """Returns the Metadata reply of the broker to which a name leads. Raises ssl.SSLError if it is refused."""
        with NamedWire(self.address, name, self.authority) as client:
            reply: MetadataResponse = client.ask(MetadataRequest(topics=()), 4)
            return reply

    def metric(self, name: str) -> float:
        """Returns the sum of a metric."""
        with urllib.request.urlopen(f"http://{host_port(self.sidecar.admin)}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@contextmanager
def named_cluster(folder: Path, **gateway: Any) -> Iterator[NamedCluster]:
    """Runs three brokers and the gateway."""
    cluster: NamedCluster

    def of(node: int) -> Any:
        def metadata(*_: Any) -> MetadataResponse:
            known = cluster.nodes.items()
            brokers = tuple(MetadataResponseBroker(node_id=number, **at._asdict()) for number, at in known)
            return MetadataResponse(brokers=brokers, topics=(), controller_id=node)

        return scripted(metadata)

    with listening(*(of(node) for node in range(3))) as addresses:
        cluster = NamedCluster(folder, tuple(addresses), **gateway)
        with cluster.sidecar as sidecar:
            sidecar.logged("node opened", 3)
            yield cluster


def test_name_chooses_broker(tmp_path: Path) -> None:
    """Each name leads to its broker at the same port, in upper and lower case, and also after a hot restart."""
    with named_cluster(tmp_path) as cluster:
        for restarted in (False, True):
            if restarted:
                cluster.sidecar.hand_over()
                cluster.sidecar.logged("the predecessor has ended")
                cluster.sidecar.logged("node opened", 6)
            reply = cluster.ask(BOOTSTRAP)
            expected = {node: (f"broker-{node}.kafka.example", cluster.address[1]) for node in range(3)}
            assert {each.node_id: (each.host, each.port) for each in reply.brokers} == expected
            assert reply.controller_id == 0
            for node, (name, _) in expected.items():
                assert cluster.ask(name.upper()).controller_id == node


@pytest.mark.parametrize("name", ["broker-01.kafka.example", "x.kafka.example", None])
def test_unknown_name_is_refused(tmp_path: Path, name: str | None) -> None:
    """A name that leads to no broker, or no name, is refused with an alert, a log line and a count."""
    with named_cluster(tmp_path) as cluster:
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            cluster.ask(name)
        line = cluster.sidecar.logged("a client's TLS handshake failed")
        assert line["reason"] == "server_name"
        assert (name or "no name") in line["cause"]
        assert cluster.metric('group_sidecar_tls_handshake_failures_total{listener="NAMED",reason="server_name"') == 1
        assert cluster.ask(BOOTSTRAP).controller_id == 0


def test_unknown_broker_is_closed_without_alert(tmp_path: Path) -> None:
    """The name of a broker that is not known yet gets no alert, because clients give up after one."""
    with named_cluster(tmp_path) as cluster:
        with pytest.raises(OSError) as closed:
            cluster.ask("broker-3.kafka.example")
        assert "alert" not in str(closed.value).lower()
        assert "not known yet" in cluster.sidecar.logged("a client's TLS handshake failed")["cause"]


def test_broker_appears_and_moves(tmp_path: Path) -> None:
    """A broker that appears gets a name as soon as a Metadata reply has it. A broker that moves keeps its name."""
    with named_cluster(tmp_path) as cluster:
        cluster.nodes[7] = cluster.nodes[1]
        with pytest.raises(OSError):
            cluster.ask("broker-7.kafka.example")
        assert 7 in {each.node_id for each in cluster.ask(BOOTSTRAP).brokers}
        assert cluster.ask("broker-7.kafka.example").controller_id == 1
        cluster.nodes[7] = cluster.nodes[2]
        cluster.ask(BOOTSTRAP)
        assert cluster.ask("broker-7.kafka.example").controller_id == 2


def test_advertised_port_replaces_own_port(tmp_path: Path) -> None:
    """Behind a port that a load balancer maps, clients learn the load balancer's port."""
    with named_cluster(tmp_path, advertised_port=9999) as cluster:
        assert {each.port for each in cluster.ask("broker-1.kafka.example").brokers} == {9999}
