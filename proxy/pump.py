"""Moves the bytes of all connections: reads, asks the session, sends.

Owns: the sockets of a connection once both sides stand, what is kept until a peer can take it, and the closing
of both. Must not know: frames, and how connections come about.

One trio task owns an epoll of its own and waits on that epoll's descriptor. So a chunk costs no task switch, no
lock and no stream object: that is half of what trio's streams cost. What it handles at a time is bounded, so
that trio's other tasks get their turn. Each ready socket is read once, then the next one has its turn.

A peer that does not take what it is sent stops the reading from the other side. So what is kept for it is
bounded by what one read can lead to.
"""

import socket
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, epoll

import trio

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.session import Close, Command, Session, ShutUpstream, ToClient, ToUpstream

CHUNK = 262_144
"""Bytes of one read. Less costs more calls; more leaves the processor's cache between reading and sending."""
READY_AT_ONCE = 64
"""Sockets of one round. The kernel takes them in turn, so none is passed over."""
TURN_SECONDS = 0.002
"""How long rounds follow each other before trio's other tasks have a turn."""
FLUSH_SECONDS = 5.0
"""How long a connection that is over may take to hand its last bytes to the client."""
SWEEP_SECONDS = 1.0
QUIET_SECONDS = 0.2
"""While draining, a connection on which the broker spoke last, so long ago, is at rest and may be closed."""


class _End:
    """One socket of a connection, and what is kept for it."""

    __slots__ = ("backlog", "fd", "interest", "is_client", "link", "socket")

    def __init__(self, sock: socket.socket, *, is_client: bool) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.socket = sock
        self.fd = sock.fileno()
        self.is_client = is_client
        self.interest = EPOLLIN
        self.backlog: list[memoryview] = []
        self.link: _Link

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self.backlog))


class _Link:
    """One client connection and its upstream twin."""

    __slots__ = (
        "active",
        "asking",
        "client",
        "client_ended",
        "closing",
        "deaf",
        "flush_until",
        "session",
        "shut",
        "upstream",
    )

    def __init__(self, client: _End, upstream: _End, session: Session, now: float) -> None:
        self.client = client
        self.upstream = upstream
        self.session = session
        self.active = now
        """When bytes last moved on either side."""
        self.asking = False
        """The client spoke last: most likely it waits for a reply."""
        self.client_ended = False
        """The client sends nothing more."""
        self.deaf = False
        """The broker takes nothing more."""
        self.shut = False
        """The broker is to be told, behind what is kept for it."""
        self.closing: CloseReason | None = None
        self.flush_until = 0.0
        client.link = upstream.link = self


