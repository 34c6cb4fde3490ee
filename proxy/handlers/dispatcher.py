"""Classifies each request and reply of one listener's clients, and calls the handler of its API.

`api_table` has the handler of each API. A handler returns a pending reply, which handles the reply. The dispatcher
contains the rules for all APIs: how long a frame may be, which requests may be held, and what happens when a
connection ends. The session keeps the order of frames on a connection.

The dispatcher fails open: a frame that cannot be decoded is forwarded and counted, and its group is put in doubt.
"""

from collections.abc import Sequence

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.client_principals import UNAUTHENTICATED
from group_sidecar.proxy.broker.deferred_replies import DeferredReplyHandler
from group_sidecar.proxy.broker.gateway_apis import GATEWAY_VERSIONS
from group_sidecar.proxy.dataplane.frame_editor import FrameEditor
from group_sidecar.proxy.dataplane.framing import DEFER, HOLD, PASS, FrameAction
from group_sidecar.proxy.dataplane.held_request_budget import UNAUTHENTICATED_FRAME
from group_sidecar.proxy.dataplane.outcomes import (
    UNCHANGED,
    Classified,
    DeferredRequest,
    HangUp,
    HeldOrForwarded,
    Origin,
    Pending,
    PendingReply,
    Reply,
    RequestOutcome,
)
from group_sidecar.proxy.handlers.api_table import ApiTable
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.observer import CLOSED, PASSED_ON
from group_sidecar.proxy.handlers.pending_exchange import PendingDeferredRequest
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from group_sidecar.proxy.handlers.sasl import SASL_APIS
from group_sidecar.proxy.runtime.garbage_collection import LONG_FRAME, CollectionPaused
from group_sidecar.proxy.runtime.logging import log

PEEK_BYTES = 8_192
"""Maximum bytes that are decoded of a peeked reply, because decoding a truncated reply is slow."""
MAX_REPORTED_TLS_HOSTS = 100
"""The maximum number of hosts whose TLS connections are logged."""
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_NOT_HELD_CAUSES = {
    CloseReason.REQUEST_TOO_LONG: "the request may not be held (limits.held_frames)",
    CloseReason.STALLED: "the request comes too slowly to be held",
}


