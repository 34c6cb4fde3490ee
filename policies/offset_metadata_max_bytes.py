"""offset.metadata.max.bytes, by the rule of Kafka's OffsetMetadataManager (before 4.0: GroupMetadataManager).

Owns: `OffsetMetadataMaxBytes`. Must not know: what a refusal looks like on the wire.

Kafka counts the metadata of a committed offset in UTF-16 units (Java's ``String.length``), for all that the setting
speaks of bytes. A partition with more is not committed, and gets OFFSET_METADATA_TOO_LARGE; the others are.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.txn_offset_commit import TxnOffsetCommitRequest
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.views import GroupView
from group_sidecar.policies.policy import Count, Policy, PolicySettings
from group_sidecar.policies.verdicts import ALLOW, RefusePartitions, Verdict


class OffsetMetadataSettings(PolicySettings):
    """How long the metadata of a committed offset may be (Kafka's `offset.metadata.max.bytes`)."""

    limit: Annotated[Count, Field(ge=0)]
    """UTF-16 units of the metadata of one partition, which is what Kafka counts; a longer one is not committed."""


class OffsetMetadataMaxBytes(Policy):
    """Refuses offsets that are committed with too much metadata."""

    name: ClassVar[str] = "offset_metadata_max_bytes"
    Settings = OffsetMetadataSettings
    judges = frozenset({int(ApiKey.OFFSET_COMMIT), int(ApiKey.TXN_OFFSET_COMMIT)})
    asks_about = False
    broker_error = ErrorCode.OFFSET_METADATA_TOO_LARGE

    def __init__(self, settings: OffsetMetadataSettings) -> None:
        self.settings: OffsetMetadataSettings = settings

    def judge(self, request: Struct, group: GroupView) -> Verdict:
        """See Policy."""
        assert isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest)
        limit = self.settings.limit
        topics: Any = request.topics
        sizes = {
            (at, index): size
            for at, topic in enumerate(topics)
            for index, partition in enumerate(topic.partitions)
            # A character has two units at most, so that most need not be encoded to be counted.
            if (text := partition.committed_metadata) and 2 * len(text) > limit and (size := utf16_units(text)) > limit
        }
        return RefusePartitions(error_code=self.broker_error, sizes=sizes, limit=limit) if sizes else ALLOW


def utf16_units(text: str) -> int:
    """The length of a text as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
