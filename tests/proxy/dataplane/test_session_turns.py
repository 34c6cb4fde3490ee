"""How many local answers one connection gets in one turn."""

from collections import deque

from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.proxy.dataplane.commands import ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.outcomes import OPAQUE, AnswerInOrder, Pass
from group_sidecar.proxy.dataplane.session import (
    FORGOTTEN_WORK_PER_SECOND,
    MAX_COUNTED_WORK,
    MAX_UNCOUNTED_WORK,
    REQUEST_COST,
    WORK_PER_TURN,
)
from tests.proxy.dataplane.playbook import (
    Line,
    ScriptedDispatcher,
    SessionDriver,
    complete_state,
    new_dispatcher,
    reply,
    request,
    to_client,
    to_upstream,
)

ASKED, FORWARDED, OTHER = 9, 8, 3


def heartbeats(count: int) -> list[bytes]:
    """Returns requests that are kept until their replies are decoded, with the correlation ids from 0 on."""
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return [encode_request(beat, RequestHeader(beat.KEY, 3, number, "c")) for number in range(count)]


def answering(size: int) -> tuple[SessionDriver, list[float]]:
    """Returns a session whose dispatcher answers ASKED with `size` bytes, and the times of its answers."""
    dispatcher, made = ScriptedDispatcher(), list[float]()
    book = SessionDriver(dispatcher)

    def make(now: float) -> bytes:
        made.append(now)
        return reply(1, bytes(size))

    dispatcher.takes(ASKED, AnswerInOrder(make))
    dispatcher.takes(FORWARDED, Pass())
    return book, made


def test_answers_of_one_turn_are_bounded() -> None:
    """The answers of one turn are bounded to about WORK_PER_TURN. The others follow on resume."""
    size, count = 50_000, 100
    book, made = answering(size)
    commands = book.client(request(ASKED, 1) * count)
    turns = 0
    while book.session.paused:
        assert not book.session.should_read_client
        assert len(to_client(commands)) < WORK_PER_TURN + size + 100
        before = len(made)
        commands = book.session.resume(book.now)
        turns += 1
        assert before < len(made) <= count
    assert len(made) == count
    assert turns >= count * size // WORK_PER_TURN // 2
    assert book.session.should_read_client


def test_small_answers_end_a_turn() -> None:
    """Many small answers end a turn too."""
    book, made = answering(0)
    book.client(request(ASKED, 1) * 1000)
    assert 1 < len(made) <= WORK_PER_TURN // REQUEST_COST
    assert book.session.paused


def test_forwarded_requests_end_a_turn() -> None:
    """Many inspected requests that are forwarded end a turn too."""
    book, _ = answering(0)
    commands = book.client(request(FORWARDED, 1) * 1000)
    assert sum(isinstance(command, ToUpstream) for command in commands) <= WORK_PER_TURN // REQUEST_COST
    assert book.session.paused


def test_long_requests_end_a_turn_sooner() -> None:
    """A long inspected request ends a turn sooner, because its many elements take longer to decode."""
    book, _ = answering(0)
    commands = book.client(request(FORWARDED, 1, body=bytes(20_000)) * 20)
    assert sum(isinstance(command, ToUpstream) for command in commands) == 1
    assert book.session.paused


def test_single_answers_never_pause() -> None:
    """A client that asks one question at a time is never paused."""
    book, made = answering(WORK_PER_TURN)
    for _ in range(50):
        assert [type(command) for command in book.client(request(ASKED, 1))] == [ToClient]
        assert not book.session.paused
    assert len(made) == 50


def test_recent_work_makes_connection_take_turns() -> None:
    """A connection takes turns while its recent work is too much, however the work is cut. The work is forgotten."""
    few = MAX_UNCOUNTED_WORK // REQUEST_COST
    book, _ = answering(0)
    book.client(request(ASKED, 1) * (few - 1))
    assert (book.session.takes_turns, book.session.can_use_fast_path) == (False, True)
    book.client(request(ASKED, 1), request(ASKED, 1))
    assert (book.session.takes_turns, book.session.can_use_fast_path) == (True, False)
    for data in (
        request(OTHER, 7),
        request(ASKED, 1)[:9],
    ):  # A short turn or a part of a request does not end the wait.
        book.client(data)
        assert book.session.takes_turns
    book.client(request(ASKED, 1)[9:])
    book.now += MAX_COUNTED_WORK / FORGOTTEN_WORK_PER_SECOND
    book.client(request(ASKED, 1))
    assert not book.session.takes_turns


def test_counted_work_is_bounded() -> None:
    """However much work a connection has caused, it takes turns for a bounded time only."""
    book, _ = answering(0)
    for _ in range(1_000):
        book.client(request(ASKED, 1) * 10)
    book.now += (MAX_COUNTED_WORK - MAX_UNCOUNTED_WORK) / FORGOTTEN_WORK_PER_SECOND + 0.001
    book.client(request(OTHER, 7))
    assert not book.session.takes_turns


