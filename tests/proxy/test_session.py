"""One connection as a playbook: order, turns, closings."""

import gc

import pytest

from group_sidecar.codecs.registry import ApiKey
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.commands import Close, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.disposals import Answer, Forward, HangUp, Pass, Reply
from group_sidecar.proxy.session import MOST_EXPECTED, Session
from tests.proxy.playbook import LARGEST_FRAME, Playbook, ScriptedDesk, framed, reply, request, to_upstream

FETCH, COMMIT, ASK, JOIN, LEAVE = (
    int(key) for key in (ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP)
)
BAD_LENGTH = Close(CloseReason.BAD_FRAME_LENGTH)
MISMATCH = Close(CloseReason.CORRELATION_MISMATCH)
TRUNCATED = Close(CloseReason.TRUNCATED_FRAME)
BROKER_CLOSED = Close(CloseReason.BROKER_CLOSED)


@pytest.fixture
def desk() -> ScriptedDesk:
    return ScriptedDesk()


@pytest.fixture
def play(desk: ScriptedDesk) -> Playbook:
    return Playbook(desk)


def answering(*frames: bytes, made: list[float] | None = None) -> Answer:
    """An answer from here: the frames in turn. `made`: where the times are noted at which they were."""
    rest = iter(frames)

    def make(now: float) -> bytes:
        if made is not None:
            made.append(now)
        return next(rest)

    return Answer(make)


# What passes.


def test_what_nobody_looks_into_passes_as_the_very_chunk_it_came_in(play: Playbook) -> None:
    asked, told = request(FETCH, 1) + request(FETCH, 2), reply(1) + reply(2)
    (there,), (back,) = play.client(asked), play.upstream(told)
    assert isinstance(there, ToUpstream)
    assert isinstance(back, ToClient)
    assert there.data is asked
    assert back.data is told


def test_a_long_frame_passes_as_it_comes_both_ways(play: Playbook) -> None:
    asked, told = request(FETCH, 1, body=bytes(500)), reply(1, bytes(500))
    assert play.client(asked[:100]) == [ToUpstream(asked[:100])]
    assert play.client(asked[100:]) == [ToUpstream(asked[100:])]
    assert play.upstream(told[:100]) == [ToClient(told[:100])]
    assert play.session.held_bytes == 0
    assert play.upstream(told[100:]) == [ToClient(told[100:])]


