"""The commands of one connection's session: their order, the turns, and the ends of the connection."""

import gc

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.commands import Close, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, HangUp, Pass, Reply
from group_sidecar.proxy.dataplane.session import Session
from tests.proxy.dataplane.playbook import (
    LARGEST_FRAME,
    ScriptedDispatcher,
    SessionDriver,
    framed,
    reply,
    request,
    to_upstream,
)
from tests.proxy.fakes import MAX_IN_FLIGHT, Named

FETCH, COMMIT, ASK, JOIN, LEAVE = (
    int(key) for key in (ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP)
)
BAD_LENGTH = Close(CloseReason.BAD_FRAME_LENGTH)
MISMATCH = Close(CloseReason.CORRELATION_MISMATCH)
TRUNCATED = Close(CloseReason.TRUNCATED_FRAME)
BROKER_CLOSED = Close(CloseReason.BROKER_CLOSED)


@pytest.fixture
def dispatcher() -> ScriptedDispatcher:
    return ScriptedDispatcher()


@pytest.fixture
def play(dispatcher: ScriptedDispatcher) -> SessionDriver:
    return SessionDriver(dispatcher)


def answering(*frames: bytes, made: list[float] | None = None) -> AnswerInOrder:
    """Returns an answer that makes one frame after the other. `made` receives the times."""
    rest = iter(frames)

    def make(now: float) -> bytes:
        if made is not None:
            made.append(now)
        return next(rest)

    return AnswerInOrder(make)


# Forwarded requests.


def test_uninspected_bytes_keep_their_chunk(play: SessionDriver) -> None:
    """Requests and replies that are not inspected leave as the same bytes object in which they arrived."""
    request_frame, reply_frame = request(FETCH, 1) + request(FETCH, 2), reply(1) + reply(2)
    (there,), (back,) = play.client(request_frame), play.upstream(reply_frame)
    assert isinstance(there, ToUpstream)
    assert isinstance(back, ToClient)
    assert there.data is request_frame
    assert back.data is reply_frame


def test_long_frame_streams_both_ways(play: SessionDriver) -> None:
    """A long frame leaves in its chunks, in both directions, and no byte is held."""
    request_frame, reply_frame = request(FETCH, 1, body=bytes(500)), reply(1, bytes(500))
    assert play.client(request_frame[:100]) == [ToUpstream(request_frame[:100])]
    assert play.client(request_frame[100:]) == [ToUpstream(request_frame[100:])]
    assert play.upstream(reply_frame[:100]) == [ToClient(reply_frame[:100])]
    assert play.session.held_bytes == 0
    assert play.upstream(reply_frame[100:]) == [ToClient(reply_frame[100:])]


