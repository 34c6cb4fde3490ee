"""Stores whether the broker answers the sidecar, and since when the broker does not answer."""


class Reachability:
    """The result of the prober's last attempt at one broker.

    Attributes:
        refuses_sidecar: whether the broker is reachable and refuses the sidecar's own connection. The broker may still
            serve clients.
        was_probed: whether the prober's first attempt has ended, with or without success.
    """

    def __init__(self) -> None:
        self.refuses_sidecar = False
        self.was_probed = False
        self._failure_reason: str | None = "not asked yet"
        self._unreachable_since: float | None = None

    def probe_failed(self, reason: str, at: float) -> None:
        """Notes that the broker did not answer the prober. `at`: seconds since the epoch."""
        self._failure_reason, self.refuses_sidecar, self.was_probed = reason, False, True
        if self._unreachable_since is None:
            self._unreachable_since = at

    def probe_succeeded(self) -> None:
        """Notes that the broker answered the prober."""
        self._failure_reason, self.refuses_sidecar, self.was_probed = None, False, True
        self._unreachable_since = None

    def probe_refused(self) -> None:
        """Notes that the broker is reachable and refuses the prober."""
        self.probe_succeeded()
        self.refuses_sidecar = True

    def ready(self) -> tuple[bool, str]:
        """Returns whether the broker answers, and the reason if it does not."""
        return self._failure_reason is None, self._failure_reason or "reachable"

    @property
    def unreachable(self) -> tuple[float, str] | None:
        """When the broker stopped answering the prober, in seconds since the epoch, and the reason. None while the
        broker answers, and before the first probe has ended.
        """
        since = self._unreachable_since
        return None if since is None else (since, self._failure_reason or "")
