"""Which versions of each API the broker offers, and which versions the sidecar adds.

`BrokerVersions` answers every question that depends on the broker's ApiVersions alone. `added_versions` has the rule
for the versions that the sidecar adds. `handlers.api_versions` builds the ApiVersions replies for clients.
"""

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.coordinator.wire.group_apis import INSTANCE_IDS_DESCRIBED_SINCE
from group_sidecar.proxy.broker.added_versions import NO_VERSIONS, Versions, added_versions
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy

_FETCH_OF_0_10_1 = (0, 3)
_FETCH_ALL = (0, 2)  # OffsetFetch.


class BrokerVersions:
    """The versions that one broker offers, as far as they are known.

    Args:
        settings: which APIs the sidecar may answer. The sidecar adds versions only to these APIs.
        copy: is told how the broker behaves, as far as the versions show this. A change of the versions shows that the
            broker may have been upgraded or downgraded.

    Attributes:
        revision: how many times the broker's versions have changed.
    """

    def __init__(self, settings: AnswerSettings, copy: CoordinatorCopy) -> None:
        self.revision = 0
        self._settings = settings
        self._copy = copy
        self._versions: Versions | None = None
        self._added: Versions = {}
        self._keeps_empty_groups = True

    def learn(self, versions: Versions) -> None:
        """Stores the versions that the broker itself offers: (lowest, highest) by API key."""
        if versions is self._versions:
            return  # `ApiVersionsReplies` passes the same cached object after each reply.
        manager = self._copy.manager
        if versions != self._versions:
            self.revision += 1
            manager.forget_broker_behaviour()
        self._versions = versions
        self._keeps_empty_groups = versions.get(ApiKey.FETCH, _FETCH_OF_0_10_1)[1] >= _FETCH_OF_0_10_1[1]
        manager.keep_empty_groups(self._keeps_empty_groups)
        described = versions.get(ApiKey.DESCRIBE_GROUPS, NO_VERSIONS)
        manager.describes_instance_ids = described[1] >= INSTANCE_IDS_DESCRIBED_SINCE
        self._added = self.added_versions_for(versions)

    # Versions.

    def lacks_api(self, api_key: int) -> bool:
        """Whether the broker is known not to have an API."""
        return self._versions is not None and api_key not in self._versions

    def added_versions_for(self, offered: Versions) -> Versions:
        """Returns the versions that the sidecar adds to `offered`, for the APIs that the sidecar may answer."""
        return {
            key: added for key, added in added_versions(offered).items() if self._settings.disabled_reason(key) is None
        }

    def is_added_version(self, api_key: int, version: int) -> bool:
        """Whether the sidecar adds this version of an API. A request in an added version is never forwarded."""
        lowest, highest = self._added.get(api_key, NO_VERSIONS)
        return lowest <= version <= highest

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether the broker or the sidecar may offer this version of an API.

        True if the broker's versions are not known. True also for an API that the broker lacks, because `lacks_api`
        reports that case.
        """
        if self._versions is None or api_key not in self._versions:
            return True
        lowest, highest = self._versions[api_key]
        return lowest <= version <= highest or self.is_added_version(api_key, version)

    def request_version(self, api_key: int, highest: int) -> int:
        """Returns the broker's highest version of an API, at most `highest`; 0 while the broker's versions are not
        known.
        """
        lowest, highest_version = (self._versions or {}).get(api_key, (0, 0))
        return max(lowest, min(highest_version, highest))

    def highest_version(self, api_key: int) -> int | None:
        """Returns the broker's highest version of an API, or None if it is not known or the broker lacks the API."""
        offered = (self._versions or {}).get(api_key)
        return offered[1] if offered else None

    # Releases.

    @property
    def is_kafka_0_9(self) -> bool:
        """Whether the broker is known to ignore ApiVersions, as Kafka 0.9 does."""
        return self._versions is KAFKA_0_9

    def includes_empty_groups(self, api_key: int, version: int) -> bool:
        """Whether replies in this version include groups without members. Kafka before 0.10.1 forgets such groups, but
        versions that the sidecar adds include them.
        """
        return self._keeps_empty_groups or self.is_added_version(api_key, version)

    @property
    def empty_topics_fetch_all(self) -> bool:
        """Whether an OffsetFetch with an empty array of topics returns all offsets.

        The result is True before Kafka 0.10.2. Later releases return all offsets for null topics instead, from
        OffsetFetch v2 (KIP-88).
        """
        return self._versions is not None and self._versions.get(ApiKey.OFFSET_FETCH, _FETCH_ALL)[1] < _FETCH_ALL[1]