class Pump:
    """Carries connections until they end. Add them, and run it in a task.

    Args:
        traffic: is told of bytes and of connections that ended.
        idle_seconds: a connection on which the broker spoke last, so long ago, is closed; 0 for never. One that
            waits for a reply is the broker's to close: a parked JoinGroup may take as long as a client likes.
    """

    def __init__(self, traffic: Traffic, idle_seconds: float = 0.0) -> None:
        self._traffic = traffic
        self._idle_seconds = idle_seconds
        self._epoll = epoll()
        self._ends: dict[int, _End] = {}
        self._links: set[_Link] = set()
        self._now = 0.0

    @property
    def connections(self) -> int:
        """Connections that are carried now."""
        return len(self._links)

    @property
    def held_bytes(self) -> int:
        """Bytes held: of unfinished frames, and for peers that have not taken them yet."""
        return sum(link.session.held_bytes + link.client.kept_bytes + link.upstream.kept_bytes for link in self._links)

    def add(self, client: socket.socket, upstream: socket.socket, session: Session) -> None:
        """Takes over both sockets, and closes them when the connection ends.

        Raises:
            OSError: a socket is no longer connected; both are the caller's still.
        """
        ends = (_End(client, is_client=True), _End(upstream, is_client=False))
        link = _Link(*ends, session, trio.current_time())
        for end in ends:
            self._epoll.register(end.fd, EPOLLIN)
            self._ends[end.fd] = end
        self._links.add(link)

    async def run(self) -> None:
        """Carries connections until cancelled, then closes them all."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sweep)
                while True:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    self._take_turn()
        finally:
            for link in [*self._links]:
                self._finish(link, link.closing or CloseReason.SHUTDOWN)
            self._epoll.close()

    async def drain(self, seconds: float) -> None:
        """Closes each connection as soon as it is at rest. Returns when none is left, or after `seconds`."""
        with trio.move_on_after(seconds):
            while self._links:
                self._close_silent(QUIET_SECONDS, CloseReason.SHUTDOWN)
                await trio.sleep(QUIET_SECONDS / 4)

    def _take_turn(self) -> None:
        """Rounds, until nothing is ready or others should have a turn; what is left shows at the next wait."""
        ends = self._ends
        poll = self._epoll.poll
        began = trio.current_time()
        while ready := poll(0, READY_AT_ONCE):
            self._now = trio.current_time()
            for fd, events in ready:
                end = ends.get(fd)
                if end is not None:  # Its connection may have ended in this round.
                    self._serve(end, events)
            if self._now - began > TURN_SECONDS:
                return

    def _serve(self, end: _End, events: int) -> None:
        link = end.link
        try:
            wanted = end.interest
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                self._read(link, end)
            if wanted & EPOLLOUT and events & ~EPOLLIN and end.backlog and link in self._links:
                self._flush(link, end)
            elif not wanted and end.is_client and events & (EPOLLHUP | EPOLLERR):
                # It is not being read, yet epoll tells when it has gone altogether.
                self._finish(link, CloseReason.CLIENT_CLOSED)
        except Exception:  # noqa: BLE001  Whatever it is, it must not reach the other connections.
            log.exception("a connection failed", client=link.session.origin.client_host)
            self._finish(link, CloseReason.ERROR)

    def _read(self, link: _Link, end: _End) -> None:
        try:
            chunk = end.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            if end.is_client:
                self._finish(link, CloseReason.CLIENT_CLOSED)
                return
            chunk = b""  # A reset says the same as an end, after what came before it.
        session = link.session
        link.active = self._now
        link.asking = end.is_client
        if end.is_client:
            if chunk:
                self._traffic.received_bytes += len(chunk)
                self._execute(link, session.receive_client(chunk, self._now))
            else:
                link.client_ended, link.asking = True, False
                self._execute(link, session.client_closed(self._now))
        elif chunk:
            self._execute(link, session.receive_upstream(chunk, self._now))
        else:
            self._execute(link, session.upstream_closed(self._now))

    def _execute(self, link: _Link, commands: list[Command]) -> None:
        if len(commands) > 1:
            commands = _joined(commands)
        for command in commands:
            if isinstance(command, ToClient):
                if not self._send_client(link, command.data):
                    return
            elif isinstance(command, ToUpstream):
                self._send_upstream(link, command.data)
            elif isinstance(command, ShutUpstream):
                link.shut = True
                self._shut_if_sent(link)
            else:
                self._close(link, command.reason)
                return
        self._watch(link)

    def _send_client(self, link: _Link, data: bytes) -> bool:
        """Says whether the connection is still there."""
        self._traffic.sent_bytes += len(data)
        try:
            _send(link.client, data)
        except OSError:
            self._finish(link, CloseReason.CLIENT_CLOSED)
            return False
        return True

    def _send_upstream(self, link: _Link, data: bytes) -> None:
        try:
            _send(link.upstream, data)
        except OSError:
            self._give_up_upstream(link)

    def _give_up_upstream(self, link: _Link) -> None:
        """The broker takes nothing more. What it sent before that still goes to the client; then its end is read."""
        link.upstream.backlog.clear()
        link.deaf = True

    def _flush(self, link: _Link, end: _End) -> None:
        try:
            sent = end.socket.send(end.backlog[0])
        except BlockingIOError:
            return
        except OSError:
            if end.is_client:
                self._finish(link, link.closing or CloseReason.CLIENT_CLOSED)
                return
            self._give_up_upstream(link)
        else:
            link.active = self._now
            rest = end.backlog[0][sent:]
            end.backlog[:1] = [rest] if rest else []
        if link.closing and not end.backlog:
            self._finish(link, link.closing)
            return
        self._shut_if_sent(link)
        self._watch(link)

    def _shut_if_sent(self, link: _Link) -> None:
        if link.shut and not link.upstream.backlog:
            link.shut = False
            try:
                link.upstream.socket.shutdown(socket.SHUT_WR)
            except OSError:
                return  # It has gone already; reading tells.

    def _watch(self, link: _Link) -> None:
        """Asks epoll for what can be gone on with, and for nothing else."""
        client, upstream = link.client, link.upstream
        if client.backlog:
            from_client = from_upstream = 0
            to_client = EPOLLOUT
        else:
            reads = link.session.wants_client and not (upstream.backlog or link.client_ended or link.deaf)
            from_client, from_upstream, to_client = EPOLLIN if reads else 0, EPOLLIN, 0
        wanted = from_client | to_client
        if wanted != client.interest:
            client.interest = wanted
            self._epoll.modify(client.fd, wanted)
        wanted = from_upstream | (EPOLLOUT if upstream.backlog else 0)
        if wanted != upstream.interest:
            self._watch_upstream(upstream, wanted)

    def _watch_upstream(self, upstream: _End, wanted: int) -> None:
        # A broker that hangs up while it is not read would be reported for ever: so it is taken out altogether.
        if not wanted:
            self._epoll.unregister(upstream.fd)
        elif upstream.interest:
            self._epoll.modify(upstream.fd, wanted)
        else:
            self._epoll.register(upstream.fd, wanted)
        upstream.interest = wanted

    def _close(self, link: _Link, reason: CloseReason) -> None:
        """Ends a connection behind what is kept for its client."""
        if reason is CloseReason.BROKER_CLOSED and link.client_ended:
            reason = CloseReason.CLIENT_CLOSED
        if not link.client.backlog:
            self._finish(link, reason)
            return
        link.closing = reason
        link.flush_until = self._now + FLUSH_SECONDS
        link.upstream.backlog.clear()
        self._watch(link)

    def _finish(self, link: _Link, reason: CloseReason) -> None:
        """Ends a connection now. May be called more than once."""
        if link not in self._links:
            return
        self._links.discard(link)
        for end in (link.client, link.upstream):
            del self._ends[end.fd]
            end.socket.close()  # Which takes it out of the epoll.
        self._traffic.connection_closed(reason)
        try:
            link.session.close(self._now)
        except Exception:  # noqa: BLE001  As in _serve.
            log.exception("a connection failed while it was closed", client=link.session.origin.client_host)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self._now = trio.current_time()
            for link in [*self._links]:
                if link.closing and self._now > link.flush_until:
                    self._finish(link, link.closing)
            if self._idle_seconds:
                self._close_silent(self._idle_seconds, CloseReason.IDLE)

    def _close_silent(self, seconds: float, reason: CloseReason) -> None:
        before = trio.current_time() - seconds
        for link in [*self._links]:
            if link.active < before and not link.asking and not link.client.backlog:
                self._finish(link, reason)


def _send(end: _End, data: bytes) -> None:
    """Sends what the peer takes now and keeps the rest. Raises OSError where it has gone."""
    if end.backlog:
        end.backlog.append(memoryview(data))
        return
    try:
        sent = end.socket.send(data)
    except BlockingIOError:
        sent = 0
    if sent < len(data):
        end.backlog.append(memoryview(data)[sent:])


def _joined(commands: list[Command]) -> list[Command]:
    """The same with one send for each side: their order matters within a side only."""
    to_client = [command.data for command in commands if isinstance(command, ToClient)]
    to_upstream = [command.data for command in commands if isinstance(command, ToUpstream)]
    rest: list[Command] = [command for command in commands if isinstance(command, ShutUpstream | Close)]
    if to_client:
        rest.insert(0, ToClient(b"".join(to_client)))
    if to_upstream:
        rest.insert(0, ToUpstream(b"".join(to_upstream)))
    return rest