def test_questions_behind_a_reply_wait_for_turn() -> None:
    """Work that begins with the broker's reply counts too, and further requests then wait for a turn."""
    book, made = answering(MAX_UNCOUNTED_WORK)
    book.client(request(OTHER, 7), request(ASKED, 1), request(OTHER, 8), request(ASKED, 1))
    assert (made, book.session.takes_turns) == ([], False)
    book.upstream(reply(7))
    assert (len(made), book.session.takes_turns) == (1, True)
    book.upstream(reply(8))
    assert len(made) == 2
    book.client(request(OTHER, 9), request(ASKED, 1), request(ASKED, 1))
    book.upstream(reply(9))
    assert (len(made), book.session.paused) == (3, True)
    book.session.resume(book.now)
    assert len(made) == 4


def test_opaque_connection_takes_no_turns() -> None:
    """A connection that is not parsed any more causes no work, so it takes no turns."""
    book, _ = answering(0)
    book.client(request(ASKED, 1) * 10)
    assert book.session.takes_turns
    book.session._begin_raw_tokens(OPAQUE)
    assert book.session._commands() == []
    assert not book.session.takes_turns


def test_many_deferred_replies_count() -> None:
    """Many replies in one chunk that are decoded later count as work. Single ones do not, however many follow."""
    state = complete_state()
    line, answer = Line(state), HeartbeatResponse(error_code=0)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    for _ in range(200):
        line.exchange(beat, answer, 3)
    assert not line.session.takes_turns
    many, frame = 100, line.frame(beat, 3)
    line.client(frame * many)
    line.upstream(encode_reply(answer, 3, int.from_bytes(frame[8:12], "big")) * many)
    assert line.session.takes_turns


def test_many_kept_requests_are_forwarded_in_turns() -> None:
    """If one chunk has many requests that are decoded later, some are forwarded, and the others wait for turns."""
    book, requests = SessionDriver(new_dispatcher(complete_state())), heartbeats(100)
    forwarded, turns = to_upstream(book.client(*requests)), 0
    assert 0 < len(forwarded) < len(b"".join(requests)) // 2
    assert book.session.takes_turns
    while book.session.paused:
        assert not book.session.should_read_client
        forwarded += to_upstream(book.session.resume(book.now))
        turns += 1
    assert forwarded == b"".join(requests)
    assert turns >= 2
    assert book.session.should_read_client


def test_kept_requests_precede_client_end() -> None:
    """A client that ends while its requests wait for turns still has all of them forwarded."""
    book, requests = SessionDriver(new_dispatcher(complete_state())), heartbeats(100)
    forwarded = to_upstream([*book.client(*requests), *book.client_closed()])
    while book.session.paused:
        commands = book.session.resume(book.now)
        forwarded += to_upstream(commands)
        assert (ShutUpstream() in commands) == (not book.session.paused)
    assert forwarded == b"".join(requests)


def test_single_kept_requests_never_wait() -> None:
    """A client that sends one request at a time takes no turns, however many follow each other."""
    book = SessionDriver(new_dispatcher(complete_state()))
    for each in heartbeats(200):
        assert to_upstream(book.client(each)) == each
    assert (book.session.takes_turns, book.session.paused) == (False, False)


def test_many_deferred_replies_are_served_in_turns() -> None:
    """If one chunk has many replies, some are served, and the others wait for turns. All arrive in order."""
    count = 100
    book = SessionDriver(new_dispatcher(complete_state()))
    for each in heartbeats(count):
        book.client(each)
    replies = [encode_reply(HeartbeatResponse(error_code=0), 3, number) for number in range(count)]
    arrived, turns = to_client(book.upstream(*replies)), 0
    assert 0 < len(arrived) < len(replies[0]) * count // 2
    while book.session.replies_wait:
        assert book.session.paused
        arrived += to_client(book.session.resume(book.now))
        turns += 1
    assert arrived == b"".join(replies)
    assert turns >= 2
    assert (book.session.in_flight, book.session.paused) == (deque(), False)


def test_paused_requests_keep_their_order() -> None:
    """Requests that wait for the next turn stay in order and wait for the broker's replies."""
    book, made = answering(WORK_PER_TURN)
    other = request(OTHER, 7)
    commands = book.client(request(ASKED, 1), other, request(ASKED, 1), request(ASKED, 1))
    assert (len(made), book.session.paused) == (1, True)
    assert [type(command) for command in commands] == [ToClient]
    assert book.session.resume(book.now) == [ToUpstream(other)]
    assert len(made) == 1
    commands = book.upstream(reply(7))
    assert to_client(commands) == reply(7) + reply(1, bytes(WORK_PER_TURN))
    assert len(made) == 2
    assert book.session.should_read_client or book.session.paused
    while book.session.paused:
        book.session.resume(book.now)
    assert len(made) == 3


def test_paused_requests_precede_client_end() -> None:
    """A client that ends while its requests wait still has all of them answered."""
    book, made = answering(WORK_PER_TURN)
    book.client(request(ASKED, 1) * 3)
    book.client_closed()
    while book.session.paused:
        book.session.resume(book.now)
    assert len(made) == 3


def test_closed_connection_holds_nothing() -> None:
    """A closed connection holds no bytes and builds no answers."""
    book, made = answering(WORK_PER_TURN)
    book.client(request(OTHER, 5), request(ASKED, 1), request(ASKED, 1), b"half")
    assert book.session.held_bytes > 0
    book.session.close(book.now)
    assert book.session.held_bytes == 0
    assert book.session.resume(book.now) == []
    assert made == []
