"""Carries one client connection and its broker connection: reads, asks the session, sends and closes.

A ready socket is read once, and then the poller serves other sockets. Epoll is edge-triggered and reports new bytes
once. A connection that leaves bytes unread must call `rearm`.

A connection that has lately caused much work is read only in turns of the poller (`Poller.add_turn`). So clients that
ask for little do not wait for the others.

While a peer does not accept bytes, the connection does not read the other side. So the backlog of a peer is at most
about as large as one read.

The module has more than 400 lines because reading, sending and closing change the same few fields.
"""

import math
from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from ssl import SSLError
from typing import NamedTuple

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters, ReadPause
from group_sidecar.proxy.dataplane.buffer_budget import FREE_BYTES, BufferBudget
from group_sidecar.proxy.dataplane.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.connections_per_address import ConnectionsPerAddress
from group_sidecar.proxy.dataplane.delivered_closes import DeliveredCloses
from group_sidecar.proxy.dataplane.endpoint_socket import READ_EVENTS, SMALL_READ_BYTES, EndpointSocket, SplicePipe
from group_sidecar.proxy.dataplane.framing import PASS, FrameAction
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.dataplane.session import Session
from group_sidecar.proxy.runtime.logging import log

HANGUP_EVENTS = EPOLLRDHUP | EPOLLET
"""The epoll events of a client that is not read. Epoll then reports only that the client has closed its side."""
FLUSH_SECONDS = 5.0
"""The seconds that a closing connection may take to send its last bytes to the client."""
CONTROL_RECORD_COST = 2_048
"""The work of a TLS record without bytes for the session, in bytes as `Session` counts work. A key update takes 30 us,
and a session ticket 10 us."""
LONG_BYTES = 65_536
"""If at least this many bytes of a forwarded reply have not arrived yet, and neither side has TLS, the kernel moves the
bytes (splice). Requests are always copied: splicing requests costs the broker and the kernel more than it saves
(decision 48)."""


class InactivityTimeouts(NamedTuple):
    """The seconds after which a connection without traffic is closed. The limit depends on what the connection waits
    for. 0 means no limit.
    """

    idle: float = 0.0
    """The connection waits for nothing: the client has all replies."""
    stalled: float = 0.0
    """The connection waits for the rest of a request, or for a reply to a client that has closed its side."""
    reply: float = 0.0
    """The connection waits for a reply, or for the client to accept a reply."""
    authentication: float = 0.0
    """The broker requires SASL and has not admitted the client. The seconds count from the start of the connection."""


class SharedResources(NamedTuple):
    """The resources that all connections of a connection manager share.

    Attributes:
        connections: the open connections by number.
        delivered_closes: the clients' sockets that are closed as soon as the clients have received the last bytes.
        per_address: how many connections each client address has.
        budget: the bytes that all connections hold.
    """

    poller: Poller
    splice_pipe: SplicePipe
    connections: dict[int, "Connection"]
    delivered_closes: DeliveredCloses
    per_address: ConnectionsPerAddress
    budget: BufferBudget


