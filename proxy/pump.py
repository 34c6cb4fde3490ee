"""Carries all connections, until they end.

Owns: which connections there are, ending those that are silent too long or have had their last bytes, draining. Must
not know: what a connection does with what is read (`link`), frames, how connections come about.
"""

from collections.abc import Iterable

import trio

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.end import End, Shortcut, keep_read_buffers
from group_sidecar.proxy.link import Link, Shared, Silence
from group_sidecar.proxy.poller import Poller
from group_sidecar.proxy.session import Session
from group_sidecar.proxy.supervision import Supervisor, Task

try:
    from group_sidecar.proxy.short_way import Outbox, ShortWay

    SHORT_WAY: type[ShortWay] | None = ShortWay
except ImportError:  # It was installed where nothing could compile it.
    SHORT_WAY = None

SWEEP_SECONDS = 1.0
SWEPT_AT_ONCE = 500
"""Connections that are looked at between two breaths: about a millisecond."""
QUIET_SECONDS = 0.2
"""While draining, a connection that is not parsed is at rest if no byte has moved for so long."""
NEVER = Silence()


class Pump:
    """Carries connections until they end. Add them, and run it in a task.

    Args:
        poller: calls when sockets are ready.
        traffic: is told of bytes and of connections that ended.
        silence: how long a connection may be silent before it is closed.
        together: small frames of one round leave in one system call, where they go the compiled way and the kernel
            allows it.
    """

    def __init__(self, poller: Poller, traffic: Traffic, silence: Silence = NEVER, *, together: bool = True) -> None:
        keep_read_buffers()
        self.poller = poller
        self._outbox = Outbox(together) if SHORT_WAY else None
        if self._outbox:
            poller.after_rounds(self._outbox.leave)
        self._shared = Shared(poller, traffic, Shortcut(), {})
        poller.after_rounds(self._shared.shortcut.give_way)
        self._links = self._shared.links
        self._silence = silence

    @property
    def connections(self) -> int:
        """Connections that are carried now."""
        return len(self._links)

    @property
    def small_frames(self) -> str:
        """How they are sent, for people."""
        if not self._outbox:
            return "not compiled"
        return "compiled, sent together" if self._outbox.together else "compiled, sent one by one"

    @property
    def held_bytes(self) -> int:
        """Bytes held: of unfinished frames, and for peers that have not taken them yet."""
        links = self._links.values()
        return sum(link.session.held_bytes + link.client.kept_bytes + link.upstream.kept_bytes for link in links)

    def add(self, client: int, upstream: int, session: Session) -> None:
        """Takes over both sockets, by descriptors that do not block, and closes them when the connection ends.

        Raises:
            OSError: a socket is no longer connected; both are the caller's still.
        """
        link = Link(self._shared, End(client), End(upstream), session, trio.current_time())
        way = SHORT_WAY(link, self._outbox) if SHORT_WAY and self._outbox else link
        self.poller.watch(link.client.fd, link.client.interest, way.client_ready)
        try:
            self.poller.watch(link.upstream.fd, link.upstream.interest, way.upstream_ready)
        except OSError:
            self.poller.forget(link.client.fd)
            raise
        self._links[session.origin.number] = link

    def give_way(self, connections: Iterable[int]) -> None:
        """Has these connections hold and keep no long request any longer, since others need the room."""
        for number in connections:
            if (link := self._links.get(number)) is not None:
                link.give_way(CloseReason.REQUEST_TOO_LONG)

    async def run(self, supervisor: Supervisor | None = None) -> None:
        """Ends what has been silent too long until cancelled, then closes all connections."""
        try:
            await (supervisor or Supervisor()).keep(Task.CONNECTIONS, self._sweep_forever)
        finally:
            for link in [*self._links.values()]:
                link.finish(link.closing or CloseReason.SHUTDOWN)
            self._shared.shortcut.close()

    async def _sweep_forever(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            left = [*self._links]
            while left:
                self._sweep(left, trio.current_time())
                await trio.lowlevel.checkpoint()

    def _sweep(self, left: list[int], now: float) -> None:
        # Not in `_sweep_forever`, whose variables would keep the last connection that they named, and all that it held.
        stalled = self._silence.stalled
        for link in self._next_of(left):
            if link.closing:
                if now > link.flush_until:
                    link.finish(link.closing)
            elif reason := link.overdue(now, self._silence):
                link.finish(reason)
            elif stalled and link.session.lags(now, stalled, flowing=link.flowing):
                link.give_way(CloseReason.STALLED)

    def _next_of(self, left: list[int]) -> list[Link]:
        """Takes some connections off those that are left to look at. Leaves out those that have ended."""
        some = [link for number in left[-SWEPT_AT_ONCE:] if (link := self._links.get(number)) is not None]
        del left[-SWEPT_AT_ONCE:]
        return some

    async def drain(self, seconds: float) -> None:
        """Ends each connection between two frames: none takes a further request, and each client gets the replies that
        it is owed. Returns when no connection is left, or after `seconds`.
        """
        with trio.move_on_after(seconds):
            while self._links:
                left = [*self._links]
                while left:
                    self._drain(left, trio.current_time())
                    await trio.lowlevel.checkpoint()
                await trio.sleep(QUIET_SECONDS / 4)

    def _drain(self, left: list[int], now: float) -> None:
        for link in self._next_of(left):
            link.drain(now, QUIET_SECONDS)
