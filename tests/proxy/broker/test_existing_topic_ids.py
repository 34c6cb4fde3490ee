"""Tests which topic ids count as confirmed, and for how long."""

from uuid import UUID

from group_sidecar.proxy.broker.existing_topic_ids import (
    FRESH_SECONDS,
    IDLE_SECONDS,
    IDS_AT_ONCE,
    MAX_TOPIC_IDS,
    ROUND_SECONDS,
    TopicIds,
)

ONE, TWO = UUID(int=1), UUID(int=2)
NOW = 1000.0


def confirmed(*ids: UUID, at: float = NOW) -> TopicIds:
    """Returns a `TopicIds` whose ids the broker has confirmed."""
    topic_ids = TopicIds()
    topic_ids.are_confirmed(ids)
    one_round(topic_ids, at, *ids)
    return topic_ids


def one_round(topic_ids: TopicIds, at: float, *existing: UUID) -> list[UUID]:
    """Runs a round of requests. Returns the requested ids."""
    topic_ids.are_fresh(at)
    requested: list[UUID] = []
    while due := topic_ids.due(at):
        topic_ids.learn(due, {topic_id: str(topic_id) for topic_id in existing})
        requested += due
    return requested


def test_id_counts_after_confirmation() -> None:
    """A topic id counts only after the broker has confirmed it."""
    topic_ids = TopicIds()
    assert not topic_ids.are_fresh(NOW)
    assert not topic_ids.are_confirmed({ONE})
    assert one_round(topic_ids, NOW, ONE) == [ONE]
    assert topic_ids.are_fresh(NOW)
    assert topic_ids.are_confirmed({ONE})
    assert not topic_ids.are_confirmed({ONE, TWO})


def test_confirmation_expires() -> None:
    """A confirmation counts for FRESH_SECONDS from the time of its request."""
    topic_ids = confirmed(ONE)
    assert topic_ids.are_fresh(NOW + FRESH_SECONDS)
    assert not topic_ids.are_fresh(NOW + FRESH_SECONDS + 0.01)


def test_deletion_ends_earlier_confirmations() -> None:
    """A sign of a deletion ends all confirmations before it."""
    topic_ids = confirmed(ONE)
    assert topic_ids.are_fresh(NOW + 1, deleted_at=NOW - 0.1)
    assert not topic_ids.are_fresh(NOW + 1, deleted_at=NOW)
    one_round(topic_ids, NOW + 1, ONE)
    assert topic_ids.are_fresh(NOW + 1, deleted_at=NOW)


def test_missing_id_is_dropped_after_round() -> None:
    """Used ids are requested in rounds, and an id that the broker no longer has is dropped."""
    topic_ids = confirmed(ONE, TWO)
    before = topic_ids.revision
    assert topic_ids.due(NOW + ROUND_SECONDS / 2) == []
    assert sorted(one_round(topic_ids, NOW + ROUND_SECONDS, TWO)) == [ONE, TWO]
    assert topic_ids.revision > before
    assert not topic_ids.are_confirmed({ONE})
    assert topic_ids.are_confirmed({TWO})


def test_unfinished_round_confirms_nothing() -> None:
    """A round of several requests confirms nothing before it is finished, and counts from its start."""
    ids = [UUID(int=number) for number in range(1, IDS_AT_ONCE + 2)]
    topic_ids = confirmed(*ids)
    later = NOW + FRESH_SECONDS
    topic_ids.are_fresh(later)
    first = topic_ids.due(later)
    assert len(first) == IDS_AT_ONCE
    topic_ids.learn(first, {each: str(each) for each in ids})
    assert not topic_ids.are_fresh(later + 0.1)
    topic_ids.learn(topic_ids.due(later + 0.1), {each: str(each) for each in ids})
    assert topic_ids.are_fresh(later + FRESH_SECONDS)
    assert not topic_ids.are_fresh(later + FRESH_SECONDS + 0.05)


def test_unused_ids_are_not_requested() -> None:
    """Nothing is requested while no id is used."""
    topic_ids = confirmed(ONE)
    assert topic_ids.due(NOW + IDLE_SECONDS + 1) == []
    assert not topic_ids.are_confirmed({ONE})


def test_idle_id_is_dropped() -> None:
    """An id that no reply uses is dropped while others stay in use."""
    topic_ids = confirmed(ONE, TWO)
    for seconds in range(1, 3 * int(IDLE_SECONDS)):
        one_round(topic_ids, NOW + seconds, ONE, TWO)
        topic_ids.are_confirmed({TWO})
    assert one_round(topic_ids, NOW + 3 * IDLE_SECONDS, ONE, TWO) == [TWO]


def test_tracked_ids_are_bounded() -> None:
    """The number of tracked ids is bounded."""
    topic_ids = TopicIds()
    ids = {UUID(int=number) for number in range(1, MAX_TOPIC_IDS + 100)}
    topic_ids.are_confirmed(ids)
    assert len(one_round(topic_ids, NOW, *ids)) == MAX_TOPIC_IDS
    assert not topic_ids.are_confirmed(ids)
    assert len(one_round(topic_ids, NOW + 1, *ids)) == MAX_TOPIC_IDS


def test_unknown_id_is_requested_per_question() -> None:
    """An id that never existed is requested once for each question about it."""
    topic_ids = TopicIds()
    topic_ids.are_confirmed({ONE})
    assert one_round(topic_ids, NOW) == [ONE]
    assert one_round(topic_ids, NOW + 1) == []
    topic_ids.are_confirmed({ONE})
    assert one_round(topic_ids, NOW + 2) == [ONE]


def test_newer_id_takes_over_topic_name() -> None:
    """If two ids have the same name, only the id that was confirmed last exists."""
    topic_ids = confirmed(ONE)
    topic_ids.are_confirmed({TWO})
    topic_ids.are_fresh(NOW + 1)
    due = topic_ids.due(NOW + 1)
    assert sorted(due) == [ONE, TWO]
    topic_ids.learn([ONE], {ONE: str(ONE)})
    topic_ids.learn([TWO], {TWO: str(ONE)})
    assert topic_ids.names == {TWO: str(ONE)}
