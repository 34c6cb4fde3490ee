"""A connection to the model broker: takes requests out of the stream, and handles them one at a time."""

import math
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Effect
from tests.simulation.network import Reset

if TYPE_CHECKING:
    from tests.simulation.kafka import Kafka


class HangUp(Exception):
    """Raised when the broker closes the connection instead of replying."""


class BrokerConnection:
    """A connection to the broker. Requests are handled one at a time, as Kafka handles them.

    Attributes:
        link: carries replies to the sidecar.
        owner: the client whose requests arrive here; None before the first.
        was_reset: whether a `Reset` has broken the connection, or will break it when the broker has the next reply.
    """

    def __init__(self, kafka: "Kafka", link: Any) -> None:
        self._kafka, self.link = kafka, link
        self._buffer = b""
        self._effects: list[Effect] = []
        self.owner: str | None = None
        self._is_busy = self._has_ended = self._is_lost = False
        self._is_open = True
        self._loses_reply = self.was_reset = False

    def lost(self) -> None:
        """Called when the connection has ended for the sidecar, which must then doubt all requests in flight."""
        self._is_lost = True
        for effect in self._effects:
            # An answer that the sidecar gives at this very moment may still lack the changes.
            effect.show(math.nextafter(self._kafka.now, math.inf))

    def received(self, data: bytes) -> None:
        """See Peer."""
        if self._is_open:
            self._buffer += data
            self._handle_next()

    def closed(self) -> None:
        """See Peer. A request that the broker is handling still gets its reply."""
        self._has_ended = True
        if not self._is_busy:
            self.cut()

    def cut(self) -> None:
        """Closes the connection from the broker's side."""
        self._is_open = False
        self._kafka.forget(self)
        self.link.cut()

    def _handle_next(self) -> None:
        while self._is_open and not self._is_busy and len(self._buffer) >= 4 and not self._has_ended:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[4:end], self._buffer[end:]
            self._is_busy = True
            reset = self._kafka.reset(self, int.from_bytes(frame[:2], "big"))
            self.was_reset |= reset is not None
            match reset:
                case Reset.BEFORE:
                    self.cut()
                case Reset.LATE:
                    self._handle_late(frame)
                case _:
                    self._loses_reply = reset is Reset.AFTER
                    self._handle(frame)
        if self._has_ended and not self._is_busy and self._is_open:
            self._is_open = False
            self._kafka.forget(self)
            self.link.half_close()

    def _handle(self, frame: bytes) -> None:
        try:
            effect = Effect()
            if self._is_lost:
                effect.show(self._kafka.now)
            self._effects.append(effect)
            self._kafka.handle(frame, effect, self, self._respond)
        except HangUp:
            self.cut()

    def _handle_late(self, frame: bytes) -> None:
        """Breaks the connection now, and gives the request to the broker afterwards."""
        self.cut()
        self._kafka.handle_late(lambda: self._handle(frame))

    def _respond(self, reply: bytes | None) -> None:
        self._is_busy = False
        if self._loses_reply:
            self._loses_reply = False
            self.cut()
        elif self._is_open and reply is not None:
            self.link.send(reply)
        self._kafka.call_soon(self._handle_next)
