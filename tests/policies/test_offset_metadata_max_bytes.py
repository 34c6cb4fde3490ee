"""offset.metadata.max.bytes, as Kafka's OffsetMetadataManager counts."""

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
from group_sidecar.coordinator.views import GroupView
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
    return OffsetMetadataMaxBytes(OffsetMetadataSettings(limit=limit)).judge(request, GroupView(group_id="g"))


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
def test_what_counts_as_too_long(requested: Requested, note: str | None, units: int) -> None:
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
def test_which_partitions_may_not_pass(requested: Requested, notes: Notes, sizes: dict[tuple[int, int], int]) -> None:
    verdict = judge(requested(notes))
    if not sizes:
        assert verdict == ALLOW
    else:
        assert verdict == RefusePartitions(error_code=12, sizes=sizes, limit=LIMIT)
        assert verdict.size == max(sizes.values())


def test_a_limit_of_zero_lets_only_offsets_without_metadata_pass() -> None:
    assert judge(commit([[None, ""]]), limit=0) == ALLOW
    assert judge(commit([["", "a"]]), limit=0) == RefusePartitions(error_code=12, sizes={(0, 1): 1}, limit=0)


@pytest.mark.parametrize("limit", [-1, "x", None, True, 1.5])
def test_limits_that_are_none(limit: object) -> None:
    with pytest.raises(ValidationError, match="limit"):
        OffsetMetadataSettings.model_validate({"limit": limit})


def test_only_what_may_be_too_long_is_encoded_to_be_counted() -> None:
    """To encode the metadata of 21,000 partitions took 6 ms."""
    short, ascii_text, wide = Counted("é" * (LIMIT // 2)), Counted("a" * (LIMIT + 1)), Counted("é" * LIMIT)
    Counted.encoded = 0
    judge(commit([[short, ascii_text]]))
    assert Counted.encoded == 0
    judge(commit([[wide]]))
    assert Counted.encoded == 1