def test_noted_reply_reaches_dispatcher(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A reply that the dispatcher wants is passed to the dispatcher and to the client."""
    dispatcher.notes[COMMIT] = "a commit"
    play.client(request(COMMIT, 7))
    assert play.upstream(reply(7, b"ok")) == [ToClient(reply(7, b"ok"))]
    assert dispatcher.shown == [("a commit", reply(7, b"ok")[4:])]


def test_a_reply_may_be_rewritten(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """The dispatcher can replace a reply."""
    dispatcher.notes[FETCH] = "rewrite"
    dispatcher.replies["rewrite"] = Reply(reply(7, b"other"))
    play.client(request(FETCH, 7))
    assert play.upstream(reply(7, b"this")) == [ToClient(reply(7, b"other"))]


def test_unwanted_reply_is_not_held(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A reply that the dispatcher does not want passes without being held."""
    dispatcher.notes[FETCH] = "long"
    dispatcher.unread.add("long")
    play.client(request(FETCH, 1))
    reply_frame = reply(1, bytes(100))
    assert play.upstream(reply_frame[:50]) == [ToClient(reply_frame[:50])]
    assert play.upstream(reply_frame[50:]) == [ToClient(reply_frame[50:])]
    assert dispatcher.shown == []


def test_held_bytes_count_both_directions(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """The session's held bytes include partial requests and partial replies."""
    dispatcher.notes[FETCH] = "note"
    dispatcher.takes(COMMIT, Pass())
    play.client(request(FETCH, 1), request(COMMIT, 2)[:10])
    play.upstream(reply(1, b"body")[:9])
    assert play.session.held_bytes == 10 + 9


def test_held_request_may_be_replaced(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A held request is forwarded unchanged or replaced, as the dispatcher decides."""
    dispatcher.takes(COMMIT, Forward(Named("a commit")))
    dispatcher.takes(JOIN, Forward(Named("a join"), request(JOIN, 2, body=b"other")))
    dispatcher.takes(LEAVE, Pass())
    frames = request(COMMIT, 1), request(JOIN, 2, body=b"this"), request(LEAVE, 3)
    assert play.client(*frames) == [
        ToUpstream(frames[0]),
        ToUpstream(request(JOIN, 2, body=b"other")),
        ToUpstream(frames[2]),
    ]
    assert [frame for _, frame in dispatcher.shown] == [frame[4:] for frame in frames]
    play.upstream(reply(1), reply(2), reply(3))
    assert [who for who, _ in dispatcher.shown[3:]] == ["a commit", "a join"]


def test_durations_are_counted_per_api(play: SessionDriver) -> None:
    """Each request is counted under its API key with the time until its reply."""
    play.client(request(FETCH, 1), request(COMMIT, 2))
    play.now += 3
    play.upstream(reply(1))
    play.now += 4
    play.upstream(reply(2))
    assert {key: (sum(h.counts), h.sum) for key, h in play.traffic.durations.items()} == {
        FETCH: (1, 3.0),
        COMMIT: (1, 7.0),
    }


# Local answers.


def test_answer_is_immediate_without_pending(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer leaves at once if no reply is pending."""
    dispatcher.takes(ASK, answering(reply(1)))
    assert play.client(request(ASK, 1)) == [ToClient(reply(1))]
    assert sum(play.traffic.durations[ASK].counts) == 1


def test_answer_waits_and_pauses_reading(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer waits for earlier replies, and the client is not read meanwhile."""
    dispatcher.takes(ASK, answering(reply(2), reply(4)))
    commands = play.client(request(JOIN, 1), request(ASK, 2), request(FETCH, 3), request(ASK, 4))
    assert commands == [ToUpstream(request(JOIN, 1))]
    assert not play.session.should_read_client
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToClient(reply(2)), ToUpstream(request(FETCH, 3))]
    assert not play.session.should_read_client
    assert play.upstream(reply(3)) == [ToClient(reply(3)), ToClient(reply(4))]
    assert play.session.should_read_client


def test_answer_waits_for_whole_reply(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer waits for the last byte of the earlier reply."""
    dispatcher.takes(ASK, answering(reply(2)))
    reply_frame = reply(1, b"long")
    play.client(request(FETCH, 1), request(ASK, 2))
    assert play.upstream(reply_frame[:-1]) == [ToClient(reply_frame[:-1])]
    assert not play.session.should_read_client
    assert play.upstream(reply_frame[-1:]) == [ToClient(reply_frame[-1:]), ToClient(reply(2))]


def test_a_client_reads_its_own_write(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer is built after the reply to an earlier commit was passed to the dispatcher."""
    dispatcher.notes[COMMIT] = "commit"
    dispatcher.takes(
        ASK, AnswerInOrder(lambda now: reply(2, b"after " + str([who for who, _ in dispatcher.shown]).encode()))
    )
    play.client(request(COMMIT, 1), request(ASK, 2))
    assert play.upstream(reply(1))[-1] == ToClient(reply(2, b"after ['request', 'commit']"))


def test_answer_is_made_at_its_turn(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer is built when its turn comes. Its duration counts from the request."""
    made: list[float] = []
    dispatcher.takes(ASK, answering(reply(2), made=made))
    play.client(request(JOIN, 1), request(ASK, 2))
    play.now += 60
    play.upstream(reply(1))
    assert made == [160.0]
    assert play.traffic.durations[ASK].sum == 60


@pytest.mark.parametrize(("instead", "shown"), [(Pass(), []), (Forward(Named("note")), ["note"])])
def test_answer_may_turn_into_forward(
    dispatcher: ScriptedDispatcher, play: SessionDriver, instead: Pass | Forward, shown: list[str]
) -> None:
    """A local answer that turns into Pass or Forward at its turn goes to the broker."""
    dispatcher.takes(ASK, AnswerInOrder(lambda now: instead))
    play.client(request(JOIN, 1), request(ASK, 2), request(FETCH, 3))
    play.now += 60
    assert play.upstream(reply(1)) == [
        ToClient(reply(1)),
        ToUpstream(request(ASK, 2)),
        ToUpstream(request(FETCH, 3)),
    ]
    assert play.session.should_read_client
    play.upstream(reply(2), reply(3))
    assert [who for who, _ in dispatcher.shown[1:]] == shown
    assert play.traffic.durations[ASK].sum == 60


def test_injected_request_precedes_answer(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """An injected request goes to the broker before the local answer, and its reply does not reach the client."""
    dispatcher.takes(JOIN, AnswerInOrder(lambda now: reply(2), ((request(LEAVE, -389), Named("leave")),)))
    dispatcher.unread.add("leave")  # The session must hold it anyway, because the client must not get it.
    assert play.client(request(FETCH, 1), request(JOIN, 2), request(FETCH, 3)) == [
        ToUpstream(request(FETCH, 1)),
        ToUpstream(request(LEAVE, -389)),
    ]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert play.upstream(reply(-389, b"left")) == [ToClient(reply(2)), ToUpstream(request(FETCH, 3))]
    assert dispatcher.shown[-1] == ("leave", reply(-389, b"left")[4:])
    assert LEAVE not in play.traffic.durations


def test_answer_may_turn_into_injection(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer may turn into an answer with an injected request at its turn."""
    second = AnswerInOrder(lambda now: reply(2), ((request(LEAVE, -389), Named("leave")),))
    dispatcher.takes(JOIN, AnswerInOrder(lambda now: second))
    play.client(request(FETCH, 1), request(JOIN, 2))
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToUpstream(request(LEAVE, -389))]
    assert not play.session.should_read_client
    assert play.upstream(reply(-389)) == [ToClient(reply(2))]
    assert play.session.should_read_client


# Bounds.


def test_client_pauses_at_max_in_flight(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A client with MAX_IN_FLIGHT pending replies is not read until replies arrive."""
    dispatcher.takes(COMMIT, Pass())
    many = [request(FETCH, n) for n in range(MAX_IN_FLIGHT)]
    last = request(COMMIT, MAX_IN_FLIGHT)
    assert to_upstream(play.client(*many, last)) == b"".join(many)
    assert not play.session.should_read_client
    assert play.session.held_bytes == len(last)
    assert play.upstream(reply(0)) == [ToClient(reply(0)), ToUpstream(last)]
    assert not play.session.should_read_client
    play.upstream(reply(1))
    assert play.session.should_read_client


# Impossible frames.


@pytest.mark.parametrize("taken", [False, True], ids=["at its head", "when it is complete"])
@pytest.mark.parametrize("behind", [b"", request(FETCH, 9)], ids=["alone", "with another behind"])
def test_dispatcher_may_end_the_connection(
    dispatcher: ScriptedDispatcher, play: SessionDriver, taken: bool, behind: bytes
) -> None:
    """The dispatcher can end the connection. The client gets pending replies first, and later requests are not
    forwarded.
    """
    end = HangUp(CloseReason.MALFORMED_REQUEST)
    dispatcher.notes[ASK] = end
    if taken:
        dispatcher.takes(ASK, end)
    assert play.client(request(FETCH, 1), request(ASK, 2), behind) == [ToUpstream(request(FETCH, 1))]
    assert not play.session.should_read_client
    assert play.upstream(reply(1)) == [ToClient(reply(1)), Close(CloseReason.MALFORMED_REQUEST)]
    assert play.client(request(FETCH, 3)) == []


@pytest.mark.parametrize("taken", [False, True])
def test_hang_up_is_immediate_without_pending(dispatcher: ScriptedDispatcher, play: SessionDriver, taken: bool) -> None:
    """The dispatcher's end of the connection takes effect at once if no reply is pending."""
    end = HangUp(CloseReason.MALFORMED_REQUEST)
    dispatcher.notes[ASK] = end
    if taken:
        dispatcher.takes(ASK, end)
    assert play.client(request(ASK, 1)) == [Close(CloseReason.MALFORMED_REQUEST)]


def test_answer_may_turn_into_hang_up(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer may turn into the end of the connection at its turn."""
    dispatcher.takes(ASK, AnswerInOrder(lambda _: HangUp(CloseReason.MALFORMED_REQUEST)))
    assert play.client(request(FETCH, 1), request(ASK, 2)) == [ToUpstream(request(FETCH, 1))]
    assert play.upstream(reply(1)) == [ToClient(reply(1)), Close(CloseReason.MALFORMED_REQUEST)]


@pytest.mark.parametrize("size", [0, 7, -1, LARGEST_FRAME + 1])
def test_bad_request_length_closes_after_replies(play: SessionDriver, size: int) -> None:
    """A bad frame length from the client closes the connection after the replies to good requests."""
    bad = size.to_bytes(4, "big", signed=True)
    assert play.client(request(FETCH, 1), bad) == [ToUpstream(request(FETCH, 1))]
    assert not play.session.should_read_client
    reply_frame = reply(1, b"long")
    assert play.upstream(reply_frame[:-1]) == [ToClient(reply_frame[:-1])]
    assert play.upstream(reply_frame[-1:]) == [ToClient(reply_frame[-1:]), BAD_LENGTH]


def test_bad_length_closes_at_once(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A bad frame length closes the connection at once if no reply is pending."""
    assert play.client(b"GET / HTTP/1.1\r\n") == [BAD_LENGTH]
    assert dispatcher.lost == [[]]
    assert play.client(request(FETCH, 1)) == []


@pytest.mark.parametrize("taken", [False, True])
def test_the_largest_request_is_accepted(dispatcher: ScriptedDispatcher, play: SessionDriver, taken: bool) -> None:
    """A request of the largest accepted length is forwarded."""
    if taken:
        dispatcher.takes(FETCH, Pass())
    largest = request(FETCH, 1, body=bytes(LARGEST_FRAME - 11))
    assert len(largest) == LARGEST_FRAME + 4
    assert play.client(largest) == [ToUpstream(largest)]


def test_bad_reply_length_closes_after_replies(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A bad frame length from the broker closes the connection after the good replies."""
    dispatcher.notes[COMMIT] = "commit"
    play.client(request(FETCH, 1), request(COMMIT, 2), request(FETCH, 3))
    assert play.upstream(reply(1), reply(2), b"\0\0\0\3abc") == [ToClient(reply(1)), ToClient(reply(2)), BAD_LENGTH]
    assert [who for who, _ in dispatcher.shown] == ["commit"]


def test_reply_out_of_order_closes(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A reply with the wrong correlation id closes the connection after the good replies."""
    dispatcher.notes[COMMIT] = "commit"
    dispatcher.takes(ASK, answering(reply(4)))
    play.client(request(FETCH, 1), request(COMMIT, 2), request(FETCH, 3), request(ASK, 4))
    assert play.upstream(reply(1), reply(3), reply(2)) == [ToClient(reply(1)), MISMATCH]
    assert dispatcher.lost == [["commit"]]
    assert play.upstream(reply(2)) == []


def test_unexpected_reply_closes(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A reply without a request closes the connection, and a waiting answer is not sent."""
    dispatcher.takes(ASK, answering(reply(2)))
    play.client(request(FETCH, 1), request(ASK, 2))
    assert play.upstream(reply(1), reply(9)) == [ToClient(reply(1)), MISMATCH]
    assert SessionDriver(dispatcher).upstream(reply(1)) == [MISMATCH]


# Endings.


def test_client_end_is_passed_to_broker(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """The broker gets the client's end of stream, and the client still gets its reply."""
    play.client(request(FETCH, 1))
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert play.upstream_closed() == [BROKER_CLOSED]
    assert dispatcher.lost == [[]]


def test_requests_before_client_end_are_served(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """Requests that a client sent before its end of stream are served first."""
    dispatcher.takes(ASK, answering(reply(2)))
    play.client(request(FETCH, 1), request(ASK, 2), request(FETCH, 3))
    assert play.client_closed() == []
    assert play.upstream(reply(1)) == [
        ToClient(reply(1)),
        ToClient(reply(2)),
        ToUpstream(request(FETCH, 3)),
        ShutUpstream(),
    ]
    assert play.upstream(reply(3)) == [ToClient(reply(3))]


def test_client_end_within_a_frame_closes(play: SessionDriver) -> None:
    """A client's end of stream within a frame closes the connection after pending replies."""
    play.client(request(FETCH, 1)[:-1])
    play.client(request(FETCH, 1)[-1:], b"\0\0")
    assert play.client_closed() == []
    assert play.upstream(reply(1)) == [ToClient(reply(1)), TRUNCATED]


def test_client_end_within_forwarded_frame(play: SessionDriver) -> None:
    """The broker gets the client's end of stream within a partly forwarded frame, and the connection closes as
    truncated.
    """
    play.client(request(FETCH, 1), request(FETCH, 2)[:-1])
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert play.upstream_closed() == [TRUNCATED]


@pytest.mark.parametrize("taken", [False, True])
def test_truncated_frame_closes_at_once(dispatcher: ScriptedDispatcher, play: SessionDriver, taken: bool) -> None:
    """A truncated frame closes the connection at once if no reply is pending."""
    if taken:
        dispatcher.takes(FETCH, Pass())
        play.client(request(FETCH, 1)[:-1])
    else:
        play.client(request(FETCH, 1)[:3])
    assert play.client_closed() == [TRUNCATED]


@pytest.mark.parametrize("noted", [False, True])
def test_truncated_reply_differs_from_close(dispatcher: ScriptedDispatcher, noted: bool) -> None:
    """A broker that closes within a reply causes another close reason than a broker that closes between frames."""
    if noted:
        dispatcher.notes[FETCH] = "note"
    whole, cut = SessionDriver(dispatcher), SessionDriver(dispatcher)
    whole.client(request(FETCH, 1))
    assert whole.upstream_closed() == [BROKER_CLOSED]
    cut.client(request(FETCH, 1))
    cut.upstream(reply(1)[:-1])
    assert cut.upstream_closed() == [TRUNCATED]
    assert dispatcher.lost == ([["note"], ["note"]] if noted else [[], []])


def test_lost_replies_are_reported_once(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """The dispatcher gets the pending notes once when the session closes, also those of injected requests."""
    dispatcher.notes |= {COMMIT: "commit", JOIN: "join"}
    dispatcher.takes(ASK, AnswerInOrder(lambda now: reply(4), ((request(LEAVE, -389), Named("leave")),)))
    play.client(request(COMMIT, 1), request(FETCH, 2), request(JOIN, 3), request(ASK, 4), request(COMMIT, 5))
    play.upstream(reply(1), reply(2), reply(3)[:-1])
    assert play.session.close(play.now) == []
    assert dispatcher.lost == [["join", "leave"]]
    assert play.upstream_closed() == []
    assert play.client_closed() == []
    play.session.close(play.now)
    assert dispatcher.lost == [["join", "leave"]]


@pytest.mark.parametrize("end", ["upstream_closed", "mismatch", "close"])
def test_each_ending_is_reported_once(dispatcher: ScriptedDispatcher, play: SessionDriver, end: str) -> None:
    """The dispatcher gets the pending notes once for each way in which a session ends."""
    dispatcher.notes[JOIN] = "join"
    play.client(request(JOIN, 1))
    if end == "upstream_closed":
        play.upstream_closed()
    elif end == "mismatch":
        play.upstream(reply(2))
    play.session.close(play.now)
    assert dispatcher.lost == [["join"]]


def test_unreached_answer_is_never_made(dispatcher: ScriptedDispatcher, play: SessionDriver) -> None:
    """A local answer whose turn never comes is not built."""
    made: list[float] = []
    dispatcher.takes(ASK, answering(reply(2), made=made))
    play.client(request(JOIN, 1), request(ASK, 2))
    assert play.upstream_closed() == [BROKER_CLOSED]
    assert made == []
    assert dispatcher.lost == [[]]


def test_header_only_frame_is_accepted(play: SessionDriver) -> None:
    """A frame that contains only a request header is forwarded."""
    smallest = framed(bytes(8))
    assert play.client(smallest) == [ToUpstream(b"\0\0\0\x08" + bytes(8))]


def sessions() -> int:
    return sum(isinstance(each, Session) for each in gc.get_objects())


def test_closed_session_leaves_no_garbage() -> None:
    """A closed session is freed without a run of the garbage collector."""
    gc.collect()
    before = sessions()
    gc.disable()
    try:
        book = SessionDriver(ScriptedDispatcher())
        book.client(request(1, 1))
        book.upstream(reply(1))
        assert sessions() == before + 1
        book.session.close(book.now)
        del book
        assert sessions() == before
    finally:
        gc.enable()