def test_a_reply_is_shown_to_the_desk_before_the_client_gets_it(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[COMMIT] = "a commit"
    play.client(request(COMMIT, 7))
    assert play.upstream(reply(7, b"ok")) == [ToClient(reply(7, b"ok"))]
    assert desk.shown == [("a commit", reply(7, b"ok")[4:])]


def test_a_reply_may_be_rewritten(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[FETCH] = "rewrite"
    desk.replies["rewrite"] = Reply(reply(7, b"other"))
    play.client(request(FETCH, 7))
    assert play.upstream(reply(7, b"this")) == [ToClient(reply(7, b"other"))]


def test_a_reply_that_the_desk_does_not_want_passes_unheld(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[FETCH] = "long"
    desk.unread.add("long")
    play.client(request(FETCH, 1))
    told = reply(1, bytes(100))
    assert play.upstream(told[:50]) == [ToClient(told[:50])]
    assert play.upstream(told[50:]) == [ToClient(told[50:])]
    assert desk.shown == []


def test_what_is_held_is_told(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[FETCH] = "note"
    desk.takes(COMMIT, Pass())
    play.client(request(FETCH, 1), request(COMMIT, 2)[:10])
    play.upstream(reply(1, b"body")[:9])
    assert play.session.held_bytes == 10 + 9


def test_a_taken_request_goes_on_as_it_came_or_as_the_desk_says(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(COMMIT, Forward("a commit"))
    desk.takes(JOIN, Forward("a join", request(JOIN, 2, body=b"other")))
    desk.takes(LEAVE, Pass())
    frames = request(COMMIT, 1), request(JOIN, 2, body=b"this"), request(LEAVE, 3)
    assert play.client(*frames) == [
        ToUpstream(frames[0]),
        ToUpstream(request(JOIN, 2, body=b"other")),
        ToUpstream(frames[2]),
    ]
    assert [frame for _, frame in desk.shown] == [frame[4:] for frame in frames]
    play.upstream(reply(1), reply(2), reply(3))
    assert [who for who, _ in desk.shown[3:]] == ["a commit", "a join"]


def test_requests_are_counted_with_the_time_they_took(play: Playbook) -> None:
    play.client(request(FETCH, 1), request(COMMIT, 2))
    play.now += 3
    play.upstream(reply(1))
    play.now += 4
    play.upstream(reply(2))
    assert {key: (sum(h.counts), h.sum) for key, h in play.traffic.durations.items()} == {
        FETCH: (1, 3.0),
        COMMIT: (1, 7.0),
    }


# What is answered here.


def test_an_answer_goes_out_at_once_where_nothing_is_owed(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(ASK, answering(reply(1)))
    assert play.client(request(ASK, 1)) == [ToClient(reply(1))]
    assert sum(play.traffic.durations[ASK].counts) == 1


def test_an_answer_waits_for_its_turn_and_pauses_reading(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(ASK, answering(reply(2), reply(4)))
    commands = play.client(request(JOIN, 1), request(ASK, 2), request(FETCH, 3), request(ASK, 4))
    assert commands == [ToUpstream(request(JOIN, 1))]
    assert not play.session.wants_client
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToClient(reply(2)), ToUpstream(request(FETCH, 3))]
    assert not play.session.wants_client
    assert play.upstream(reply(3)) == [ToClient(reply(3)), ToClient(reply(4))]
    assert play.session.wants_client


def test_an_answer_waits_for_the_last_byte_of_the_reply_before(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(ASK, answering(reply(2)))
    told = reply(1, b"long")
    play.client(request(FETCH, 1), request(ASK, 2))
    assert play.upstream(told[:-1]) == [ToClient(told[:-1])]
    assert not play.session.wants_client
    assert play.upstream(told[-1:]) == [ToClient(told[-1:]), ToClient(reply(2))]


def test_a_client_reads_its_own_write(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[COMMIT] = "commit"
    desk.takes(ASK, Answer(lambda now: reply(2, b"after " + str([who for who, _ in desk.shown]).encode())))
    play.client(request(COMMIT, 1), request(ASK, 2))
    assert play.upstream(reply(1))[-1] == ToClient(reply(2, b"after ['request', 'commit']"))


def test_an_answer_is_made_at_the_time_of_its_turn_and_counted_from_its_request(
    desk: ScriptedDesk, play: Playbook
) -> None:
    made: list[float] = []
    desk.takes(ASK, answering(reply(2), made=made))
    play.client(request(JOIN, 1), request(ASK, 2))
    play.now += 60
    play.upstream(reply(1))
    assert made == [160.0]
    assert play.traffic.durations[ASK].sum == 60


@pytest.mark.parametrize(("instead", "shown"), [(Pass(), []), (Forward("note"), ["note"])])
def test_what_is_not_answered_after_all_goes_to_the_broker(
    desk: ScriptedDesk, play: Playbook, instead: Pass | Forward, shown: list[str]
) -> None:
    desk.takes(ASK, Answer(lambda now: instead))
    play.client(request(JOIN, 1), request(ASK, 2), request(FETCH, 3))
    play.now += 60
    assert play.upstream(reply(1)) == [
        ToClient(reply(1)),
        ToUpstream(request(ASK, 2)),
        ToUpstream(request(FETCH, 3)),
    ]
    assert play.session.wants_client
    play.upstream(reply(2), reply(3))
    assert [who for who, _ in desk.shown[1:]] == shown
    assert play.traffic.durations[ASK].sum == 60


def test_what_is_injected_goes_first_and_its_reply_no_further(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(JOIN, Answer(lambda now: reply(2), ((request(LEAVE, -389), "leave"),)))
    desk.unread.add("leave")  # It must be taken whatever the desk says: the client must not get it.
    assert play.client(request(FETCH, 1), request(JOIN, 2), request(FETCH, 3)) == [
        ToUpstream(request(FETCH, 1)),
        ToUpstream(request(LEAVE, -389)),
    ]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert play.upstream(reply(-389, b"left")) == [ToClient(reply(2)), ToUpstream(request(FETCH, 3))]
    assert desk.shown[-1] == ("leave", reply(-389, b"left")[4:])
    assert LEAVE not in play.traffic.durations


def test_an_answer_may_turn_into_one_that_injects(desk: ScriptedDesk, play: Playbook) -> None:
    second = Answer(lambda now: reply(2), ((request(LEAVE, -389), "leave"),))
    desk.takes(JOIN, Answer(lambda now: second))
    play.client(request(FETCH, 1), request(JOIN, 2))
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToUpstream(request(LEAVE, -389))]
    assert not play.session.wants_client
    assert play.upstream(reply(-389)) == [ToClient(reply(2))]
    assert play.session.wants_client


# Bounds.


def test_a_client_that_is_owed_too_many_replies_is_not_read(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(COMMIT, Pass())
    many = [request(FETCH, n) for n in range(MOST_EXPECTED)]
    last = request(COMMIT, MOST_EXPECTED)
    assert to_upstream(play.client(*many, last)) == b"".join(many)
    assert not play.session.wants_client
    assert play.session.held_bytes == len(last)
    assert play.upstream(reply(0)) == [ToClient(reply(0)), ToUpstream(last)]
    assert not play.session.wants_client
    play.upstream(reply(1))
    assert play.session.wants_client


# What cannot be.


@pytest.mark.parametrize("taken", [False, True], ids=["at a glance", "when it is whole"])
@pytest.mark.parametrize("behind", [b"", request(FETCH, 9)], ids=["alone", "with another behind"])
def test_the_desk_may_end_the_connection(desk: ScriptedDesk, play: Playbook, taken: bool, behind: bytes) -> None:
    end = HangUp(CloseReason.MALFORMED_REQUEST)
    desk.notes[ASK] = end
    if taken:
        desk.takes(ASK, end)
    assert play.client(request(FETCH, 1), request(ASK, 2), behind) == [ToUpstream(request(FETCH, 1))]
    assert not play.session.wants_client
    assert play.upstream(reply(1)) == [ToClient(reply(1)), Close(CloseReason.MALFORMED_REQUEST)]
    assert play.client(request(FETCH, 3)) == []


@pytest.mark.parametrize("taken", [False, True])
def test_it_ends_at_once_where_nothing_is_owed(desk: ScriptedDesk, play: Playbook, taken: bool) -> None:
    end = HangUp(CloseReason.MALFORMED_REQUEST)
    desk.notes[ASK] = end
    if taken:
        desk.takes(ASK, end)
    assert play.client(request(ASK, 1)) == [Close(CloseReason.MALFORMED_REQUEST)]


def test_an_answer_may_turn_into_an_end(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(ASK, Answer(lambda _: HangUp(CloseReason.MALFORMED_REQUEST)))
    assert play.client(request(FETCH, 1), request(ASK, 2)) == [ToUpstream(request(FETCH, 1))]
    assert play.upstream(reply(1)) == [ToClient(reply(1)), Close(CloseReason.MALFORMED_REQUEST)]


@pytest.mark.parametrize("size", [0, 7, -1, LARGEST_FRAME + 1])
def test_a_bad_length_from_the_client_closes_behind_what_was_good(play: Playbook, size: int) -> None:
    bad = size.to_bytes(4, "big", signed=True)
    assert play.client(request(FETCH, 1), bad) == [ToUpstream(request(FETCH, 1))]
    assert not play.session.wants_client
    told = reply(1, b"long")
    assert play.upstream(told[:-1]) == [ToClient(told[:-1])]
    assert play.upstream(told[-1:]) == [ToClient(told[-1:]), BAD_LENGTH]


def test_a_bad_length_closes_at_once_where_nothing_is_owed(desk: ScriptedDesk, play: Playbook) -> None:
    assert play.client(b"GET / HTTP/1.1\r\n") == [BAD_LENGTH]
    assert desk.lost == [[]]
    assert play.client(request(FETCH, 1)) == []


@pytest.mark.parametrize("taken", [False, True])
def test_the_largest_request_is_accepted(desk: ScriptedDesk, play: Playbook, taken: bool) -> None:
    if taken:
        desk.takes(FETCH, Pass())
    largest = request(FETCH, 1, body=bytes(LARGEST_FRAME - 11))
    assert len(largest) == LARGEST_FRAME + 4
    assert play.client(largest) == [ToUpstream(largest)]


def test_a_bad_length_from_the_broker_closes_behind_what_was_good(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[COMMIT] = "commit"
    play.client(request(FETCH, 1), request(COMMIT, 2), request(FETCH, 3))
    assert play.upstream(reply(1), reply(2), b"\0\0\0\3abc") == [ToClient(reply(1)), ToClient(reply(2)), BAD_LENGTH]
    assert [who for who, _ in desk.shown] == ["commit"]


def test_a_reply_out_of_order_closes_behind_what_was_good(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes[COMMIT] = "commit"
    desk.takes(ASK, answering(reply(4)))
    play.client(request(FETCH, 1), request(COMMIT, 2), request(FETCH, 3), request(ASK, 4))
    assert play.upstream(reply(1), reply(3), reply(2)) == [ToClient(reply(1)), MISMATCH]
    assert desk.lost == [["commit"]]
    assert play.upstream(reply(2)) == []


def test_a_reply_that_nobody_asked_for_closes_and_nothing_more_is_served(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(ASK, answering(reply(2)))
    play.client(request(FETCH, 1), request(ASK, 2))
    assert play.upstream(reply(1), reply(9)) == [ToClient(reply(1)), MISMATCH]
    assert Playbook(desk).upstream(reply(1)) == [MISMATCH]


# Endings.


def test_the_broker_is_told_when_the_client_has_ended(desk: ScriptedDesk, play: Playbook) -> None:
    play.client(request(FETCH, 1))
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert play.upstream_closed() == [BROKER_CLOSED]
    assert desk.lost == [[]]


def test_what_a_client_sent_before_it_ended_is_served(desk: ScriptedDesk, play: Playbook) -> None:
    desk.takes(ASK, answering(reply(2)))
    play.client(request(FETCH, 1), request(ASK, 2), request(FETCH, 3))
    assert play.client_closed() == []
    assert play.upstream(reply(1)) == [
        ToClient(reply(1)),
        ToClient(reply(2)),
        ToUpstream(request(FETCH, 3)),
        ShutUpstream(),
    ]
    assert play.upstream(reply(3)) == [ToClient(reply(3))]


def test_a_client_that_ends_within_a_frame_is_closed(play: Playbook) -> None:
    play.client(request(FETCH, 1)[:-1])
    play.client(request(FETCH, 1)[-1:], b"\0\0")
    assert play.client_closed() == []
    assert play.upstream(reply(1)) == [ToClient(reply(1)), TRUNCATED]


def test_the_broker_is_told_that_no_more_comes_of_a_frame_it_has_in_part(play: Playbook) -> None:
    play.client(request(FETCH, 1), request(FETCH, 2)[:-1])
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert play.upstream_closed() == [TRUNCATED]


@pytest.mark.parametrize("taken", [False, True])
def test_a_frame_cut_off_closes_at_once_where_nothing_is_owed(desk: ScriptedDesk, play: Playbook, taken: bool) -> None:
    if taken:
        desk.takes(FETCH, Pass())
        play.client(request(FETCH, 1)[:-1])
    else:
        play.client(request(FETCH, 1)[:3])
    assert play.client_closed() == [TRUNCATED]


@pytest.mark.parametrize("noted", [False, True])
def test_a_reply_cut_off_is_told_from_a_broker_that_closes(desk: ScriptedDesk, noted: bool) -> None:
    if noted:
        desk.notes[FETCH] = "note"
    whole, cut = Playbook(desk), Playbook(desk)
    whole.client(request(FETCH, 1))
    assert whole.upstream_closed() == [BROKER_CLOSED]
    cut.client(request(FETCH, 1))
    cut.upstream(reply(1)[:-1])
    assert cut.upstream_closed() == [TRUNCATED]
    assert desk.lost == ([["note"], ["note"]] if noted else [[], []])


def test_the_desk_is_told_once_of_replies_that_will_not_come(desk: ScriptedDesk, play: Playbook) -> None:
    desk.notes |= {COMMIT: "commit", JOIN: "join"}
    desk.takes(ASK, Answer(lambda now: reply(4), ((request(LEAVE, -389), "leave"),)))
    play.client(request(COMMIT, 1), request(FETCH, 2), request(JOIN, 3), request(ASK, 4), request(COMMIT, 5))
    play.upstream(reply(1), reply(2), reply(3)[:-1])
    assert play.session.close(play.now) == []
    assert desk.lost == [["join", "leave"]]
    assert play.upstream_closed() == []
    assert play.client_closed() == []
    play.session.close(play.now)
    assert desk.lost == [["join", "leave"]]


@pytest.mark.parametrize("end", ["upstream_closed", "mismatch", "close"])
def test_each_way_to_end_tells_the_desk_once(desk: ScriptedDesk, play: Playbook, end: str) -> None:
    desk.notes[JOIN] = "join"
    play.client(request(JOIN, 1))
    if end == "upstream_closed":
        play.upstream_closed()
    elif end == "mismatch":
        play.upstream(reply(2))
    play.session.close(play.now)
    assert desk.lost == [["join"]]


def test_an_answer_whose_turn_never_comes_is_never_made(desk: ScriptedDesk, play: Playbook) -> None:
    made: list[float] = []
    desk.takes(ASK, answering(reply(2), made=made))
    play.client(request(JOIN, 1), request(ASK, 2))
    assert play.upstream_closed() == [BROKER_CLOSED]
    assert made == []
    assert desk.lost == [[]]


def test_a_frame_of_nothing_but_a_header_is_one(play: Playbook) -> None:
    smallest = framed(bytes(8))
    assert play.client(smallest) == [ToUpstream(b"\0\0\0\x08" + bytes(8))]


def sessions() -> int:
    return sum(isinstance(each, Session) for each in gc.get_objects())


def test_a_session_that_is_over_leaves_no_garbage() -> None:
    gc.collect()
    before = sessions()
    gc.disable()
    try:
        book = Playbook(ScriptedDesk())
        book.client(request(1, 1))
        book.upstream(reply(1))
        assert sessions() == before + 1
        book.session.close(book.now)
        del book
        assert sessions() == before
    finally:
        gc.enable()