class Connection:
    """One client connection and its broker connection. `now`: the time on the poller's clock.

    Attributes:
        counters: the counters of the client's listener.
        last_active: when bytes last moved on either side.
        awaits_reply: whether the client sent the last bytes, so that it probably waits for a reply.
        flowing: whether both sides are read.
        is_plain: whether neither side has TLS, so that the kernel can move bytes from one socket to the other.
        counted_bytes: the bytes that this connection has counted towards the budget.
        authentication_due: when the next check for authentication is due. Infinite if there is no timeout, or if the
            broker has admitted the client.
        client_hung_up: whether the client has closed its side. The client's socket may still contain unread bytes.
        waits_for_turn: whether the connection waits for a turn of the poller. During the wait, the connection counts as
            active.
    """

    __slots__ = (
        "_client_events",
        "_held_back",
        "_pause_counted",
        "_poller",
        "_upstream_events",
        "authentication_due",
        "awaits_reply",
        "client",
        "client_ended",
        "client_hung_up",
        "close_reason",
        "counted_bytes",
        "counters",
        "flowing",
        "flush_deadline",
        "is_plain",
        "last_active",
        "session",
        "shared",
        "shut",
        "upstream",
        "upstream_write_failed",
        "waits_for_turn",
    )

    def __init__(
        self,
        shared: SharedResources,
        client: EndpointSocket,
        upstream: EndpointSocket,
        session: Session,
        counters: ListenerCounters,
        now: float,
    ) -> None:
        self.shared = shared
        self._poller = shared.poller
        self.counters = counters
        self.client = client
        self.upstream = upstream
        self.session = session
        self.is_plain = client.is_plain and upstream.is_plain
        self.last_active = now
        self.awaits_reply = False
        self.flowing = True
        self.counted_bytes = 0
        self._held_back = False
        """Whether the client is not read because of the budget."""
        self._pause_counted = False
        """Whether a read pause was counted since the client was last read."""
        self.authentication_due = math.inf
        self.client_ended = False
        """Whether the end of the client's stream was read."""
        self.upstream_write_failed = False
        """Whether the broker accepts no more bytes."""
        self.shut = False
        """Whether the sending side towards the broker must be shut down after the pending bytes."""
        self.close_reason: CloseReason | None = None
        self.flush_deadline = 0.0
        self.client_hung_up = False
        self.waits_for_turn = False
        self._client_events = 0
        """The epoll events of the client's socket that are handled in the next turn of this connection."""
        self._upstream_events = 0
        """The epoll events of the broker's socket that are handled in the next turn of this connection."""

    # Called by the poller.

    def client_ready(self, events: int) -> None:
        """Serves the client's socket, which is ready or broken."""
        wanted = self.client.interest
        try:
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                if self.session.takes_turns:
                    self._client_events |= events
                    self._wait_for_turn()
                else:
                    self._read_client(events)
            elif wanted & EPOLLOUT and events & ~EPOLLIN:
                self._flush_client()
            elif not wanted & (EPOLLIN | EPOLLOUT) and events & (EPOLLHUP | EPOLLERR):
                # The client is not read, but epoll still reports a connection that is closed on both sides or broken.
                self.finish(CloseReason.CLIENT_CLOSED)
            elif wanted == HANGUP_EVENTS and events & EPOLLRDHUP:
                self.client_hung_up, self.awaits_reply = True, False
        except Exception:  # noqa: BLE001  No exception of this connection may end other connections.
            self.fail()

    def upstream_ready(self, events: int) -> None:
        """Serves the broker's socket, which is ready or broken."""
        wanted = self.upstream.interest
        try:
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                if self.session.takes_turns:
                    self._upstream_events |= events
                    self._wait_for_turn()
                else:
                    self._read_upstream(events)
            if wanted & EPOLLOUT and events & ~EPOLLIN and self.upstream.backlog:
                self._flush_upstream()
        except Exception:  # noqa: BLE001  No exception of this connection may end other connections.
            self.fail()

    def _wait_for_turn(self) -> None:
        if not self.waits_for_turn:
            self.waits_for_turn = True
            self._poller.add_turn(self._take_turn)

    def _take_turn(self) -> None:
        """Serves requests that wait, and reads the sides that have waited for the turn. A side that may not be read now
        is skipped, and the poller reports it again as soon as the side may be read.
        """
        client_events, self._client_events = self._client_events, 0
        upstream_events, self._upstream_events = self._upstream_events, 0
        self.waits_for_turn = False
        session = self.session
        try:
            if self._is_open and session.paused and not self.client.backlog:
                self.last_active = self._poller.now
                self.execute(session.resume(self.last_active))
            if upstream_events and self._is_open and self.upstream.interest & EPOLLIN:
                self._read_upstream(upstream_events)
            if client_events and self._is_open and self.client.interest & EPOLLIN:
                self._read_client(client_events)
        except Exception:  # noqa: BLE001  No exception of this connection may end other connections.
            self.fail()

    @property
    def _is_open(self) -> bool:
        return self.session.origin.number in self.shared.connections

    def evict_held_request(self, reason: CloseReason) -> None:
        """Gives up the incomplete request. If there is none, gives up the long requests that wait for their replies.
        `reason` is counted if the connection must be closed.
        """
        try:
            self.execute(self.session.evict_held_request(self._poller.now, reason))
        except Exception:  # noqa: BLE001  No exception of this connection may end other connections.
            self.fail()

    def fail(self) -> None:
        """Logs the exception that is being handled and closes the connection."""
        log.exception("a connection failed", client=self.session.origin.client_host)
        self.finish(CloseReason.ERROR)

    # Reading.

    def read(self, endpoint: EndpointSocket, events: int) -> bytes:
        """Reads a chunk.

        Raises:
            BlockingIOError: no bytes have arrived.
            OSError: the connection is broken.
        """
        if self.shared.budget.exceeded:
            endpoint.read_size = min(endpoint.read_size, FREE_BYTES)
        try:
            chunk = endpoint.read()
        except BlockingIOError:
            # A part of a TLS record was read. The socket may contain the rest of the record, or the end of the stream.
            self._read_on(endpoint, events)
            raise
        if chunk:
            self._read_on(endpoint, events)
        return chunk

    def _read_on(self, endpoint: EndpointSocket, events: int) -> None:
        """Makes sure that bytes which the last read has left are read later, and counts control records as work."""
        if endpoint.control_records:
            self.session.add_work(endpoint.control_records * CONTROL_RECORD_COST, self._poller.now)
        if endpoint.is_read_ahead:
            self._wait_to_read_on(endpoint)
            self.count_held()
        elif endpoint.may_have_more or events & EPOLLRDHUP:
            self.rearm(endpoint)

    def _wait_to_read_on(self, endpoint: EndpointSocket) -> None:
        """Waits for a turn to read bytes that were read ahead, because epoll does not report them."""
        if endpoint is self.client:
            self._client_events |= EPOLLIN
        else:
            self._upstream_events |= EPOLLIN
        self._wait_for_turn()

    def rearm(self, endpoint: EndpointSocket) -> None:
        """Makes epoll report a socket again that may contain unread bytes, even if no new bytes arrive."""
        self._poller.change(endpoint.fd, endpoint.interest)

    def _read_client(self, events: int) -> None:
        try:
            chunk = self.read(self.client, events)
        except BlockingIOError:
            return
        except OSError as error:
            self.client_failed(error)
            return
        self.receive_from_client(chunk)

    def client_failed(self, error: OSError) -> None:
        """Closes the connection because its client cannot be read."""
        self.finish(CloseReason.TLS_FAILED if isinstance(error, SSLError) else CloseReason.CLIENT_CLOSED)

    def receive_rest(self) -> None:
        """Serves bytes of the client that arrived before the poller watched its socket."""
        try:
            rest = self.client.read_rest()
            for endpoint in (self.client, self.upstream):
                if endpoint.is_read_ahead:
                    self._wait_to_read_on(endpoint)
            if rest:
                self.receive_from_client(rest)
        except OSError as error:
            self.client_failed(error)
        except Exception:  # noqa: BLE001  No exception of this connection may end other connections.
            self.fail()

    def receive_from_client(self, chunk: bytes) -> None:
        """Serves a chunk that was read from the client. An empty chunk is the end of the stream."""
        self.last_active = now = self._poller.now
        if chunk:
            self.awaits_reply = True
            self.counters.received_bytes += len(chunk)
            self.execute(self.session.receive_client(chunk, now))
        else:
            self.client_ended, self.awaits_reply, self.flowing = True, False, False
            self.execute(self.session.client_closed(now))

    @property
    def reads_client_on_fast_path(self) -> bool:
        """Whether the compiled fast path may read the client in place of `client_ready`."""
        return self.flowing and self.session.can_use_fast_path and self.client.read_size == SMALL_READ_BYTES

    def inspect_request(self, chunk: bytes) -> FrameAction:
        """Receives a chunk of the client for the compiled fast path, and returns how the chunk is treated.

        After PASS the caller must send the chunk to the broker. After any other action the caller must call
        `execute_inspected_request`.
        """
        session = self.session
        self.last_active = now = self._poller.now
        self.awaits_reply = True
        self.counters.received_bytes += len(chunk)
        action = session.inspect_request(chunk, now)
        if action is PASS and not session.can_use_fast_path:
            self._watch()
        return action

    def execute_inspected_request(self, chunk: bytes, action: FrameAction) -> None:
        """Serves a chunk of the client for which `inspect_request` has just returned this action."""
        self.execute(self.session.receive_inspected_request(chunk, action))

    def _read_upstream(self, events: int) -> None:
        session = self.session
        if (
            not session.can_use_fast_path
            and session.passthrough_reply_bytes >= LONG_BYTES
            and self.is_plain
            and not self.client.backlog
        ):
            self._splice_reply()
            return
        try:
            chunk = self.read(self.upstream, events)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # A reset is handled like the end of the stream.
        self.receive_from_upstream(chunk)

    def receive_from_upstream(self, chunk: bytes) -> None:
        """Serves a chunk that was read from the broker. An empty chunk is the end of the stream."""
        session = self.session
        self.last_active = now = self._poller.now
        self.awaits_reply = False
        self.execute(session.receive_upstream(chunk, now) if chunk else session.upstream_closed(now))

    @property
    def reads_upstream_on_fast_path(self) -> bool:
        """Whether the compiled fast path may read the broker in place of `upstream_ready`."""
        return self.flowing and self.session.can_use_fast_path and self.upstream.read_size == SMALL_READ_BYTES

    def inspect_reply(self, chunk: bytes) -> FrameAction:
        """Receives a chunk of the broker for the compiled fast path. See `inspect_request`."""
        self.last_active = now = self._poller.now
        self.awaits_reply = False
        return self.session.inspect_reply(chunk, now)

    def execute_inspected_reply(self, chunk: bytes, action: FrameAction) -> None:
        """Serves a chunk of the broker for which `inspect_reply` has just returned this action."""
        self.execute(self.session.receive_inspected_reply(chunk, action))

    def _splice_reply(self) -> None:
        shared, session = self.shared, self.session
        max_bytes = session.passthrough_reply_bytes
        if shared.budget.exceeded:
            max_bytes = min(max_bytes, FREE_BYTES)
        try:
            received = shared.splice_pipe.splice(self.upstream, self.client, max_bytes)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.finish(CloseReason.CLIENT_CLOSED)
            return
        except OSError:
            received = 0
        self.last_active = now = self._poller.now
        self.awaits_reply = False
        if not received:
            self.execute(session.upstream_closed(now))
            return
        self.rearm(self.upstream)
        self.counters.sent_bytes += received
        self.execute(session.forwarded_reply_bytes(received, now))

    # Sending.

    def execute(self, commands: list[Command]) -> None:
        """Executes the commands of the session in order."""
        session, client, upstream = self.session, self.client, self.upstream
        if len(commands) > 1:
            commands = _coalesced(commands)
        for command in commands:
            if isinstance(command, ToUpstream):
                try:
                    upstream.send(command.data)
                except OSError:
                    self._give_up_upstream()
            elif isinstance(command, ToClient):
                self.counters.sent_bytes += len(command.data)
                try:
                    client.send(command.data)
                except OSError:
                    self.finish(CloseReason.CLIENT_CLOSED)
                    return
            elif isinstance(command, ShutUpstream):
                if session.is_idle and not upstream.backlog:
                    self.finish(CloseReason.CLIENT_CLOSED)  # No reply is owed.
                    return
                self.shut = True
                self._shut_if_sent()
            else:
                self._close(command.reason)
                return
        if not (session.can_use_fast_path and self.flowing) or client.backlog or upstream.backlog:
            self._watch()

    def send_rest(self, endpoint: EndpointSocket, rest: bytes) -> None:
        """Sends bytes that the outbox of the compiled fast path could not send. With TLS, these bytes are already
        encrypted.
        """
        try:
            endpoint.send_wire(rest)
        except OSError:
            if endpoint is self.client:
                self.finish(CloseReason.CLIENT_CLOSED)
                return
            self._give_up_upstream()
        self._watch()

    def _give_up_upstream(self) -> None:
        """Drops the backlog of a broker that accepts no more bytes. Replies that the broker has sent still go to the
        client.
        """
        self.upstream.backlog.clear()
        self.upstream_write_failed, self.flowing = True, False

    def _flush_client(self) -> None:
        try:
            if self.client.backlog:
                self.client.flush()
        except BlockingIOError:
            return
        except OSError:
            self.finish(self.close_reason or CloseReason.CLIENT_CLOSED)
            return
        self.last_active = self._poller.now
        if self.close_reason and not self.client.backlog:
            self.finish(self.close_reason)
        else:
            self._watch()

    def _flush_upstream(self) -> None:
        try:
            self.upstream.flush()
        except BlockingIOError:
            return
        except OSError:
            self._give_up_upstream()
        else:
            self.last_active = self._poller.now
        self._shut_if_sent()
        self._watch()

    def _shut_if_sent(self) -> None:
        if self.shut and not self.upstream.backlog:
            self.shut = False
            try:
                self.upstream.shut()
            except OSError:
                return  # The broker has closed. The next read reports the close.

    def _watch(self) -> None:
        """Updates the epoll events of both sockets to the events that this connection can serve now."""
        client, upstream = self.client, self.upstream
        self.count_held()
        waits_for_reply = self._check_budget()
        if client.backlog:
            from_client, from_upstream = EPOLLOUT, 0
        else:
            if self.session.paused:
                self._wait_for_turn()
            reads = self.session.should_read_client and not (
                upstream.backlog or self.client_ended or self.upstream_write_failed or self._held_back
            )
            from_client = READ_EVENTS if reads else HANGUP_EVENTS
            from_upstream = 0 if self.session.replies_wait or waits_for_reply else READ_EVENTS
        if from_client != HANGUP_EVENTS:
            self._pause_counted = False
        elif not self._pause_counted:
            self._count_pause()
        if from_client != client.interest:
            client.interest = from_client
            self._poller.change(client.fd, from_client)
        if upstream.backlog:
            from_upstream = EPOLLIN | EPOLLOUT if from_upstream else EPOLLOUT
        if from_upstream != upstream.interest:
            self._watch_upstream(from_upstream)
        self.flowing = from_client == from_upstream == READ_EVENTS
        for endpoint in (client, upstream):
            if endpoint.is_read_ahead and endpoint.interest & EPOLLIN:
                self._wait_to_read_on(endpoint)

    @property
    def held_bytes(self) -> int:
        """The number of bytes that the session holds, that the backlogs contain, or that were read ahead."""
        held = self.session.held_bytes
        if self.client.backlog or self.upstream.backlog:
            held += self.client.backlog_bytes + self.upstream.backlog_bytes
        return held + self._read_ahead_bytes

    @property
    def _read_ahead_bytes(self) -> int:
        client, upstream = self.client, self.upstream
        if client.is_read_ahead or upstream.is_read_ahead:
            return client.read_ahead_bytes + upstream.read_ahead_bytes
        return 0

    def count_held(self) -> None:
        """Counts what this connection holds towards the budget of all connections."""
        held = self.held_bytes
        if held != self.counted_bytes:
            difference, self.counted_bytes = held - self.counted_bytes, held
            self.shared.budget.add(difference)

    def keep_to_budget(self) -> None:
        """Stops or resumes reading, as the budget of all connections demands."""
        if not self.close_reason and self._is_open:
            self._watch()

    def _check_budget(self) -> bool:
        """Decides whether the budget holds the client back. Returns whether the rest of a reply must wait."""
        budget, session = self.shared.budget, self.session
        self._held_back = False
        if not budget.exceeded:
            return False
        number = session.origin.number
        if self.client.backlog or session.partial_reply_bytes <= FREE_BYTES:
            budget.end_reply(number)
        if self.client.backlog:
            return False
        held = self.counted_bytes - session.partial_request_bytes - self._read_ahead_bytes
        self._held_back = budget.must_pause(number, held, self.keep_to_budget)
        return session.partial_reply_bytes > FREE_BYTES and budget.must_wait_for_reply(number, self.keep_to_budget)

    def _count_pause(self) -> None:
        """Counts a read pause, if a limit is its reason.

        A pause may begin for another reason, for example because requests wait for a turn. Such a pause is counted only
        if the client reaches a limit later.
        """
        session = self.session
        if self._held_back:
            reason = ReadPause.BUFFERED_BYTES
        elif not session.has_room:
            full = len(session.in_flight) >= session.max_in_flight
            reason = ReadPause.IN_FLIGHT_REQUESTS if full else ReadPause.KEPT_BYTES
        else:
            return
        self._pause_counted = True
        self.counters.read_pauses[reason] += 1

    def _watch_upstream(self, wanted: int) -> None:
        # While the socket is not read, epoll would report a closed broker connection in each round. So epoll does not
        # watch a socket that is not read.
        poller, upstream = self._poller, self.upstream
        if not wanted:
            poller.pause(upstream.fd)
        elif upstream.interest:
            poller.change(upstream.fd, wanted)
        else:
            poller.resume(upstream.fd, wanted)
        upstream.interest = wanted

    # Closing.

    def overdue(self, now: float, timeouts: InactivityTimeouts) -> CloseReason | None:
        """Returns the reason to close a connection that was without traffic for too long, otherwise None."""
        session, blocked = self.session, bool(self.client.backlog)
        if self.waits_for_turn:
            return None
        if session.within_request and not (blocked or self.upstream.backlog or self._held_back):
            reason, seconds = CloseReason.STALLED, timeouts.stalled
        elif session.is_idle and not blocked:
            reason, seconds = CloseReason.IDLE, timeouts.idle
        elif self.client_ended or (self.client_hung_up and not self.upstream.backlog):
            reason, seconds = CloseReason.CLIENT_CLOSED, timeouts.stalled
        else:
            reason, seconds = CloseReason.NO_REPLY, timeouts.reply and session.max_reply_seconds(timeouts.reply)
        return reason if seconds and now - self.last_active > seconds else None

    def is_too_slow(self, now: float, seconds: float) -> bool:
        """Whether a held request arrives too slowly. See `Session.is_too_slow`."""
        return self.session.is_too_slow(now, seconds, flowing=self.flowing and not self.waits_for_turn)

    def drain(self, now: float, quiet: float) -> None:
        """Accepts no further request, and closes the connection when the client has all replies.

        If the session does not parse the connection, or the client has closed its side, the connection closes after
        `quiet` seconds without traffic. But the connection stays open while the client probably waits for a reply.
        """
        if self.close_reason:
            return
        done = self.session.stop() and not (self.client.backlog or self.upstream.backlog)
        if self.session.opaque or self.client_ended or self.client_hung_up:
            done = now - self.last_active > quiet and not (self.awaits_reply or self.client.backlog)
        if done:
            self.finish(CloseReason.SHUTDOWN, delivered=True)
        else:
            self._watch()

    def _close(self, reason: CloseReason) -> None:
        """Sends the pending bytes to the client, then closes the connection."""
        if reason is CloseReason.BROKER_CLOSED and self.client_ended:
            reason = CloseReason.CLIENT_CLOSED
        if not self.client.backlog:
            self.finish(reason)
            return
        self.close_reason = reason
        self.flush_deadline = self._poller.now + FLUSH_SECONDS
        self.upstream.backlog.clear()
        self._watch()

    def finish(self, reason: CloseReason, *, delivered: bool = False) -> None:
        """Closes the connection now. May be called more than once.

        `delivered`: whether the client's socket stays open until the client has received all bytes.
        """
        shared = self.shared
        number = self.session.origin.number
        if shared.connections.pop(number, None) is None:
            return
        shared.budget.forget(number, self.counted_bytes)
        shared.per_address.remove(self.session.origin.client_host)
        for endpoint in (self.client, self.upstream):
            self._poller.forget(endpoint.fd)
        self.upstream.close()
        if delivered:
            self._poller.pause(self.client.fd)
            shared.delivered_closes.close(self.client, self._poller.now)
        else:
            self.client.close()
        self.counters.connection_closed(reason)
        self.session.close(self._poller.now)


def _coalesced(commands: list[Command]) -> list[Command]:
    """Merges the sends of each side into one. Only the order within one side matters."""
    to_client = [command.data for command in commands if isinstance(command, ToClient)]
    to_upstream = [command.data for command in commands if isinstance(command, ToUpstream)]
    rest: list[Command] = [command for command in commands if isinstance(command, ShutUpstream | Close)]
    if to_client:
        rest.insert(0, ToClient(b"".join(to_client)))
    if to_upstream:
        rest.insert(0, ToUpstream(b"".join(to_upstream)))
    return rest
