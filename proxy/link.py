"""One connection: reads, asks its session, sends.

Owns: the sockets of a connection once both sides stand, what is kept until a peer can take it, and the closing
of both. Must not know: frames, how connections come about, how it is waited (`poller`), and other connections.

Each socket that is ready is read once, then the next one has its turn. The kernel tells only of what is new: who leaves
anything unread has to say so (`again`).

A peer that does not take what it is sent stops the reading from the other side. So what is kept for it is
bounded by what one read can lead to.
"""

from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from typing import NamedTuple

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.end import READING, End, Shortcut
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.poller import Poller
from group_sidecar.proxy.session import Session

ENDING = EPOLLRDHUP | EPOLLET
"""The epoll events of a client that is not read: the client has closed its side."""
FLUSH_SECONDS = 5.0
"""How long a connection that is over may take to hand its last bytes to the client."""
LONG_BYTES = 65_536
"""What is to come of a reply that nobody looks into is moved by the kernel, if it is so long. Requests are copied;
moved, they cost the broker and the kernel more than that saves (decision 48)."""


class Silence(NamedTuple):
    """Seconds for which no byte may move on a connection, by what the connection waits for; 0 for ever."""

    idle: float = 0.0
    """The connection waits for nothing: all replies have gone to the client."""
    stalled: float = 0.0
    """It waits for the rest of a request, or for a reply whose client sends nothing more."""
    reply: float = 0.0
    """It waits for a reply, or for a client that takes it."""


class Shared(NamedTuple):
    """What all connections of a pump have in common. `links`: those that have not ended, by their numbers."""

    poller: Poller
    traffic: Traffic
    shortcut: Shortcut
    links: dict[int, "Link"]