class BrokerDispatcher(DeferredReplyHandler):
    """The dispatcher of one listener of one broker. The sessions of all its clients share the dispatcher.

    Args:
        state: what is known of the broker; all listeners of the broker share it.
        counters: the counters of the listener.
        reply_builder: see ApiTable.
    """

    def __init__(self, state: BrokerState, counters: ListenerCounters, reply_builder: ReplyBuilder) -> None:
        limits = state.config.limits
        self._deferred = state.deferred
        self._access = state.accesses[counters.name]
        self._counters = counters
        self._reported_tls_hosts: set[str] = set()
        self._versions = state.versions
        self._policies = state.active_policies
        self._lost_requests = state.lost_requests
        self._traffic = state.traffic
        self._disconnector = Disconnector()
        table = ApiTable(state, self._access, reply_builder, self._disconnector)
        self._observer = table.observer
        self._enforcement = table.enforcement
        self._exchange_replies = table.replies
        self._handlers = table.by_api
        self._actions = {key: handler.action for key, handler in self._handlers.items()}
        self._held_request_budget = state.held_request_budget
        self._longest = limits.inspected_frame
        self._longest_held = limits.largest_frame
        self._passable = GATEWAY_VERSIONS if state.advertise else None
        self.must_classify_all = self._passable is not None

    # Requests.

    def classify(self, api_key: int, api_version: int, size: int) -> Classified:
        """See Dispatcher."""
        if self._passable is not None and not self._may_pass(api_key, api_version):
            return self._disconnector.close_for(CloseReason.UNSUPPORTED_VERSION, api_key, f"version {api_version}")
        action = self._actions.get(api_key)
        if action is None:
            return None
        if self._versions.is_kafka_0_9 and (ignored := self._kafka_0_9_outcome(api_key, api_version)):
            return ignored
        judged = self._policies.policies_for(api_key)
        if judged and api_version not in APIS[api_key].versions and self._policies.enforcing(api_key):
            return self._disconnector.close_for(CloseReason.UNSUPPORTED_VERSION, api_key, f"version {api_version}")
        if size > self._longest:
            if self._handlers[api_key].must_be_decoded(api_key, api_version):
                return self._disconnector.close_for(CloseReason.REQUEST_TOO_LONG, api_key, f"a request of {size} bytes")
        elif action is DEFER and not judged:
            return DEFER
        elif action is not PASS:
            return HOLD
        return self._handlers[api_key].classify(api_key, api_version, size)

    def _may_pass(self, api_key: int, api_version: int) -> bool:
        """Whether a gateway accepts a request. `GATEWAY_VERSIONS` has the versions whose replies are safe to forward.

        The sidecar itself answers unknown versions of ApiVersions.
        """
        assert self._passable is not None
        return 0 <= api_version <= self._passable.get(api_key, -1) or api_key == _API_VERSIONS

    def _kafka_0_9_outcome(self, api_key: int, api_version: int) -> HeldOrForwarded:
        """Returns the outcome of a request that Kafka 0.9 would ignore; None for any other request.

        The sidecar answers ApiVersions itself. For other requests the sidecar closes the connection, as later brokers
        do.
        """
        if api_key == _API_VERSIONS:
            return HOLD
        return None if self._versions.speaks(api_key, api_version) else HangUp(CloseReason.MALFORMED_REQUEST)

    @property
    def requires_sasl(self) -> bool:
        """See Dispatcher."""
        return self._access.wants_sasl and not self._access.allows_anonymous

    def admit(self, origin: Origin) -> str | None:
        """See Dispatcher. If the broker requires SASL, the connection is counted later, for its SASL user."""
        if origin.subject is None or self.requires_sasl:
            return None
        principals = self._access.principals
        return None if principals.try_count_certificate(origin, origin.subject) else principals.limit_cause

    def is_admitted(self, origin: Origin) -> bool:
        """See Dispatcher."""
        return self._access.principals.admitted(origin)

    def hold(self, api_key: int, api_version: int, size: int, origin: Origin) -> HeldOrForwarded:
        """See Dispatcher."""
        access = self._access
        admitted = access.allows_anonymous or access.principals.admitted(origin)
        if size > UNAUTHENTICATED_FRAME and not admitted:
            if access.wants_sasl:  # The broker would close the connection, too.
                cause = f"a request of {size} bytes before authentication"
                return self._disconnector.close_for(CloseReason.UNAUTHENTICATED_FRAME, api_key, cause, origin)
        elif self._held_request_budget.try_hold(origin.number, origin.client_host, size, admitted=admitted):
            return HOLD
        return self._outcome_if_not_held(api_key, api_version, origin, CloseReason.REQUEST_TOO_LONG)

    def evict_partial(
        self, api_key: int, api_version: int, origin: Origin, reason: CloseReason
    ) -> HangUp | PendingReply | None:
        """See Dispatcher."""
        self._held_request_budget.release(origin.number)
        return self._outcome_if_not_held(api_key, api_version, origin, reason)

    def evict_kept(self, pending: Pending, origin: Origin, reason: CloseReason) -> PendingReply | HangUp | None:
        """See Dispatcher."""
        replied = self._pending_reply(pending)
        outcome = replied.evict(reason)
        if isinstance(outcome, HangUp):
            return self._disconnector.close_for(outcome.reason, replied.api_key, _NOT_HELD_CAUSES[reason], origin)
        return outcome

    def release(self, origin: Origin) -> None:
        """See Dispatcher."""
        self._held_request_budget.release(origin.number)

    def _outcome_if_not_held(
        self, api_key: int, api_version: int, origin: Origin, reason: CloseReason
    ) -> HangUp | PendingReply | None:
        """Returns the outcome for a request that may not be held. `reason`: the reason if the connection must be
        closed.
        """
        handler = self._handlers[api_key]
        if handler.must_be_decoded(api_key, api_version):
            return self._disconnector.close_for(reason, api_key, _NOT_HELD_CAUSES[reason], origin)
        return handler.undecoded(api_key, api_version, None)

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        """See Dispatcher."""
        handler = self._handlers[int.from_bytes(frame[:2], "big")]
        version = int.from_bytes(frame[2:4], "big", signed=True)
        if len(frame) > LONG_FRAME:
            with CollectionPaused():
                return handler.decide(frame, version, origin, now)
        return handler.decide(frame, version, origin, now)

    # Replies.

    def _pending_reply(self, pending: Pending) -> PendingReply:
        """Returns the object that handles a reply.

        For some requests the session keeps only a `DeferredRequest`, because the session does not know the handlers.
        """
        return PendingDeferredRequest(pending, self._exchange_replies) if type(pending) is DeferredRequest else pending

    def check_reply_size(self, api_key: int, size: int) -> FrameAction | HangUp:
        """See Dispatcher."""
        max_size = UNAUTHENTICATED_FRAME if api_key in SASL_APIS else self._longest_held
        if size <= max_size:
            return HOLD
        return self._disconnector.close_for(CloseReason.UNREADABLE, api_key, f"a reply of {size} bytes")

    def classify_reply(self, pending: Pending, size: int, now: float) -> FrameAction | HangUp:
        """See Dispatcher."""
        if type(pending) is DeferredRequest and size <= self._longest:
            return DEFER
        replied = self._pending_reply(pending)
        action = replied.classify_reply(size, now)
        if isinstance(action, HangUp):
            return self._disconnector.close_for(action.reason, replied.api_key, f"a reply of {size} bytes")
        return action

    def reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> Reply:
        """See Dispatcher."""
        if len(frame) > LONG_FRAME or (type(pending) is DeferredRequest and len(pending.frame) > LONG_FRAME):
            with CollectionPaused():
                return self._handle_reply(pending, frame, origin, now)
        return self._handle_reply(pending, frame, origin, now)

    def _handle_reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> Reply:
        if type(pending) is DeferredRequest:
            if not self._access.principals.note_served(origin):
                self._access.learn_anonymous_access(origin)
            self._observer.observe_deferred(pending, frame, now)
            return UNCHANGED
        key = pending.api_key
        if key not in UNAUTHENTICATED and not self._access.principals.note_served(origin):
            self._access.learn_anonymous_access(origin)
        try:
            return pending.reply(frame, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever the error is, `unreadable` decides.
            self._traffic.decode_failed(key)
            reply = pending.unreadable(frame, origin, now)
            self._observer.warn("reply", key, error, CLOSED if reply.hang_up else PASSED_ON)
            return reply

    def max_reply_seconds(self, pending: Pending | None) -> float:
        """See Dispatcher."""
        return 0.0 if pending is None else self._pending_reply(pending).max_reply_seconds()

    def defer_reply(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """See Dispatcher."""
        self._deferred.add(self, pending, frame, origin, now)

    def defer_reply_head(self, pending: Pending, head: bytes, origin: Origin, now: float) -> None:
        """See Dispatcher."""
        self._deferred.add(self, self._pending_reply(pending).peeked(), head[:PEEK_BYTES], origin, now)

    def handle_deferred(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """See DeferredReplyHandler."""
        try:
            self.reply(pending, frame, origin, now)
        except Exception as error:  # noqa: BLE001  An error must not reach other connections.
            self._observer.warn("reply", self._pending_reply(pending).api_key, error)

    def editor(self, pending: Pending, size: int, origin: Origin, now: float) -> FrameEditor:
        """See Dispatcher."""
        return self._pending_reply(pending).editor(size, origin, now)

    # Connections.

    def check_tls_client(self, origin: Origin) -> CloseReason | None:
        """See Dispatcher."""
        gateway = self._passable is not None
        self._counters.tls_passed += 1
        self._report_tls(origin.client_host, "closed" if gateway else "passed unread")
        # A gateway cannot rewrite addresses inside TLS. Clients would then bypass the gateway.
        return CloseReason.TLS_TO_GATEWAY if gateway else None

    def _report_tls(self, host: str, outcome: str) -> None:
        """Logs the first TLS connection of each host, for at most MAX_REPORTED_TLS_HOSTS hosts.

        Each host has its own line: the line of a port scanner on one host must not hide a client on another host. Later
        connections of a host are only counted, because TLS connections may pass unread on purpose.
        """
        hosts = self._reported_tls_hosts
        if host in hosts or len(hosts) >= MAX_REPORTED_TLS_HOSTS:
            return
        hosts.add(host)
        where = {"client": host, "listener": self._counters.name}
        log.warning("a client speaks TLS where plain Kafka is expected", **where, outcome=outcome)

    def gone(self, pending: Sequence[Pending], origin: Origin, now: float) -> None:
        """See Dispatcher."""
        if not self._lost_requests.defer(pending, now):
            with CollectionPaused():
                for each in pending:
                    self._pending_reply(each).lost(now)
        if own := self._access.principals.gone(origin):
            self._access.rights.forget_principal(own)
        self._held_request_budget.release(origin.number)
        self._enforcement.gone(origin)
        self._observer.gone(origin)

    def apply_lost_requests(self) -> bool:
        """Handles the next slice of the lost requests. Returns whether more lost requests wait."""
        with CollectionPaused():
            for pending, at in self._lost_requests.take():
                self._pending_reply(pending).lost(at)
        return bool(self._lost_requests)
