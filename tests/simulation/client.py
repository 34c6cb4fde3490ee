"""A client's connection to the sidecar: sends requests, and checks that replies come in order and are right."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest
from group_sidecar.codecs.schema import Struct, decode
from tests.simulation.checker import Sent
from tests.simulation.network import Link
from tests.simulation.timeline import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

REQUEST_SECONDS = 45.0
"""Seconds within which a join or a sync must get its reply, or its connection must end. No rebalance takes longer."""
ANSWER_SECONDS = 20.0
"""Seconds within which any other request must get its reply, or its connection must end. The faults of one kind and the
longest delays together take less time."""


class FrameReader:
    """Takes frames out of a stream of bytes."""

    def __init__(self) -> None:
        self._buffer = b""

    def frames(self, data: bytes) -> list[bytes]:
        """Returns the frames that are complete now, each with its length."""
        self._buffer += data
        found = []
        while len(self._buffer) >= 4 and len(self._buffer) >= (end := 4 + int.from_bytes(self._buffer[:4], "big")):
            found.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
        return found


class SimulatedClient:
    """A client with one connection. The client connects again when the connection ends.

    `is_instant`: whether the bytes of clients of this class take no time.

    Args:
        world: the network, the broker and the checker.
        name: the client id.
        address: the IP address from which it connects.
        rng: chooses what it does.
    """

    is_instant = False

    def __init__(self, world: "World", name: str, address: str, rng: Random) -> None:
        self.world, self.name, self.address, self.rng = world, name, address, rng
        self.host = f"/{address}"
        self.stops = False
        """Whether the client begins nothing new, because the faults are over."""
        self._link: Link | None = None
        self._sent: deque[Sent] = deque()
        """The requests on this connection to which the sidecar has not replied."""
        self._waiting: deque[tuple[Sent, Callable[[Any], None]]] = deque()
        """The requests whose reply has not reached the client."""
        self._bytes_sent = self._bytes_arrived = 0
        self._arriving: deque[Sent] = deque()
        self._connections = 0

    # Connection.

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a reply has not reached the client."""
        return bool(self._waiting)

    def start(self) -> None:
        """Connects for the first time. Subclasses begin their work in `connected`."""
        self.world.timeline.after(self.rng.uniform(0.0, 1.0), self.connect)

    def connect(self) -> None:
        """Connects, or tries again later if the sidecar does not accept clients."""
        if self._link is not None:
            return
        link = self.world.connect(self)
        if link is None:
            self.world.timeline.after(self.world.scenario.reconnect * self.rng.uniform(0.5, 1.5), self.connect)
            return
        self._connections += 1
        self._link = link
        self._bytes_sent = self._bytes_arrived = 0
        self._sent, self._waiting, self._arriving = deque(), deque(), deque()
        on_sidecar, on_client = FrameReader(), FrameReader()
        connection = self._connections
        link.on_arrived = self._arrived
        link.on_sent = lambda data: self._sidecar_replied(on_sidecar.frames(data))
        link.on_ended = lambda: self._link_ended(link)
        link.peer = _ClientEnd(self, connection, on_client)
        self.connected()

    def disconnect(self) -> None:
        """Closes the connection at once, and connects again later."""
        if (link := self._link) is not None:
            self._link = None
            link.cut()
            for sent, _ in self._waiting:
                self.world.ended(sent)
            self.lost()
            self.world.timeline.after(self.away_seconds(), self.connect)

    def away_seconds(self) -> float:
        """Returns the seconds until the client connects again."""
        return self.world.scenario.reconnect * self.rng.uniform(0.2, 3.0)

    def half_close(self) -> None:
        """Closes the sending side, and reads until the sidecar closes its side."""
        if self._link is not None:
            self._link.half_close()

    def pause_reading(self, seconds: float) -> None:
        """Does not read for a while, so that the sidecar cannot send."""
        if (link := self._link) is not None:
            link.reads = False

            def go_on() -> None:
                link.reads = True
                link.collect()

            self.world.timeline.after(seconds, go_on)

    # Requests.

    def ask(self, request: Struct, version: int, done: Callable[[Any], None], *, replies: bool = True) -> None:
        """Sends a request. Calls `done` with its reply, unless the connection ends first."""
        if self._link is None:
            return
        correlation = self.world.next_correlation()
        data = encode_request(request, RequestHeader(request.KEY, version, correlation, self.name))
        self._bytes_sent += len(data)
        now = self.world.timeline.now
        sent = Sent(self, request, version, correlation, data[4:], self._bytes_sent, now)
        self.world.requests[correlation] = sent
        self.world.timeline.note(f"{self.name} sends {type(request).__name__} v{version} {correlation}")
        self._arriving.append(sent)
        if isinstance(request, JoinGroupRequest):
            self.world.joins[request.group_id].append(sent)
        if replies:
            self._sent.append(sent)
            self._waiting.append((sent, done))
            is_parked = isinstance(request, JoinGroupRequest | SyncGroupRequest)
            seconds = REQUEST_SECONDS if is_parked else ANSWER_SECONDS
            self.world.timeline.after(seconds, lambda: self._give_up(sent))
        self._link.send(data)

    def _give_up(self, sent: Sent) -> None:
        if self._link is not None and any(each is sent for each, _ in self._waiting):
            self.world.no_reply(sent)

    def _arrived(self, data: bytes) -> None:
        self._bytes_arrived += len(data)
        while self._arriving and self._arriving[0].end <= self._bytes_arrived:
            self._arriving.popleft().arrived_at = self.world.timeline.now

    def _sidecar_replied(self, frames: list[bytes]) -> None:
        """Checks replies at the moment at which the sidecar sends them."""
        for frame in frames:
            correlation = int.from_bytes(frame[4:8], "big", signed=True)
            if not self._sent:
                raise Violation(f"{self.name} gets a reply without a request, correlation id {correlation}")
            sent = self._sent.popleft()
            if correlation != sent.correlation:
                raise Violation(f"{self.name} gets correlation id {correlation} where {sent.correlation} is due")
            self.world.replied(sent, frame, _decoded(sent, frame))

    def _link_ended(self, link: Link) -> None:
        """Checks a connection that has ended. Either the sidecar closed the connection, or the client did just now.

        A stopping sidecar does not wait for the replies to a client that has closed its sending side.
        """
        if self._link is link and link.reads and link.sends and self.world.host.is_draining:
            for sent in self._sent:
                if sent.broker_reply is not None and not sent.was_reset:
                    name = type(sent.request).__name__
                    raise Violation(f"a stopping sidecar loses the reply to {name} of {self.name}")

    def received(self, frames: list[bytes]) -> None:
        """Takes replies that have reached the client."""
        for frame in frames:
            sent, done = self._waiting.popleft()
            done(_decoded(sent, frame))

    def ended(self, connection: int) -> None:
        """Called when the sidecar has closed a connection."""
        if connection == self._connections and self._link is not None:
            self.disconnect()

    # For subclasses.

    def connected(self) -> None:
        """Called when a connection is open."""

    def lost(self) -> None:
        """Called when a connection has ended."""


class _ClientEnd:
    """The client's end of one connection."""

    def __init__(self, client: SimulatedClient, connection: int, reader: FrameReader) -> None:
        self._client, self._connection, self._reader = client, connection, reader

    def received(self, data: bytes) -> None:
        """See Peer."""
        if self._client._connections == self._connection and self._client.is_connected:
            self._client.received(self._reader.frames(data))

    def closed(self) -> None:
        """See Peer."""
        self._client.ended(self._connection)


def _decoded(sent: Sent, frame: bytes) -> Any:
    response = APIS[sent.request.KEY].response
    assert response is not None
    version = sent.version
    body = split_reply(frame[4:], flexible=version >= response.HEADER_FLEXIBLE)
    error_code = int.from_bytes(body[:2], "big")
    if sent.request.KEY == ApiKey.API_VERSIONS and error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # A broker that does not know the version answers in version 0.
    try:
        return decode(response, version, body)
    except DecodeError as error:
        raise Violation(f"{sent.client.name} cannot decode a reply: {error}") from None
