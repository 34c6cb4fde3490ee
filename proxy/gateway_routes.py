"""Decides which port and which name of a gateway lead to which broker, and opens the ports of new brokers.

`sidecar` creates the `Gateway`, which no other mode needs. `node_ports` opens the sockets, and `bootstrap_broker`
chooses the broker for clients that come to the bootstrap address.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.proxy.admin.sources import Unreachable
from group_sidecar.proxy.bootstrap_broker import BootstrapBroker
from group_sidecar.proxy.broker.broker_errors import BrokerClosed, BrokerError, BrokerTimeout, BrokerUnreachable
from group_sidecar.proxy.broker.group_queries import Node, brokers
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.session import Session
from group_sidecar.proxy.listeners.admission import ClientPort, NotServed
from group_sidecar.proxy.listeners.handshakes import BrokerNotKnownYet, ListenerHandshakes
from group_sidecar.proxy.listeners.node_ports import NodePorts
from group_sidecar.proxy.listeners.ports import ListenError, port_of
from group_sidecar.proxy.runtime.addresses import Address, AddressBook, NodeNames
from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.served_brokers import ServedBroker, ServedBrokers

NODES_SECONDS = 1.0
"""Seconds between two attempts to learn the cluster's nodes, and between two checks of the bootstrap broker."""


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
        listener: the listener at which clients connect.
        served: the brokers that have a copy already.
        broker_at: returns the broker at an address, and creates its copy at the first call.
        new_session: makes the session of a client with a broker.
        passed: the sockets that a predecessor has passed, by broker id.

    Attributes:
        was_asked: set when the first attempt to learn the cluster's nodes has ended. No client is accepted before,
            because the gateway would not know to which broker it connects the client.
        unreachable: the address at which the last attempt to learn the nodes failed. None if the attempt succeeded, or
            if a broker was reached and refused the sidecar's own connection.
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
        self._settings = config.gateway
        self._listener = listener
        self._served = served
        self._broker_at = broker_at
        self._new_session = new_session
        self._credentials = OwnCredentials(config.own_connection_in_force)
        self._names = NodeNames(config.advertised_host)
        self._address_book = AddressBook(self._names, self._open_node)
        self._bootstrap = BootstrapBroker(
            (config.broker_address, *self._settings.bootstrap_servers), self._address_book.upstreams
        )
        host = config.client_listeners[0].listen.host
        self._node_ports = NodePorts(host, self._settings.first_port, passed, strict=self._settings.strict_ports)
        self._nodes_are_open = self._is_refused = False
        self._unnamed: tuple[Address, Address] | None = None
        """The socket address and the configured address of a broker whose own address was not known."""
        self._attempts = Backoff()
        self._log_throttle = LogThrottle()
        self.was_asked = trio.Event()
        self.unreachable: Unreachable | None = None

    @property
    def opened(self) -> Mapping[int, list[socket.socket]]:
        """The sockets of the open ports, by broker id."""
        return self._node_ports.opened

    @property
    def failed(self) -> Mapping[int, str]:
        """Why the port of a broker cannot be opened, by broker id."""
        return self._node_ports.failed

    @property
    def is_loaded(self) -> bool:
        """Whether the ports of all brokers were opened, as far as the cluster allows that."""
        return self._nodes_are_open or self._is_refused

    @property
    def bootstrap(self) -> Address:
        """The address of the bootstrap broker. While no broker is known, an address at which the cluster may be."""
        return self._bootstrap.address

    @property
    def bootstrap_address(self) -> str:
        """The address of the bootstrap broker, or the address that could not be asked for the nodes."""
        return self.unreachable.broker if self.unreachable and not self.is_reachable else str(self._bootstrap.address)

    @property
    def was_probed(self) -> bool:
        """Whether the gateway knows by now if the bootstrap broker can be reached."""
        broker = self._served.get(self._bootstrap.address)
        return self.was_asked.is_set() if broker is None else broker.state.reachability.was_probed

    @property
    def is_reachable(self) -> bool:
        """Whether the bootstrap broker can be reached."""
        if self._bootstrap.address in self._served:
            return self._served.is_reachable(self._bootstrap.address)
        return self.was_asked.is_set() and self.unreachable is None

    def advertise(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """See `AddressBook.advertise`."""
        return self._address_book.advertise(node_id, host, port)

    def bootstrap_port(self) -> ClientPort:
        """Returns the port that leads to the bootstrap broker, and by name to each broker if all share this port."""
        port = self._port_to(lambda: self._bootstrap.address)
        return port._replace(by_name=partial(self._port_by_name, port)) if self._settings.one_port else port

    def reachability_changed(self, address: Address, is_reachable: bool) -> None:
        """Notes that a client's connection to a broker has failed, or was established again after a failure.

        After a failure, the address of the broker is the last choice for a bootstrap broker.
        """
        if not is_reachable:
            self._skip(address)

    async def watch(self) -> None:
        """Opens the ports of all nodes once, for clients that know these ports from before a restart.

        After that, watches the bootstrap broker. If it is unreachable, chooses another one, and asks for the nodes
        again, because all of them may have got other addresses. A client's failed connection also changes the choice.
        But this task cannot rely on clients, because none may come while the gateway is not ready. Never returns.
        """
        while True:
            if not self._nodes_are_open or self.unreachable or self._leave_lost_broker():
                try:
                    await self._learn_nodes()
                finally:
                    self.was_asked.set()
            # If `_unnamed` is set, one broker has its copy under a configured address. Only a client's connection can
            # show whether that broker is the bootstrap broker, so no copy is created here.
            if self._nodes_are_open and self.unreachable is None and self._unnamed is None:
                self._broker_at(self._bootstrap.address)
            await trio.sleep(self._attempts.pause() if self._is_refused else NODES_SECONDS)

    def _leave_lost_broker(self) -> bool:
        """Chooses another bootstrap broker if the present one is unreachable. Returns whether it was unreachable."""
        broker = self._served.get(self._bootstrap.address)
        if broker is None or not broker.state.reachability.unreachable:
            return False
        self._skip(self._bootstrap.address)
        return True

    def _skip(self, address: Address) -> None:
        """Notes that an address cannot be reached. Logs if new clients are therefore connected to another broker."""
        before = self._bootstrap.address
        self._bootstrap.skip(address)
        changed = self._address_book.upstreams and self._bootstrap.address != before
        if changed and (times := self._log_throttle.due("another bootstrap broker")):
            now = str(self._bootstrap.address)
            log.warning("another bootstrap broker", address=now, before=str(before), times=times)

    async def _learn_nodes(self) -> None:
        """Asks the cluster for its nodes, and opens their ports. Closes the passed ports of nodes that are gone."""
        unreachable, is_refused = self.unreachable, False
        for address in self._bootstrap.to_ask():
            try:
                nodes = await self._nodes_at(address)
            except (BrokerError, DecodeError) as error:
                if not _is_refusal(error):
                    self._skip(address)
                    since = unreachable.since if unreachable else time.time()
                    unreachable = Unreachable(str(address), since, str(error))
                    self._log_failure(error)
                    continue
                # The broker refuses the sidecar's own connection. Replies to clients will name the nodes.
                is_refused = True
                if self._address_book.upstreams:
                    break
                self._log_failure(error)
            else:
                self.unreachable, self._is_refused, self._attempts.failures = None, False, 0
                self._open_listed(nodes)
                return
        self.unreachable, self._is_refused = None if is_refused else unreachable, is_refused
        self._attempts.failures += is_refused

    async def _nodes_at(self, address: Address) -> Sequence[Node]:
        """Asks at an address for the cluster's nodes. Raises BrokerError and DecodeError."""
        async with self._credentials.connect(address) as client:
            nodes = await brokers(client)
        if named := [each for each in nodes if each.id >= 0 and each.host]:
            return named
        raise BrokerUnreachable(f"{address} names no brokers")  # The broker may be about to join the cluster.

    def _open_listed(self, nodes: Sequence[Node]) -> None:
        """Opens the ports of the cluster's nodes. Known addresses of other nodes become the last choice for clients."""
        if self._open_all(nodes):
            self._nodes_are_open = True
            self._node_ports.close_unused()
        for gone in set(self._address_book.upstreams.values()) - {each.address for each in nodes}:
            self._skip(gone)

    def _log_failure(self, error: Exception) -> None:
        if times := self._log_throttle.due(str(error)):
            log.warning("the cluster cannot be asked for its nodes", cause=str(error), times=times)

    def _port_by_name(self, bootstrap: ClientPort, server_name: str | None) -> ClientPort | None:
        """Returns the port for a client that asks for a name, or None if the name leads to no broker.

        Used if all brokers share one port.

        Raises:
            BrokerNotKnownYet: the name belongs to a broker that the gateway does not know yet.
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
        return self._port_to(partial(self._address_book.upstreams.__getitem__, node_id))

    def _port_to(self, upstream: Callable[[], Address]) -> ClientPort:
        return ClientPort(self._listener.counters, upstream, self._session_at, self._listener.handshakes)

    def _session_at(self, origin: Origin, address: Address, peer: Address) -> Session:
        """Returns a session for a client of the broker at an address.

        `peer`: the address to which the socket of the broker connection is connected.

        Raises:
            NotServed: the gateway does not know which broker has the address. The cluster was unreachable when the
                client was accepted, or the brokers' own addresses have become known since then.
        """
        upstreams = self._address_book.upstreams
        if address in self._bootstrap.servers and address not in upstreams.values():
            if self.unreachable or upstreams:
                raise NotServed
            self._unnamed = peer, address
        elif address not in self._served and self._unnamed and peer == self._unnamed[0]:
            # This node is the same broker under its own address. One broker has one copy.
            self._served.put(address, self._broker_at(self._unnamed[1]))
        return self._new_session(self._broker_at(address), self._listener.counters.name, origin)

    def _open_node(self, node_id: int) -> int:
        """Opens the port of a node, unless all nodes share one port. Returns the port's number."""
        if self._settings.one_port:
            number = self._settings.advertised_port or self._listener.port()
        else:
            opened = self._node_ports.open(node_id)
            self._listener.serve(opened, self._node_port(node_id))
            number = port_of(opened)
        upstream = str(self._address_book.upstreams[node_id])
        log.info("node opened", node=node_id, name=self._names.name(node_id), port=number, upstream=upstream)
        return number

    def _open_all(self, nodes: Sequence[Node]) -> bool:
        """Opens the ports of the cluster's nodes. Returns whether all of them are open."""
        self._node_ports.forget_failed([node.id for node in nodes])
        for node in nodes:
            with suppress(ListenError):  # `NodePorts` logs the failure, and the other nodes are served.
                self._address_book.advertise(node.id, node.host, node.port)
        return not self._node_ports.failed


def _is_refusal(error: Exception) -> bool:
    """Whether an address may lead to a broker that serves clients, although the request for the nodes failed.

    `error`: why the request failed. A load balancer that reaches no broker may accept a connection, and close it or
    never answer. The result is then False.
    """
    if isinstance(error, BrokerClosed):
        # "TLS" means that a plain connection was closed without any answer. If it was closed after an answer, the
        # broker may require SASL.
        return error.may_require != "TLS"
    return not isinstance(error, BrokerUnreachable | BrokerTimeout)