class Link:
    """One client connection and its upstream twin. `now`: the shell's clock.

    Attributes:
        active: when bytes last moved on either side.
        asking: the client spoke last: most likely it waits for a reply.
        flowing: both sides are read, as far as the session wants it.
        hung_up: the client sends nothing more than the bytes that wait unread in its socket.
    """

    __slots__ = (
        "active",
        "asking",
        "client",
        "client_ended",
        "closing",
        "deaf",
        "flowing",
        "flush_until",
        "hung_up",
        "session",
        "shared",
        "shut",
        "upstream",
    )

    def __init__(self, shared: Shared, client: End, upstream: End, session: Session, now: float) -> None:
        self.shared = shared
        self.client = client
        self.upstream = upstream
        self.session = session
        self.active = now
        self.asking = False
        self.flowing = True
        self.client_ended = False
        """The client sends nothing more."""
        self.deaf = False
        """The broker takes nothing more."""
        self.shut = False
        """The broker is to be told, behind what is kept for it."""
        self.closing: CloseReason | None = None
        self.flush_until = 0.0
        self.hung_up = False

    # What the poller calls.

    def client_ready(self, events: int) -> None:
        """The client's socket is ready."""
        wanted = self.client.interest
        try:
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                self._read_client(events)
            elif wanted & EPOLLOUT and events & ~EPOLLIN:
                self._flush_client()
            elif not wanted & (EPOLLIN | EPOLLOUT) and events & (EPOLLHUP | EPOLLERR):
                # It is not being read, yet epoll tells when it has gone altogether.
                self.finish(CloseReason.CLIENT_CLOSED)
            elif wanted == ENDING and events & EPOLLRDHUP:
                self.hung_up, self.asking = True, False
        except Exception:  # noqa: BLE001  Whatever it is, it must not reach the other connections.
            self.fail()

    def upstream_ready(self, events: int) -> None:
        """The broker's socket is ready."""
        wanted = self.upstream.interest
        try:
            if wanted & EPOLLIN and events & ~EPOLLOUT:
                self._read_upstream(events)
            if wanted & EPOLLOUT and events & ~EPOLLIN and self.upstream.backlog:
                self._flush_upstream()
        except Exception:  # noqa: BLE001  As above.
            self.fail()

    def give_way(self, reason: CloseReason) -> None:
        """The client's long request may not be held, or kept until its reply, any longer, for a reason."""
        try:
            self.execute(self.session.give_way(self.shared.poller.now, reason))
        except Exception:  # noqa: BLE001  As above.
            self.fail()

    def fail(self) -> None:
        """Ends a connection over the exception that is being handled."""
        log.exception("a connection failed", client=self.session.origin.client_host)
        self.finish(CloseReason.ERROR)

    # Reading.

    def _read(self, end: End, events: int) -> bytes:
        room = end.room
        chunk = end.read()
        if len(chunk) == room or (chunk and events & EPOLLRDHUP):
            self.again(end)
        return chunk

    def again(self, end: End) -> None:
        """There may be more than was read: has it called once more, even if nothing new comes."""
        self.shared.poller.change(end.fd, end.interest)

    def _read_client(self, events: int) -> None:
        try:
            chunk = self._read(self.client, events)
        except BlockingIOError:
            return
        except OSError:
            self.finish(CloseReason.CLIENT_CLOSED)
            return
        self.client_sent(chunk)

    def client_sent(self, chunk: bytes) -> None:
        """So much was read from the client; nothing at its end."""
        self.active = now = self.shared.poller.now
        if chunk:
            self.asking = True
            self.shared.traffic.received_bytes += len(chunk)
            self.execute(self.session.receive_client(chunk, now))
        else:
            self.client_ended, self.asking, self.flowing = True, False, False
            self.execute(self.session.client_closed(now))

    def _read_upstream(self, events: int) -> None:
        session = self.session
        if not session.at_ease and session.passing_replies >= LONG_BYTES and not self.client.backlog:
            self._relay_reply()
            return
        try:
            chunk = self._read(self.upstream, events)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # A reset says the same as an end, after what came before it.
        self.upstream_sent(chunk)

    def upstream_sent(self, chunk: bytes) -> None:
        """So much was read from the broker; nothing at its end."""
        session = self.session
        self.active = now = self.shared.poller.now
        self.asking = False
        self.execute(session.receive_upstream(chunk, now) if chunk else session.upstream_closed(now))

    def _relay_reply(self) -> None:
        shared, session = self.shared, self.session
        try:
            came = shared.shortcut.move(self.upstream, self.client, session.passing_replies)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.finish(CloseReason.CLIENT_CLOSED)
            return
        except OSError:
            came = 0
        self.active = now = shared.poller.now
        self.asking = False
        if not came:
            self.execute(session.upstream_closed(now))
            return
        self.again(self.upstream)
        shared.traffic.sent_bytes += came
        self.execute(session.passed_reply(came, now))

    # Sending.

    def execute(self, commands: list[Command]) -> None:
        """Does what a session said, in its order."""
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
                self.shared.traffic.sent_bytes += len(command.data)
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
            if self.client.backlog:
                self.client.flush()
        except BlockingIOError:
            return
        except OSError:
            self.finish(self.closing or CloseReason.CLIENT_CLOSED)
            return
        self.active = self.shared.poller.now
        if self.closing and not self.client.backlog:
            self.finish(self.closing)
        elif self.session.paused and not self.client.backlog:
            self.execute(self.session.resume(self.active))
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
            self.active = self.shared.poller.now
        self._shut_if_sent()
        self._watch()

    def _shut_if_sent(self) -> None:
        if self.shut and not self.upstream.backlog:
            self.shut = False
            try:
                self.upstream.shut()
            except OSError:
                return  # It has gone already; reading tells.

    def _watch(self) -> None:
        """Asks the poller for what can be gone on with, and for nothing else."""
        client, upstream = self.client, self.upstream
        if client.backlog:
            from_client, from_upstream = EPOLLOUT, 0
        elif self.session.paused:  # The next round calls it where the client takes bytes, as nearly always.
            from_client, from_upstream = EPOLLOUT, READING
        else:
            reads = self.session.wants_client and not (upstream.backlog or self.client_ended or self.deaf)
            from_client, from_upstream = READING if reads else ENDING, READING
        if from_client != client.interest:
            client.interest = from_client
            self.shared.poller.change(client.fd, from_client)
        if upstream.backlog:
            from_upstream = EPOLLIN | EPOLLOUT if from_upstream else EPOLLOUT
        if from_upstream != upstream.interest:
            self._watch_upstream(from_upstream)
        self.flowing = from_client == from_upstream == READING

    def _watch_upstream(self, wanted: int) -> None:
        # A broker that hangs up while it is not read would be reported for ever: so it is taken out altogether.
        poller, upstream = self.shared.poller, self.upstream
        if not wanted:
            poller.pause(upstream.fd)
        elif upstream.interest:
            poller.change(upstream.fd, wanted)
        else:
            poller.resume(upstream.fd, wanted)
        upstream.interest = wanted

    # Its end.

    def overdue(self, now: float, silence: Silence) -> CloseReason | None:
        """Why a connection has been silent for too long; None where it has not."""
        session, blocked = self.session, bool(self.client.backlog)
        if session.within_request and not (blocked or self.upstream.backlog):
            reason, seconds = CloseReason.STALLED, silence.stalled
        elif session.at_rest and not blocked:
            reason, seconds = CloseReason.IDLE, silence.idle
        elif self.client_ended or (self.hung_up and not self.upstream.backlog):
            reason, seconds = CloseReason.CLIENT_CLOSED, silence.stalled
        else:
            reason, seconds = CloseReason.NO_REPLY, silence.reply and session.longest_wait(silence.reply)
        return reason if seconds and now - self.active > seconds else None

    def drain(self, now: float, quiet: float) -> None:
        """Takes no further request, and ends as soon as the client has its replies. Where nobody can say what is owed,
        or the client sends nothing more, it ends when no byte has moved for so many seconds.
        """
        if self.closing:
            return
        done = self.session.stop() and not self.client.backlog
        if self.session.opaque or self.client_ended or self.hung_up:
            done = now - self.active > quiet and not (self.asking or self.client.backlog)
        if done:
            self.finish(CloseReason.SHUTDOWN)
        else:
            self._watch()

    def _close(self, reason: CloseReason) -> None:
        """Ends a connection behind what is kept for its client."""
        if reason is CloseReason.BROKER_CLOSED and self.client_ended:
            reason = CloseReason.CLIENT_CLOSED
        if not self.client.backlog:
            self.finish(reason)
            return
        self.closing = reason
        self.flush_until = self.shared.poller.now + FLUSH_SECONDS
        self.upstream.backlog.clear()
        self._watch()

    def finish(self, reason: CloseReason) -> None:
        """Ends a connection now. May be called more than once."""
        shared = self.shared
        if shared.links.pop(self.session.origin.number, None) is None:
            return
        for end in (self.client, self.upstream):
            shared.poller.forget(end.fd)
            end.close()
        shared.traffic.connection_closed(reason)
        try:
            self.session.close(shared.poller.now)
        except Exception:  # noqa: BLE001  As in client_ready.
            log.exception("a connection failed while it was closed", client=self.session.origin.client_host)


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
