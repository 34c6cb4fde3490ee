"""The types that a session and its dispatcher exchange: clients, outcomes of requests, and pending replies.

The session keeps a `PendingReply` for each forwarded request whose reply must be handled. The handlers define one
subclass for each kind of request. The session only passes these objects to the dispatcher.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple, Protocol, TypeAlias, final

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.frame_editor import FrameEditor
from group_sidecar.proxy.dataplane.framing import PASS, FrameAction

OPAQUE = -1
"""Stands for an unknown number of raw SASL tokens. The connection is then never parsed again."""
_numbers = count(1)


@dataclass(slots=True)
class Origin:
    """The client of a connection.

    Attributes:
        client_host: the client's IP address.
        number: identifies the connection in this process.
        subject: the subject of the client's certificate, if TLS ends at the sidecar; None if there is no certificate.
            A certificate may have an empty subject, which names a user too.
        certificate: the number of the certificate with which the sidecar has connected to the broker; 0 without TLS.
            Without SASL, clients with the same number are one user to the broker.
        inet_address: the client's address as brokers return it: with a leading slash, as Java's InetAddress without a
            name.
    """

    client_host: str
    number: int = field(default_factory=lambda: next(_numbers))
    subject: str | None = field(default=None, kw_only=True)
    certificate: int = field(default=0, kw_only=True)
    inet_address: str = field(init=False)

    def __post_init__(self) -> None:
        self.inet_address = "/" + self.client_host


@final
class HangUp(NamedTuple):
    """Close the connection when the client has the replies to all earlier requests. Do not forward the frame."""

    reason: CloseReason


class Reply(NamedTuple):
    """What the client gets in place of the broker's reply.

    Attributes:
        frame: a whole frame that replaces the broker's frame, or None to forward the broker's frame.
        raw_tokens: how many raw SASL tokens the client sends next, or OPAQUE if their number is unknown.
        hang_up: None, or why the connection ends. If it ends, the client gets neither this reply nor a later one.
    """

    frame: bytes | None = None
    raw_tokens: int = 0
    hang_up: CloseReason | None = None


UNCHANGED = Reply()
"""The client gets the broker's reply."""


class PendingReply(ABC):
    """Handles the reply to a forwarded request. The session keeps this object until the reply arrives."""

    __slots__ = ()

    @property
    @abstractmethod
    def api_key(self) -> int:
        """The API key of the request."""

    @abstractmethod
    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """Returns what to do with the reply's frame of `size` bytes.

        - HOLD: pass the frame to `reply` before it is forwarded.
        - DEFER: forward the frame, and pass it to `reply` later.
        - PEEK: forward the frame, and later pass its first bytes to the `reply` of the object that `peeked` returns.
        - EDIT: change the frame with the `editor` while it is forwarded. A frame that has arrived whole is held.
        - PASS: forward the frame unread.
        - A HangUp: end the connection before any byte of the reply is forwarded.
        """

    @abstractmethod
    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """Handles the reply, and returns what the client gets.

        The caller ignores the result if the reply was already forwarded. The method may raise any exception. The caller
        then counts the reply as undecodable, and calls `unreadable`.

        Args:
            frame: the frame without its length.
            origin: the client.
            now: when the reply arrived, in seconds on the poller's clock.
        """

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """Returns what the client gets if `reply` raised an exception."""
        return UNCHANGED

    def lost(self, now: float) -> None:
        """Handles the loss of the reply, because the connection has ended."""
        return

    def evict(self, reason: CloseReason) -> "PendingReply | HangUp | None":
        """Returns the object that handles the reply without the request's bytes, or None if the reply passes unread.

        The session calls this method if it must drop the request's bytes before the reply arrives.

        A HangUp ends the connection, because the reply cannot be handled without the request.
        """
        return HangUp(reason)

    def peeked(self) -> "PendingReply":
        """Returns the object that handles the reply's first bytes. Called after `classify_reply` has returned PEEK."""
        return self

    def editor(self, size: int, origin: Origin, now: float) -> FrameEditor:
        """Returns the editor of the reply's frame of `size` bytes. Called after `classify_reply` has returned EDIT."""
        raise NotImplementedError

    def max_reply_seconds(self) -> float:
        """Returns how many seconds the broker may take to reply, or 0 if unknown."""
        return 0.0


