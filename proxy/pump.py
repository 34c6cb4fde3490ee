"""Moves the bytes of all connections: reads, asks the session, sends.

Owns: the sockets of a connection once both sides stand, what is kept until a peer can take it, and the closing
of both. Must not know: frames, how connections come about, and how it is waited (`poller`).

Each socket that is ready is read once, then the next one has its turn.

A peer that does not take what it is sent stops the reading from the other side. So what is kept for it is
bounded by what one read can lead to.
"""

import socket
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT

import trio

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.end import End, Shortcut
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.poller import Poller
from group_sidecar.proxy.session import Session

FLUSH_SECONDS = 5.0
"""How long a connection that is over may take to hand its last bytes to the client."""
LONG_BYTES = 65_536
"""What is still to come of a frame that nobody looks into goes the short way, if it is so long."""
SWEEP_SECONDS = 1.0
QUIET_SECONDS = 0.2
"""While draining, a connection on which the broker spoke last, so long ago, is at rest and may be closed."""


class _Link:
    """One client connection and its upstream twin."""

    __slots__ = (
        "active",
        "asking",
        "client",
        "client_ended",
        "closing",
        "deaf",
        "flowing",
        "flush_until",
        "pump",
        "session",
        "shut",
        "upstream",
    )

    def __init__(self, pump: "Pump", client: End, upstream: End, session: Session, now: float) -> None:
        self.pump = pump
        self.client = client
        self.upstream = upstream
        self.session = session
        self.active = now
        """When bytes last moved on either side."""
        self.asking = False
        """The client spoke last: most likely it waits for a reply."""
        self.client_ended = False
        """The client sends nothing more."""
        self.flowing = True
        """Both sides are read, as far as the session wants it."""
        self.deaf = False
        """The broker takes nothing more."""
        self.shut = False
        """The broker is to be told, behind what is kept for it."""
        self.closing: CloseReason | None = None
        self.flush_until = 0.0

    # What the poller calls.

    def client_ready(self, events: int) -> None:
        """The client's socket is ready."""
        wanted = self.client.interest
        try:
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                self._read_client()
            elif wanted & EPOLLOUT and events & ~EPOLLIN:
                self._flush_client()
            elif not wanted and events & (EPOLLHUP | EPOLLERR):
                # It is not being read, yet epoll tells when it has gone altogether.
                self.finish(CloseReason.CLIENT_CLOSED)
        except Exception:  # noqa: BLE001  Whatever it is, it must not reach the other connections.
            self._fail()

    def upstream_ready(self, events: int) -> None:
        """The broker's socket is ready."""
        wanted = self.upstream.interest
        try:
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                self._read_upstream()
            if wanted & EPOLLOUT and events & ~EPOLLIN and self.upstream.backlog:
                self._flush_upstream()
        except Exception:  # noqa: BLE001  As above.
            self._fail()

    def _fail(self) -> None:
        log.exception("a connection failed", client=self.session.origin.client_host)
        self.finish(CloseReason.ERROR)

    # Reading.

    def _read_client(self) -> None:
        session = self.session
        if not session.at_ease and session.passing_requests >= LONG_BYTES and not self.upstream.backlog:
            self._relay_request()
            return
        try:
            chunk = self.client.read()
        except BlockingIOError:
            return
        except OSError:
            self.finish(CloseReason.CLIENT_CLOSED)
            return
        self.active = now = self.pump.poller.now
        if chunk:
            self.asking = True
            self.pump.traffic.received_bytes += len(chunk)
            self._execute(session.receive_client(chunk, now))
        else:
            self._client_ended()

    def _client_ended(self) -> None:
        self.client_ended, self.asking, self.flowing = True, False, False
        self._execute(self.session.client_closed(self.pump.poller.now))

    def _relay_request(self) -> None:
        pump, session = self.pump, self.session
        try:
            came = pump.shortcut.move(self.client, self.upstream, session.passing_requests)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._give_up_upstream()
            self._watch()
            return
        except OSError:
            self.finish(CloseReason.CLIENT_CLOSED)
            return
        self.active = pump.poller.now
        if not came:
            self._client_ended()
            return
        self.asking = True
        pump.traffic.received_bytes += came
        session.passed_request(came)
        if self.upstream.backlog:
            self._watch()

    def _read_upstream(self) -> None:
        session = self.session
        if not session.at_ease and session.passing_replies >= LONG_BYTES and not self.client.backlog:
            self._relay_reply()
            return
        try:
            chunk = self.upstream.read()
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # A reset says the same as an end, after what came before it.
        self.active = now = self.pump.poller.now
        self.asking = False
        self._execute(session.receive_upstream(chunk, now) if chunk else session.upstream_closed(now))

    def _relay_reply(self) -> None:
        pump, session = self.pump, self.session
        try:
            came = pump.shortcut.move(self.upstream, self.client, session.passing_replies)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.finish(CloseReason.CLIENT_CLOSED)
            return
        except OSError:
            came = 0
        self.active = now = pump.poller.now
        self.asking = False
        if not came:
            self._execute(session.upstream_closed(now))
            return
        pump.traffic.sent_bytes += came
        self._execute(session.passed_reply(came, now))

    # Sending.

    def _execute(self, commands: list[Command]) -> None:
        session, client, upstream = self.session, self.client, self.upstream
        if len(commands) > 1:
            commands = _joined(commands)
        for command in commands:
            if isinstance(command, ToUpstream):
                try:
                    upstream.send(command.data)
                except OSError:
                    self._give_up_upstream()
            elif isinstance(command, ToClient):
                self.pump.traffic.sent_bytes += len(command.data)
                try:
                    client.send(command.data)
                except OSError:
                    self.finish(CloseReason.CLIENT_CLOSED)
                    return
            elif isinstance(command, ShutUpstream):
                if session.at_rest and not upstream.backlog:
                    self.finish(CloseReason.CLIENT_CLOSED)  # There is nothing to wait for.
                    return
                self.shut = True
                self._shut_if_sent()
            else:
                self._close(command.reason)
                return
        if not (session.at_ease and self.flowing) or client.backlog or upstream.backlog:
            self._watch()

    def _give_up_upstream(self) -> None:
        """The broker takes nothing more. What it sent before that still goes to the client; then its end is read."""
        self.upstream.backlog.clear()
        self.deaf, self.flowing = True, False

    def _flush_client(self) -> None:
        try:
            self.client.flush()
        except BlockingIOError:
            return
        except OSError:
            self.finish(self.closing or CloseReason.CLIENT_CLOSED)
            return
        self.active = self.pump.poller.now
        if self.closing and not self.client.backlog:
            self.finish(self.closing)
            return
        self._watch()

    def _flush_upstream(self) -> None:
        try:
            self.upstream.flush()
        except BlockingIOError:
            return
        except OSError:
            self._give_up_upstream()
        else:
            self.active = self.pump.poller.now
        self._shut_if_sent()
        self._watch()

    def _shut_if_sent(self) -> None:
        if self.shut and not self.upstream.backlog:
            self.shut = False
            try:
                self.upstream.socket.shutdown(socket.SHUT_WR)
            except OSError:
                return  # It has gone already; reading tells.

    def _watch(self) -> None:
        """Asks the poller for what can be gone on with, and for nothing else."""
        client, upstream = self.client, self.upstream
        if client.backlog:
            from_client, from_upstream = EPOLLOUT, 0
        else:
            reads = self.session.wants_client and not (upstream.backlog or self.client_ended or self.deaf)
            from_client, from_upstream = EPOLLIN if reads else 0, EPOLLIN
        if from_client != client.interest:
            client.interest = from_client
            self.pump.poller.change(client.fd, from_client)
        if upstream.backlog:
            from_upstream |= EPOLLOUT
        if from_upstream != upstream.interest:
            self._watch_upstream(from_upstream)
        self.flowing = from_client == from_upstream == EPOLLIN

    def _watch_upstream(self, wanted: int) -> None:
        # A broker that hangs up while it is not read would be reported for ever: so it is taken out altogether.
        poller, upstream = self.pump.poller, self.upstream
        if not wanted:
            poller.pause(upstream.fd)
        elif upstream.interest:
            poller.change(upstream.fd, wanted)
        else:
            poller.resume(upstream.fd, wanted)
        upstream.interest = wanted

    # Its end.

    def _close(self, reason: CloseReason) -> None:
        """Ends a connection behind what is kept for its client."""
        if reason is CloseReason.BROKER_CLOSED and self.client_ended:
            reason = CloseReason.CLIENT_CLOSED
        if not self.client.backlog:
            self.finish(reason)
            return
        self.closing = reason
        self.flush_until = self.pump.poller.now + FLUSH_SECONDS
        self.upstream.backlog.clear()
        self._watch()

    def finish(self, reason: CloseReason) -> None:
        """Ends a connection now. May be called more than once."""
        pump = self.pump
        if self not in pump.links:
            return
        pump.links.discard(self)
        for end in (self.client, self.upstream):
            pump.poller.forget(end.fd)
            end.socket.close()
        pump.traffic.connection_closed(reason)
        try:
            self.session.close(pump.poller.now)
        except Exception:  # noqa: BLE001  As in client_ready.
            log.exception("a connection failed while it was closed", client=self.session.origin.client_host)


