"""Topic ids that the broker has confirmed, and for how long that counts."""

from uuid import UUID

from group_sidecar.proxy.topic_ids import FRESH_SECONDS, IDLE_SECONDS, IDS_AT_ONCE, MOST_IDS, ROUND_SECONDS, TopicIds

ONE, TWO = UUID(int=1), UUID(int=2)
NOW = 1000.0


def confirmed(*ids: UUID, at: float = NOW) -> TopicIds:
    """The broker has all of these."""
    topic_ids = TopicIds()
    topic_ids.have(ids)
    one_round(topic_ids, at, *ids)
    return topic_ids


def one_round(topic_ids: TopicIds, at: float, *existing: UUID) -> list[UUID]:
    """Asks about all that is due, of which the broker has these. Returns what was asked about."""
    topic_ids.fresh(at)
    asked: list[UUID] = []
    while due := topic_ids.due(at):
        topic_ids.learn(due, {topic_id: str(topic_id) for topic_id in existing})
        asked += due
    return asked


def test_an_id_counts_once_the_broker_has_confirmed_it() -> None:
    topic_ids = TopicIds()
    assert not topic_ids.fresh(NOW)
    assert not topic_ids.have({ONE})
    assert one_round(topic_ids, NOW, ONE) == [ONE]
    assert topic_ids.fresh(NOW)
    assert topic_ids.have({ONE})
    assert not topic_ids.have({ONE, TWO})


def test_a_confirmation_counts_for_a_bounded_time_from_when_it_was_asked_for() -> None:
    topic_ids = confirmed(ONE)
    assert topic_ids.fresh(NOW + FRESH_SECONDS)
    assert not topic_ids.fresh(NOW + FRESH_SECONDS + 0.01)


def test_a_sign_of_a_deletion_ends_what_was_confirmed_before_it() -> None:
    topic_ids = confirmed(ONE)
    assert topic_ids.fresh(NOW + 1, deleted_at=NOW - 0.1)
    assert not topic_ids.fresh(NOW + 1, deleted_at=NOW)
    one_round(topic_ids, NOW + 1, ONE)
    assert topic_ids.fresh(NOW + 1, deleted_at=NOW)


def test_ids_in_use_are_asked_about_in_rounds_and_one_that_is_gone_is_dropped() -> None:
    topic_ids = confirmed(ONE, TWO)
    before = topic_ids.revision
    assert topic_ids.due(NOW + ROUND_SECONDS / 2) == []
    assert sorted(one_round(topic_ids, NOW + ROUND_SECONDS, TWO)) == [ONE, TWO]
    assert topic_ids.revision > before
    assert not topic_ids.have({ONE})
    assert topic_ids.have({TWO})


def test_a_round_that_was_broken_off_confirms_nothing_before_it_is_finished() -> None:
    ids = [UUID(int=number) for number in range(1, IDS_AT_ONCE + 2)]
    topic_ids = confirmed(*ids)
    later = NOW + FRESH_SECONDS
    topic_ids.fresh(later)
    first = topic_ids.due(later)
    assert len(first) == IDS_AT_ONCE
    topic_ids.learn(first, {each: str(each) for each in ids})
    assert not topic_ids.fresh(later + 0.1)
    topic_ids.learn(topic_ids.due(later + 0.1), {each: str(each) for each in ids})
    assert topic_ids.fresh(later + FRESH_SECONDS)
    assert not topic_ids.fresh(later + FRESH_SECONDS + 0.05)


def test_nothing_is_asked_while_nobody_uses_an_id() -> None:
    topic_ids = confirmed(ONE)
    assert topic_ids.due(NOW + IDLE_SECONDS + 1) == []
    assert not topic_ids.have({ONE})


def test_an_id_that_no_reply_was_made_from_is_dropped_while_others_are_used() -> None:
    topic_ids = confirmed(ONE, TWO)
    for seconds in range(1, 3 * int(IDLE_SECONDS)):
        one_round(topic_ids, NOW + seconds, ONE, TWO)
        topic_ids.have({TWO})
    assert one_round(topic_ids, NOW + 3 * IDLE_SECONDS, ONE, TWO) == [TWO]


def test_so_many_ids_are_followed_and_no_more() -> None:
    topic_ids = TopicIds()
    ids = {UUID(int=number) for number in range(1, MOST_IDS + 100)}
    topic_ids.have(ids)
    assert len(one_round(topic_ids, NOW, *ids)) == MOST_IDS
    assert not topic_ids.have(ids)
    assert len(one_round(topic_ids, NOW + 1, *ids)) == MOST_IDS


def test_ids_that_never_existed_are_asked_about_once_for_each_question() -> None:
    topic_ids = TopicIds()
    topic_ids.have({ONE})
    assert one_round(topic_ids, NOW) == [ONE]
    assert one_round(topic_ids, NOW + 1) == []
    topic_ids.have({ONE})
    assert one_round(topic_ids, NOW + 2) == [ONE]


def test_of_two_ids_with_one_name_the_later_one_exists() -> None:
    topic_ids = confirmed(ONE)
    topic_ids.have({TWO})
    topic_ids.fresh(NOW + 1)
    asked = topic_ids.due(NOW + 1)
    assert sorted(asked) == [ONE, TWO]
    topic_ids.learn([ONE], {ONE: str(ONE)})
    topic_ids.learn([TWO], {TWO: str(ONE)})
    assert topic_ids.names == {TWO: str(ONE)}
