"""offset.metadata.max.bytes, counted as in Kafka's OffsetMetadataManager."""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.policies.offset_metadata_max_bytes import (
    OffsetMetadataMaxBytes,
    OffsetMetadataSettings,
    utf16_units,
)
from group_sidecar.policies.verdicts import ALLOW, RefusePartitions, Verdict

LIMIT = 4
Notes = list[list[str | None]]
"""The metadata of each partition of each topic."""
Requested = Callable[[Notes], Struct]


class Counted(str):
    """A text that counts how often it is encoded."""

    encoded = 0

    def encode(self, *args: str) -> bytes:
        Counted.encoded += 1
        return super().encode(*args)


def commit(notes: Notes) -> OffsetCommitRequest:
    topics = tuple(
        OffsetCommitRequestTopic(
            name=f"t{number}",
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=7 - at, committed_offset=1, committed_metadata=note)
                for at, note in enumerate(each)
            ),
        )
        for number, each in enumerate(notes)
    )
    return OffsetCommitRequest(group_id="g", topics=topics)


def txn_commit(notes: Notes) -> TxnOffsetCommitRequest:
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=f"t{number}",
            partitions=tuple(
                TxnOffsetCommitRequestPartition(partition_index=7 - at, committed_offset=1, committed_metadata=note)
                for at, note in enumerate(each)
            ),
        )
        for number, each in enumerate(notes)
    )
    return TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, topics=topics)


def judge(request: Struct, limit: int = LIMIT) -> Verdict:
    return OffsetMetadataMaxBytes(OffsetMetadataSettings(limit=limit)).judge(request, GroupView(group_id="g"), "")


@pytest.mark.parametrize(
    ("note", "units"),
    [
        (None, 0),
        ("", 0),
        ("abcd", 4),
        ("abcde", 5),
        ("éééé", 4),  # Eight bytes of UTF-8.
        ("€€€€€", 5),
        ("\uffff" * 4, 4),
        ("\U00010000" * 2, 4),  # A surrogate pair is two.
        ("😀😀a", 5),
    ],
)
@pytest.mark.parametrize("requested", [commit, txn_commit])
def test_metadata_length_in_utf16_units(requested: Requested, note: str | None, units: int) -> None:
    """Metadata is limited by its UTF-16 code units, as in Kafka."""
    assert utf16_units(note or "") == units
    verdict = judge(requested([[note]]))
    if units <= LIMIT:
        assert verdict == ALLOW
    else:
        assert verdict == RefusePartitions(error_code=12, sizes={(0, 0): units}, limit=LIMIT)


@pytest.mark.parametrize(
    ("notes", "sizes"),
    [
        ([], {}),
        ([[]], {}),
        ([["abcd", None], [""]], {}),
        ([["abcd", "abcde"], ["abcdef"]], {(0, 1): 5, (1, 0): 6}),
        ([["abcd"], [], ["a", "b", "abcdefgh"]], {(2, 2): 8}),
    ],
)
@pytest.mark.parametrize("requested", [commit, txn_commit])
def test_oversized_partitions_refused(requested: Requested, notes: Notes, sizes: dict[tuple[int, int], int]) -> None:
    """A commit is refused for exactly the partitions with oversized metadata."""
    verdict = judge(requested(notes))
    if not sizes:
        assert verdict == ALLOW
    else:
        assert verdict == RefusePartitions(error_code=12, sizes=sizes, limit=LIMIT)
        assert verdict.size == max(sizes.values())


def test_zero_limit_allows_empty_metadata_only() -> None:
    """With a limit of 0, only offsets without metadata pass."""
    assert judge(commit([[None, ""]]), limit=0) == ALLOW
    assert judge(commit([["", "a"]]), limit=0) == RefusePartitions(error_code=12, sizes={(0, 1): 1}, limit=0)


@pytest.mark.parametrize("limit", [-1, "x", None, True, 1.5])
def test_invalid_limits_are_refused(limit: object) -> None:
    """An invalid limit raises ValidationError."""
    with pytest.raises(ValidationError, match="limit"):
        OffsetMetadataSettings.model_validate({"limit": limit})


def test_short_metadata_is_not_encoded() -> None:
    """Only metadata that may exceed the limit and is not ASCII is encoded to count its length."""
    short, ascii_text, wide = Counted("é" * (LIMIT // 2)), Counted("a" * (LIMIT + 1)), Counted("é" * LIMIT)
    Counted.encoded = 0
    judge(commit([[short, ascii_text]]))
    assert Counted.encoded == 0
    judge(commit([[wide]]))
    assert Counted.encoded == 1