class Pump:
    """Carries connections until they end. Add them, and run it in a task.

    Args:
        poller: calls when sockets are ready.
        traffic: is told of bytes and of connections that ended.
        idle_seconds: a connection on which the broker spoke last, so long ago, is closed; 0 for never. One that
            waits for a reply is the broker's to close: a parked JoinGroup may take as long as a client likes.
    """

    def __init__(self, poller: Poller, traffic: Traffic, idle_seconds: float = 0.0) -> None:
        self.poller = poller
        self.traffic = traffic
        self.shortcut = Shortcut()
        self.links: set[_Link] = set()
        self._idle_seconds = idle_seconds

    @property
    def connections(self) -> int:
        """Connections that are carried now."""
        return len(self.links)

    @property
    def held_bytes(self) -> int:
        """Bytes held: of unfinished frames, and for peers that have not taken them yet."""
        return sum(link.session.held_bytes + link.client.kept_bytes + link.upstream.kept_bytes for link in self.links)

    def add(self, client: socket.socket, upstream: socket.socket, session: Session) -> None:
        """Takes over both sockets and closes them when the connection ends.

        Raises:
            OSError: a socket is no longer connected; both are the caller's still.
        """
        link = _Link(self, End(client), End(upstream), session, trio.current_time())
        self.poller.watch(link.client.fd, EPOLLIN, link.client_ready)
        try:
            self.poller.watch(link.upstream.fd, EPOLLIN, link.upstream_ready)
        except OSError:
            self.poller.forget(link.client.fd)
            raise
        self.links.add(link)

    async def run(self) -> None:
        """Ends what has been silent too long until cancelled, then closes all connections."""
        try:
            while True:
                await trio.sleep(SWEEP_SECONDS)
                now = trio.current_time()
                for link in [*self.links]:
                    if link.closing and now > link.flush_until:
                        link.finish(link.closing)
                if self._idle_seconds:
                    self._close_silent(self._idle_seconds, CloseReason.IDLE)
        finally:
            for link in [*self.links]:
                link.finish(link.closing or CloseReason.SHUTDOWN)
            self.shortcut.close()

    async def drain(self, seconds: float) -> None:
        """Closes each connection as soon as it is at rest. Returns when none is left, or after `seconds`."""
        with trio.move_on_after(seconds):
            while self.links:
                self._close_silent(QUIET_SECONDS, CloseReason.SHUTDOWN)
                await trio.sleep(QUIET_SECONDS / 4)

    def _close_silent(self, seconds: float, reason: CloseReason) -> None:
        before = trio.current_time() - seconds
        for link in [*self.links]:
            if link.active < before and not link.asking and not link.client.backlog:
                link.finish(reason)


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
