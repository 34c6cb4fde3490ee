"""The operator's settings about local answers: which questions the sidecar may answer, and which hosts answers contain.

This module reads only the settings. `proxy.handlers.fallback_reasons` decides for each question whether the copy may be
used.
"""

from group_sidecar.codecs.api_registry import ApiKey, api_name
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.proxy.config.sections import Answers

LOCAL_APIS = frozenset(
    {ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_DESCRIBE}
)
"""Questions that the sidecar may answer itself."""


class AnswerSettings:
    """The settings of local answers.

    Attributes:
        enabled: whether the sidecar answers any question itself.
        exclusive: whether the operator states that clients reach the broker only through this sidecar.
        true_hosts: whether answers contain the clients' own hosts. Otherwise answers contain the host that the broker
            reports, which is the sidecar's host.
    """

    def __init__(self, answers: Answers) -> None:
        self.enabled = answers.enabled
        self.exclusive = answers.exclusive
        self.true_hosts = answers.client_host == "client"
        self._apis: frozenset[str] = frozenset(answers.apis if answers.enabled else ())

    def disabled_reason(self, api_key: int) -> FallbackReason | None:
        """Returns OFF if the settings let the broker answer all requests of this API, otherwise None."""
        return None if api_name(api_key) in self._apis else FallbackReason.OFF

    def rewrites_client_hosts(self, api_key: int) -> bool:
        """Whether the clients' own hosts also replace the hosts in the broker's replies of this API."""
        return self.true_hosts and self.disabled_reason(api_key) is None
