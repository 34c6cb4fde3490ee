"""What one connection may have made for it in one go."""

from group_sidecar.proxy.commands import ToClient, ToUpstream
from group_sidecar.proxy.disposals import Answer, Pass
from group_sidecar.proxy.session import ANSWER_BYTES_AT_ONCE, REQUEST_COST
from tests.proxy.playbook import Playbook, ScriptedDesk, reply, request, to_client

ASKED, FORWARDED, OTHER = 9, 8, 3


def answering(size: int) -> tuple[Playbook, list[float]]:
    """A session whose desk answers ASKED with so many bytes; and when it did."""
    desk, made = ScriptedDesk(), list[float]()
    book = Playbook(desk)

    def make(now: float) -> bytes:
        made.append(now)
        return reply(1, bytes(size))

    desk.takes(ASKED, Answer(make))
    desk.takes(FORWARDED, Pass())
    return book, made


def test_answers_are_made_only_as_far_as_a_turn_goes_and_further_when_they_were_taken() -> None:
    size, count = 50_000, 100
    book, made = answering(size)
    commands = book.client(request(ASKED, 1) * count)
    turns = 0
    while book.session.paused:
        assert not book.session.wants_client
        assert len(to_client(commands)) < ANSWER_BYTES_AT_ONCE + size + 100
        before = len(made)
        commands = book.session.resume(book.now)
        turns += 1
        assert before < len(made) <= count
    assert len(made) == count
    assert turns >= count * size // ANSWER_BYTES_AT_ONCE // 2
    assert book.session.wants_client
    assert book.session.at_ease


def test_small_answers_end_a_turn_too() -> None:
    book, made = answering(0)
    book.client(request(ASKED, 1) * 1000)
    assert 1 < len(made) <= ANSWER_BYTES_AT_ONCE // REQUEST_COST
    assert book.session.paused


def test_requests_that_are_looked_into_and_forwarded_end_a_turn() -> None:
    book, _ = answering(0)
    commands = book.client(request(FORWARDED, 1) * 1000)
    assert sum(isinstance(command, ToUpstream) for command in commands) <= ANSWER_BYTES_AT_ONCE // REQUEST_COST
    assert book.session.paused


def test_long_requests_end_a_turn_sooner() -> None:
    """A request of 20 kB may have 5,000 elements, and take 5 ms."""
    book, _ = answering(0)
    commands = book.client(request(FORWARDED, 1, body=bytes(20_000)) * 20)
    assert sum(isinstance(command, ToUpstream) for command in commands) == 1
    assert book.session.paused


def test_one_answer_at_a_time_never_pauses() -> None:
    book, made = answering(ANSWER_BYTES_AT_ONCE)
    for _ in range(50):
        assert [type(command) for command in book.client(request(ASKED, 1))] == [ToClient]
        assert book.session.at_ease
    assert len(made) == 50


def test_what_waits_is_still_in_order_and_behind_the_brokers_replies() -> None:
    book, made = answering(ANSWER_BYTES_AT_ONCE)
    other = request(OTHER, 7)
    commands = book.client(request(ASKED, 1), other, request(ASKED, 1), request(ASKED, 1))
    assert (len(made), book.session.paused) == (1, True)
    assert [type(command) for command in commands] == [ToClient]
    assert book.session.resume(book.now) == [ToUpstream(other)]
    assert len(made) == 1
    commands = book.upstream(reply(7))
    assert to_client(commands) == reply(7) + reply(1, bytes(ANSWER_BYTES_AT_ONCE))
    assert len(made) == 2
    assert book.session.wants_client or book.session.paused
    while book.session.paused:
        book.session.resume(book.now)
    assert len(made) == 3


def test_a_client_that_ends_while_its_requests_wait_is_served_first() -> None:
    book, made = answering(ANSWER_BYTES_AT_ONCE)
    book.client(request(ASKED, 1) * 3)
    book.client_closed()
    while book.session.paused:
        book.session.resume(book.now)
    assert len(made) == 3


def test_a_connection_that_is_over_holds_nothing() -> None:
    book, made = answering(ANSWER_BYTES_AT_ONCE)
    book.client(request(OTHER, 5), request(ASKED, 1), request(ASKED, 1), b"half")
    assert book.session.held_bytes > 0
    book.session.close(book.now)
    assert book.session.held_bytes == 0
    assert book.session.resume(book.now) == []
    assert made == []
