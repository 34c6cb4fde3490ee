"""What a session and its dispatcher exchange: the client, what happens to a request, and what the client gets.

`PendingReply` is the base class of everything that the session keeps to have a reply handled. The handlers define one
subclass for each kind of request. The session only passes these objects on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple, Protocol, TypeAlias, final

from group_sidecar.metrics.traffic_counters import CloseReason
from group_sidecar.proxy.dataplane.framing import FrameAction

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


@final
class HangUp(NamedTuple):
    """Neither forward nor answer: end the connection, once the client has the replies to what it sent before."""

    reason: CloseReason


class Reply(NamedTuple):
    """What the client gets.

    `frame`: a whole frame that replaces the broker's. `raw_tokens`: how many SASL tokens the client will send next
    (OPAQUE: all that it sends). `hang_up`: the client gets neither this reply nor a later one, and the connection ends
    for this reason.
    """

    frame: bytes | None = None
    raw_tokens: int = 0
    hang_up: CloseReason | None = None


UNCHANGED = Reply()
"""The client gets the broker's reply."""


class PendingReply(ABC):
    """Handles the reply to a request that was forwarded. The session keeps it until the reply comes."""

    __slots__ = ()

    @property
    @abstractmethod
    def api_key(self) -> int:
        """The API key of the request."""

    @abstractmethod
    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """Returns what to do with the reply's frame of `size` bytes. HOLD: pass it to `reply` before it is forwarded.
        COPY: forward it, and pass it to `reply` later. PEEK: the same with its first bytes, for `peeked`. PASS: forward
        it unread. A HangUp ends the connection before any of the reply leaves.
        """

    @abstractmethod
    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """Handles the reply. Returns what the client gets; the result does not matter for a reply that was forwarded.
        It may raise any exception. The caller then counts the reply as undecodable, and calls `unreadable`.

        Args:
            frame: without its length.
            origin: the client.
            now: the shell's clock when the reply came.
        """

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """Returns what the client gets for a reply for which `reply` raised an exception."""
        return UNCHANGED

    def lost(self, now: float) -> None:
        """Handles that the reply will not come, because the connection has ended."""
        return

    def evict(self, reason: CloseReason) -> "PendingReply | HangUp | None":
        """Returns what handles the reply when the request's bytes are not kept any more; None where the reply passes
        unread. A HangUp ends the connection, because the reply cannot be handled without the request.
        """
        return HangUp(reason)

    def peeked(self) -> "PendingReply":
        """Returns what handles the reply's first bytes. It is called after `classify_reply` has returned PEEK."""
        return self

    def max_reply_seconds(self) -> float:
        """Returns how many seconds the broker may take to reply; 0 where that is not known."""
        return 0.0


@final
class CopiedRequest(NamedTuple):
    """A request that was forwarded before it was decoded. It is decoded with its reply. `frame`: without its length."""

    frame: bytes
    origin: Origin
    at: float


Pending: TypeAlias = CopiedRequest | PendingReply
"""What the session keeps until a reply comes."""
HeldOrForwarded: TypeAlias = Literal[FrameAction.HOLD] | HangUp | PendingReply | None
"""What happens to a request, by its first bytes. HOLD: collect it, and decide then. A PendingReply: forward it unread,
and have its reply handled. None: forward it and its reply unread."""
Classified: TypeAlias = Literal[FrameAction.COPY] | HeldOrForwarded
"""The same. COPY: forward it, and keep it as a `CopiedRequest`."""


class Pass(NamedTuple):
    """Forward the request and its reply unread."""


class Forward(NamedTuple):
    """Forward the request, and have its reply handled. `frame`: whole, to replace the client's frame."""

    pending: Pending
    frame: bytes | None = None


class Answer(NamedTuple):
    """Answer when the request's turn comes.

    `make(now)` returns the whole reply frame, or what to do instead of answering. `inject`: whole frames that are sent
    to the broker first. Their replies are handled and not forwarded, and the turn comes after them.
    """

    make: Callable[[float], "bytes | RequestOutcome"]
    inject: Sequence[tuple[bytes, PendingReply]] = ()


RequestOutcome: TypeAlias = Pass | Forward | Answer | HangUp
"""What happens to a request."""


class Dispatcher(Protocol):
    """Understands frames. Frames come without their length, and sizes do not include it. No method raises.

    Attributes:
        must_classify_all: whether every request must be classified, each Fetch included.
    """

    must_classify_all: bool

    def classify(self, api_key: int, api_version: int, size: int) -> Classified:
        """Returns what happens to a request of `size` bytes."""

    def hold(self, api_key: int, api_version: int, size: int, origin: Origin) -> HeldOrForwarded:
        """Returns what happens to a request for which `classify` returned HOLD or COPY, and of which only a part has
        come.
        """

    def evict_partial(
        self, api_key: int, api_version: int, origin: Origin, reason: CloseReason
    ) -> HangUp | PendingReply | None:
        """Returns what happens to a request that is not whole and may not be held any longer, for a reason."""

    def evict_kept(self, pending: Pending, origin: Origin, reason: CloseReason) -> PendingReply | HangUp | None:
        """Returns what replaces `pending` when the request that it belongs to is not kept any longer, for a reason; a
        HangUp where the reply cannot be handled without the request.
        """

    def release(self, origin: Origin) -> None:
        """Notes that nothing of a client's requests is kept any more."""

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        """Returns what happens to a request that was held."""

    def check_reply_size(self, api_key: int, size: int) -> FrameAction | HangUp:
        """Returns HOLD for a reply that is always held; a HangUp where it is too long."""

    def classify_reply(self, pending: Pending, size: int, now: float) -> FrameAction | HangUp:
        """Returns what to do with a reply's frame of `size` bytes. See `PendingReply.classify_reply`."""

    def reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> Reply:
        """Handles a reply. Returns what the client gets; the result does not matter for a reply that was forwarded."""

    def check_tls_client(self, origin: Origin) -> CloseReason | None:
        """Notes that a client speaks TLS. Returns why its connection ends; None where it passes unread."""

    def max_reply_seconds(self, pending: Pending | None) -> float:
        """Returns how many seconds the broker may take to reply; 0 where that is not known."""

    def defer_reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """Queues a reply that was forwarded. It is handled before the state that it may change is read."""

    def defer_reply_head(self, pending: Pending, head: bytes, origin: Origin, now: float) -> None:
        """Queues the first bytes of a reply that is forwarded, likewise."""

    def gone(self, pending: Sequence[Pending], origin: Origin, now: float) -> None:
        """Notes that a connection has ended, and that these replies will not come."""
