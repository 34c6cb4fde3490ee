"""Defines the base classes of the handlers, which decide what happens to the requests of an API.

`api_table` maps each API to its handler. The dispatcher calls the handler of a request's API key. To handle the reply
too, a handler returns an object of a subclass of `PendingReply`.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from group_sidecar.codecs.errors import TooManyElements
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.policies.active_policies import ActivePolicies
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.dataplane.framing import PASS, FrameAction
from group_sidecar.proxy.dataplane.outcomes import Forward, HeldOrForwarded, Origin, Pass, PendingReply, RequestOutcome
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.observer import Observer


class ApiHandler(ABC):
    """Handles the requests of one API, or of several APIs with the same rules.

    Args:
        action: see Attributes.

    Attributes:
        action: what happens to a request that is not too long to be decoded. HOLD: the request is held until it is
            complete, and `decide` is called. DEFER: the request is forwarded, and decoded with its reply; while a
            policy judges the API, the request is held instead. PASS: `classify` is called.
    """

    def __init__(self, action: FrameAction = PASS) -> None:
        self.action = action

    def must_be_decoded(self, api_key: int, version: int) -> bool:
        """Returns whether a request may be forwarded only after it was decoded."""
        return False

    def classify(self, api_key: int, version: int, size: int) -> HeldOrForwarded:
        """Returns what happens to a request that is too long to be decoded, or to any request if `action` is PASS."""
        return self.undecoded(api_key, version, None)

    @abstractmethod
    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply | None:
        """Notes that a request is forwarded undecoded. Returns its pending reply, or None if the reply passes unread.

        `frame`: the request without its length, or None if the sidecar does not have the complete request.
        """

    def decide(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """Returns what happens to a request that was held. `frame`: without its length."""
        raise NotImplementedError


class DecodingParts(NamedTuple):
    """The objects that all decoding handlers share."""

    policies: ActivePolicies
    versions: BrokerVersions
    observer: Observer
    disconnector: Disconnector


class DecodingHandler(ApiHandler):
    """Decodes the requests that were held. The handler fails open: it forwards a request that cannot be decoded.

    The connection is closed instead if only the sidecar supports the request's version (`added_versions`), or if a
    policy is enforced and the request has too many elements.
    """

    def __init__(self, action: FrameAction, parts: DecodingParts) -> None:
        super().__init__(action)
        self._policies = parts.policies
        self._versions = parts.versions
        self._observer = parts.observer
        self._disconnector = parts.disconnector

    def must_be_decoded(self, api_key: int, version: int) -> bool:
        """See ApiHandler.

        A long request must not bypass an enforced policy. The broker does not support the versions that the sidecar
        adds.
        """
        return self._policies.enforcing(api_key) or self._versions.is_added_version(api_key, version)

    def decide(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """See ApiHandler."""
        key = int.from_bytes(frame[:2], "big")
        try:
            return self.decode(frame, version, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever the error is, the broker decides.
            if isinstance(error, TooManyElements) and self.must_be_decoded(key, version):
                return self._disconnector.close_for(CloseReason.REQUEST_TOO_LONG, key, str(error), origin)
            if self._versions.is_added_version(key, version):  # A broker also closes for a request it cannot decode.
                self._observer.note_undecoded(key, frame)
                return self._disconnector.close_for(CloseReason.MALFORMED_REQUEST, key, str(error), origin)
            self._observer.warn("request", key, error)
        pending = self.undecoded(key, version, frame)
        return Pass() if pending is None else Forward(pending)

    @abstractmethod
    def decode(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """Decodes a request, and returns what happens to the request. This method may raise any exception."""
