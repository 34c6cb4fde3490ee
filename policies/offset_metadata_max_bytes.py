"""The policy for offset.metadata.max.bytes, with the rule of Kafka's OffsetMetadataManager.

Before Kafka 4.0, the rule was in GroupMetadataManager.

Kafka counts the metadata of a committed offset in UTF-16 units (Java's ``String.length``), although the setting's name
says bytes. A partition with longer metadata is not committed and gets OFFSET_METADATA_TOO_LARGE. The other partitions
are committed.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.txn_offset_commit import TxnOffsetCommitRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.policies.policy import Policy, PolicySettings, WholeNumber
from group_sidecar.policies.verdicts import ALLOW, RefusePartitions, Verdict


class OffsetMetadataSettings(PolicySettings):
    """Limits how long the metadata of a committed offset may be (Kafka's `offset.metadata.max.bytes`)."""

    limit: Annotated[WholeNumber, Field(ge=0)]
    """The maximum length of the metadata of one partition, in UTF-16 units, as Kafka counts it. A partition with longer
    metadata is not committed. The other partitions of the request are committed."""


class OffsetMetadataMaxBytes(Policy):
    """Refuses offsets that are committed with too much metadata."""

    name: ClassVar[str] = "offset_metadata_max_bytes"
    Settings = OffsetMetadataSettings
    judged_apis = frozenset({OffsetCommitRequest.KEY, TxnOffsetCommitRequest.KEY})
    depends_on_group = False
    broker_error = ErrorCode.OFFSET_METADATA_TOO_LARGE

    def __init__(self, settings: OffsetMetadataSettings) -> None:
        self.settings: OffsetMetadataSettings = settings

    def judge(self, request: Struct, group: GroupView, principal: str) -> Verdict:
        """Returns the verdict on an OffsetCommit or a TxnOffsetCommit."""
        assert isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest)
        limit = self.settings.limit
        topics: Any = request.topics
        sizes = {
            (at, index): size
            for at, topic in enumerate(topics)
            for index, partition in enumerate(topic.partitions)
            # A character has at most two UTF-16 units, so most texts need not be encoded to be counted.
            if (text := partition.committed_metadata) and 2 * len(text) > limit and (size := utf16_units(text)) > limit
        }
        return RefusePartitions(error_code=self.broker_error, sizes=sizes, limit=limit) if sizes else ALLOW


def utf16_units(text: str) -> int:
    """Returns the length of a text in UTF-16 units, as Java's ``String.length`` does."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
