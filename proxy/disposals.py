"""The words between a session and its desk: who asks, what is to become of a request, what a client gets.

Owns: the shapes, and the protocol of a desk. Must not know: how a session keeps order, what a desk knows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Protocol

from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.framing import Look

OPAQUE = -1
"""As a number of raw tokens: the connection is never parsed again."""
_numbers = count(1)


@dataclass(slots=True)
class Origin:
    """Who is asking. `client_host` is the peer's address, `inet_address` the same as brokers tell it (as Java prints an
    InetAddress without a name); `number` tells connections apart.
    """

    client_host: str
    number: int = field(default_factory=lambda: next(_numbers))
    inet_address: str = field(init=False)

    def __post_init__(self) -> None:
        self.inet_address = "/" + self.client_host


class Pass(NamedTuple):
    """Forward as it came; the reply says nothing to us."""


class Forward(NamedTuple):
    """Forward, and show the desk the reply with `note`. `frame`: whole, instead of what came."""

    note: Any
    frame: bytes | None = None


class Answer(NamedTuple):
    """Answer when its turn comes.

    `make(now)` gives the whole reply frame, or what to do instead of answering. `inject`: whole frames with their
    notes (never None), sent to the broker first; their replies are shown to the desk, go no further, and the turn
    comes behind them.
    """

    make: Callable[[float], "bytes | Disposal"]
    inject: Sequence[tuple[bytes, Any]] = ()


class HangUp(NamedTuple):
    """Neither forward nor answer: end the connection, once the client has the replies to what it sent before."""

    reason: CloseReason


Disposal = Pass | Forward | Answer | HangUp
"""What is to become of a request."""


class Shown(NamedTuple):
    """A note: a request that went on as it came and is read with its reply. `frame`: without its length."""

    frame: bytes
    origin: Origin
    at: float


class Reply(NamedTuple):
    """What the client gets.

    `frame`: whole, instead of what came. `raw_tokens`: how many SASL tokens it will send next (OPAQUE: for ever).
    `hang_up`: the client gets neither this reply nor a later one, and the connection ends for this reason.
    """

    frame: bytes | None = None
    raw_tokens: int = 0
    hang_up: CloseReason | None = None


class Desk(Protocol):
    """Where frames are understood. Frames come without their length, sizes do not count it; it never raises.

    Attributes:
        sees_each: whether every request must be glanced at, each Fetch included.
    """

    sees_each: bool

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        """Look.TAKE to be shown the request before it goes on; Look.SHOW to be shown it with its reply, as `Shown`;
        a HangUp to have the connection ended; any other note to be shown its reply only; None for neither.
        """

    def hold(self, api_key: int, api_version: int, size: int, origin: Origin) -> Any:
        """Asked of a request that is to be shown and is not whole yet. Look.TAKE to have it held until it is; else as
        `glance`, but for Look.SHOW.
        """

    def let_go(self, api_key: int, api_version: int, origin: Origin, reason: CloseReason) -> Any:
        """A request is not held any longer, though it is not whole, for a reason. As `hold`, but for Look.TAKE."""

    def forget(self, note: Any, origin: Origin, reason: CloseReason) -> Any:
        """A request that waits for its reply is not kept any longer, for a reason. Returns the note that its reply has
        instead of `note`; a HangUp where the reply cannot be done without the request.
        """

    def release(self, origin: Origin) -> None:
        """Nothing of a client's requests is kept any more."""

    def request(self, frame: bytes, origin: Origin, now: float) -> Disposal:
        """What is to become of a request."""

    def bound_reply(self, api_key: int, size: int) -> Look | HangUp:
        """Asked of a reply that is shown whatever it is. Look.TAKE; a HangUp where it is too long to be held."""

    def glance_reply(self, note: Any, size: int, now: float) -> Look | HangUp:
        """Look.TAKE to be shown a reply that was asked for with `note` before it goes on; Look.SHOW to be shown it
        behind that, where it comes in one piece; Look.BEGIN to be shown its first bytes likewise; Look.PASS for none.
        A HangUp to have the connection ended before any of it leaves.
        """

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        """What the client gets for a reply that was asked for with `note`; of one that went on nothing more."""

    def tls_begins(self, origin: Origin) -> CloseReason | None:
        """A client speaks TLS. Returns why its connection is to end; None where it is to pass unread."""

    def longest_wait(self, note: Any) -> float:
        """How many seconds the broker may take to reply to a request with this note; 0 where that is not known."""

    def later(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        """A reply that has gone on, to be understood when the desk next catches up."""

    def begun(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        """The first bytes of a reply that goes on, likewise."""

    def catch_up(self) -> None:
        """Understands all that has gone on, of all its sessions; to be called before anything is decided."""

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        """The connection is over; replies to these notes will not come."""