class PendingNotice(PendingReply):
    """The pending reply of a request whose reply is only awaited, not read. A subclass defines `lost`."""

    __slots__ = ()

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """See PendingReply. Calls `lost`, which handles the arrival of the reply too."""
        self.lost(now)
        return PASS

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply. This method is not called, because `classify_reply` returns PASS."""
        return UNCHANGED

    @abstractmethod
    def lost(self, now: float) -> None:
        """Handles the arrival or the loss of the reply."""


@final
class DeferredRequest(NamedTuple):
    """A request that was forwarded before it was decoded. The request is decoded together with its reply.

    Attributes:
        frame: the frame without its length.
        origin: the client.
        at: when the request arrived, in seconds on the poller's clock.
    """

    frame: bytes
    origin: Origin
    at: float


Pending: TypeAlias = DeferredRequest | PendingReply
"""What the session keeps of a forwarded request until the reply arrives."""
HeldOrForwarded: TypeAlias = Literal[FrameAction.HOLD] | HangUp | PendingReply | None
"""What happens to a request, decided from its first bytes. HOLD: collect the request, and decide when it is complete. A
PendingReply: forward the request unread, and have its reply handled. A HangUp: close the connection. None: forward the
request and its reply unread."""
Classified: TypeAlias = Literal[FrameAction.DEFER] | HeldOrForwarded
"""Like `HeldOrForwarded`, or DEFER: forward the request, and keep it as a `DeferredRequest`."""


class Pass(NamedTuple):
    """Forward the request and its reply unread."""


class Forward(NamedTuple):
    """Forward the request, and have its reply handled.

    `frame`: a whole frame that replaces the client's frame, or None to forward the client's frame.
    """

    pending: Pending
    frame: bytes | None = None


class AnswerInOrder(NamedTuple):
    """Answer the request when all earlier requests have their replies.

    Attributes:
        make: called as make(now). Returns the whole reply frame, or another outcome for the request.
        inject: whole frames that are sent to the broker first, with their pending replies. `make` is called after these
            replies were handled. The client does not get these replies.
    """

    make: Callable[[float], "bytes | RequestOutcome"]
    inject: Sequence[tuple[bytes, PendingReply]] = ()


RequestOutcome: TypeAlias = Pass | Forward | AnswerInOrder | HangUp
"""What happens to a request."""


class Dispatcher(Protocol):
    """Classifies and handles frames. Frames are passed without their length, and sizes do not include the length.

    No method raises an exception.

    Attributes:
        must_classify_all: whether every request must be classified, including each Fetch.
    """

    must_classify_all: bool

    @property
    def requires_sasl(self) -> bool:
        """Whether the broker is known to require SASL of the clients."""

    def admit(self, origin: Origin) -> str | None:
        """Counts a new connection. Returns why the client is refused, as text for the log, or None."""

    def is_admitted(self, origin: Origin) -> bool:
        """Returns whether the broker's replies show that the client has authenticated."""

    def classify(self, api_key: int, api_version: int, size: int) -> Classified:
        """Returns what happens to a request of `size` bytes."""

    def hold(self, api_key: int, api_version: int, size: int, origin: Origin) -> HeldOrForwarded:
        """Returns what happens to an incomplete request for which `classify` has returned HOLD or DEFER."""

    def evict_partial(
        self, api_key: int, api_version: int, origin: Origin, reason: CloseReason
    ) -> HangUp | PendingReply | None:
        """Returns what happens to an incomplete request that may not be held any longer.

        `reason`: the reason of a HangUp.
        """

    def evict_kept(self, pending: Pending, origin: Origin, reason: CloseReason) -> PendingReply | HangUp | None:
        """Returns the pending reply that replaces `pending` when its request is not kept any longer.

        Returns a HangUp with `reason` if the reply cannot be handled without the request, or None if the reply passes
        unread.
        """

    def release(self, origin: Origin) -> None:
        """Notes that the session keeps no request of this client any more."""

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        """Returns what happens to a complete held request."""

    def check_reply_size(self, api_key: int, size: int) -> FrameAction | HangUp:
        """Returns HOLD for the reply to an injected request or to a SaslHandshake, or a HangUp if the reply is too
        long.
        """

    def classify_reply(self, pending: Pending, size: int, now: float) -> FrameAction | HangUp:
        """Returns what to do with a reply's frame of `size` bytes. See `PendingReply.classify_reply`."""

    def reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> Reply:
        """Handles a reply, and returns what the client gets. The result is ignored if the reply was forwarded."""

    def editor(self, pending: Pending, size: int, origin: Origin, now: float) -> FrameEditor:
        """Returns the editor of a reply's frame of `size` bytes. Called after `classify_reply` has returned EDIT."""

    def check_tls_client(self, origin: Origin) -> CloseReason | None:
        """Counts a client that speaks TLS. Returns why its connection ends, or None if all its bytes pass unread."""

    def max_reply_seconds(self, pending: Pending | None) -> float:
        """Returns how many seconds the broker may take to reply, or 0 if unknown."""

    def defer_reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """Queues a forwarded reply. The reply is handled before any part of the sidecar reads state that the reply may
        change.
        """

    def defer_reply_head(self, pending: Pending, head: bytes, origin: Origin, now: float) -> None:
        """Queues the first bytes of a forwarded reply. These bytes are handled as `defer_reply` describes."""

    def gone(self, pending: Sequence[Pending], origin: Origin, now: float) -> None:
        """Notes that a client's connection has ended, and that the `pending` replies will not arrive."""
