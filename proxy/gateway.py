"""Decides which port and which name of a gateway lead to which broker, and opens the ports of new brokers.

`sidecar` creates the `Gateway`, which no other mode needs. `node_ports` opens the sockets.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.proxy.broker.group_queries import Node, brokers
from group_sidecar.proxy.broker.kafka_client import BrokerError
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.session import Session
from group_sidecar.proxy.listeners.admission import ClientPort
from group_sidecar.proxy.listeners.handshakes import BrokerNotKnownYet, ListenerHandshakes
from group_sidecar.proxy.listeners.node_ports import NodePorts
from group_sidecar.proxy.listeners.ports import ListenError, port_of
from group_sidecar.proxy.runtime.addresses import Address, AddressBook, NodeNames
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.served_brokers import ServedBroker, ServedBrokers

NODES_SECONDS = 5.0
"""Seconds until a gateway requests the cluster's nodes again, after a failed attempt."""


@dataclass(frozen=True, slots=True)
class GatewayListener:
    """A gateway's only listener, through which clients reach all brokers.

    Attributes:
        counters: its counters.
        handshakes: see `ClientPort`.
        port: returns the number of the port at which it listens.
        serve: starts to accept clients at a port that the gateway has opened.
    """

    counters: ListenerCounters
    handshakes: ListenerHandshakes | None
    port: Callable[[], int]
    serve: Callable[[list[socket.socket], ClientPort], None]


class Gateway:
    """The ports and names under which clients reach the brokers of a cluster.

    Args:
        config: the settings.
        listener: the listener through which clients come.
        served: the brokers that have a copy already.
        broker_at: returns the broker at an address, and creates its copy at the first call.
        new_session: makes a session of a client of a broker.
        passed: the sockets that a predecessor has passed, by broker id.
    """

    def __init__(
        self,
        config: Config,
        listener: GatewayListener,
        served: ServedBrokers,
        broker_at: Callable[[Address], ServedBroker],
        new_session: Callable[[ServedBroker, str, Origin], Session],
        passed: Mapping[int, list[socket.socket]],
    ) -> None:
        self._bootstrap_address, self._settings = config.broker_address, config.gateway
        self._listener = listener
        self._served = served
        self._broker_at = broker_at
        self._new_session = new_session
        self._names = NodeNames(config.advertised_host)
        self._address_book = AddressBook(self._names, self._open_node)
        host = config.client_listeners[0].listen.host
        self._node_ports = NodePorts(host, self._settings.first_port, passed, strict=self._settings.strict_ports)
        self._bootstrap_peer: Address | None = None
        """The socket address of the bootstrap broker, which the cluster may know under another address."""

    @property
    def opened(self) -> Mapping[int, list[socket.socket]]:
        """The sockets of the open ports, by broker id."""
        return self._node_ports.opened

    @property
    def failed(self) -> Mapping[int, str]:
        """Why the port of a broker cannot be opened, by broker id."""
        return self._node_ports.failed

    @property
    def has_unused(self) -> bool:
        """Whether passed sockets are left of brokers that have not appeared yet."""
        return self._node_ports.has_unused

    def advertise(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """See `AddressBook.advertise`."""
        return self._address_book.advertise(node_id, host, port)

    def bootstrap_port(self) -> ClientPort:
        """Returns the port of the bootstrap broker. Names lead to the other brokers if they all share this port."""

        def new_session(origin: Origin, peer: Address) -> Session:
            self._bootstrap_peer = peer
            return self._new_session(self._broker_at(self._bootstrap_address), self._listener.counters.name, origin)

        port = ClientPort(
            self._listener.counters, lambda: self._bootstrap_address, new_session, self._listener.handshakes
        )
        return port._replace(by_name=partial(self._port_by_name, port)) if self._settings.one_port else port

    async def learn_nodes(self) -> None:
        """Opens the ports of all nodes once, for clients that know these ports from before a restart.

        Closes the passed ports of nodes that the cluster does not have.
        """
        while True:
            try:
                async with self._broker_at(self._bootstrap_address).state.own_connections.connect() as client:
                    nodes = await brokers(client)
                if self._open_all(nodes):
                    self._node_ports.close_unused()
                    return
            except (BrokerError, DecodeError):
                pass
            await trio.sleep(NODES_SECONDS)

    def _port_by_name(self, bootstrap: ClientPort, server_name: str | None) -> ClientPort | None:
        """Returns the port to which a name leads at the only port of a gateway, or None if it leads to no broker.

        Raises:
            BrokerNotKnownYet: the name is that of a broker which the gateway does not know.
        """
        if server_name in self._settings.bootstrap_names:
            return bootstrap
        node_id = None if server_name is None else self._names.node_of(server_name)
        if node_id is None:
            return None
        if node_id not in self._address_book:
            raise BrokerNotKnownYet(server_name)
        return self._node_port(node_id)

    def _node_port(self, node_id: int) -> ClientPort:
        upstream = partial(self._address_book.upstream, node_id)
        session = partial(self._node_session, node_id)
        return ClientPort(self._listener.counters, upstream, session, self._listener.handshakes)

    def _node_session(self, node_id: int, origin: Origin, peer: Address) -> Session:
        address = self._address_book.upstream(node_id)
        if address not in self._served and peer == self._bootstrap_peer:
            # This node is the bootstrap broker under another address. One broker has one copy.
            self._served.put(address, self._broker_at(self._bootstrap_address))
        return self._new_session(self._broker_at(address), self._listener.counters.name, origin)

    def _open_node(self, node_id: int) -> int:
        """Opens the port of a node, unless all nodes share one port. Returns the port's number."""
        if self._settings.one_port:
            number = self._settings.advertised_port or self._listener.port()
        else:
            opened = self._node_ports.open(node_id)
            self._listener.serve(opened, self._node_port(node_id))
            number = port_of(opened)
        upstream = str(self._address_book.upstream(node_id))
        log.info("node opened", node=node_id, name=self._names.name(node_id), port=number, upstream=upstream)
        return number

    def _open_all(self, nodes: Sequence[Node]) -> bool:
        """Opens the ports of the cluster's nodes. Returns whether all of them are open."""
        self._node_ports.forget_failed([node.id for node in nodes])
        for node in nodes:
            with suppress(ListenError):  # It is logged, and the other nodes are served.
                self._address_book.advertise(node.id, node.host, node.port)
        return not self._node_ports.failed
