"""Holds the replies of one broker that were forwarded before they were decoded.

`CoordinatorCopy`, `ClientAccess` and `TopicNames` share one queue. A queued reply may change the state of
`CoordinatorCopy` and `ClientAccess`. Both apply the queued replies before a caller gets access to this state, so every
decision takes all earlier replies into account. `TopicNames` applies the queued replies before it learns a name,
because these replies are older than the name. The event loop also applies the queued replies, before trio's tasks run.

Replies are decoded in batches, because the processor's caches then stay warm (decision 47).
"""

from collections import deque

from group_sidecar.proxy.dataplane.outcomes import Origin, Pending


class DeferredReplyHandler:
    """Decodes deferred replies. This is a base class, not a protocol, because mypyc then calls the method directly."""

    def handle_deferred(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """Applies a reply to the state. Must not raise."""
        raise NotImplementedError


class DeferredReplies:
    """A queue of replies, in the order in which they were forwarded.

    Attributes:
        waiting: whether replies are queued and `apply` is not running. While `apply` runs, the handlers themselves
            read the state. The handlers' reads must not apply a later reply first.
    """

    def __init__(self) -> None:
        self.waiting = False
        self._replies: deque[tuple[DeferredReplyHandler, Pending, bytes, Origin, float]] = deque()

    def add(self, handler: DeferredReplyHandler, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """Queues a reply that was forwarded at `now`. `frame`: the reply without its length. If only the first bytes of
        the reply are needed, `frame` has only these.
        """
        self._replies.append((handler, pending, frame, origin, now))
        self.waiting = True

    def apply_waiting(self) -> None:
        """Applies all queued replies, unless `apply` is running."""
        if self.waiting:
            self.apply()

    def apply(self) -> None:
        """Applies all queued replies to the state."""
        self.waiting = False
        replies = self._replies
        while replies:
            handler, pending, frame, origin, now = replies.popleft()
            handler.handle_deferred(pending, frame, origin, now)
