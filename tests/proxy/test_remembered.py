"""Questions and encoded answers: what is kept, for how long, and how much of it."""

import pytest

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import encode
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.remembered import DECODED, Question, Remembered

API = APIS[ApiKey.DESCRIBE_GROUPS]


def body(name: str) -> bytes:
    return encode(DescribeGroupsRequest(groups=(name,)), 0)


class Desk:
    """Reads questions and keeps answers to them."""

    def __init__(self, most_bytes: int) -> None:
        self.traffic = Traffic()
        self.remembered = Remembered(most_bytes, self.traffic)

    def read(self, name: str, version: int = 0) -> Question:
        return self.remembered.read(API, version, body(name))

    def keep(self, name: str, made_from: int, reply: bytes) -> None:
        self.remembered.keep(self.read(name), made_from, reply)

    def recall(self, name: str, made_from: int) -> bytes | None:
        return self.remembered.recall(self.read(name), made_from)


def test_an_answer_is_recalled_while_what_it_was_made_from_is_the_same() -> None:
    desk = Desk(100_000)
    assert desk.recall("g", 1) is None
    desk.keep("g", 1, b"one")
    assert desk.recall("g", 1) == b"one"
    assert desk.recall("g", 2) is None
    desk.keep("g", 2, b"two")
    assert desk.recall("g", 2) == b"two"
    assert desk.recall("g", 1) is None
    assert desk.recall("h", 2) is None
    assert desk.traffic.recalls == {ApiKey.DESCRIBE_GROUPS: 2}


def test_a_question_that_is_kept_is_not_decoded_again() -> None:
    desk = Desk(100_000)
    assert desk.read("g").request is not desk.read("g").request
    desk.keep("g", 1, b"one")
    assert desk.read("g").request is desk.read("g").request
    assert desk.read("g").request == DescribeGroupsRequest(groups=("g",))


def test_the_same_bytes_in_another_version_are_another_question() -> None:
    desk = Desk(100_000)
    desk.keep("g", 1, b"one")
    assert desk.remembered.recall(desk.read("g", version=1), 1) is None


def test_what_is_no_question_is_not_decoded() -> None:
    with pytest.raises(DecodeError):
        Desk(100_000).remembered.read(API, 0, b"\0")


def test_what_was_not_asked_for_longest_goes_first() -> None:
    reply = bytes(100)
    each = len(reply) + DECODED * len(body("a"))
    desk = Desk(5 * each)
    for name in "abcde":
        desk.keep(name, 1, reply)
    assert desk.traffic.remembered_bytes == 5 * each
    assert desk.recall("a", 1) == reply
    desk.keep("f", 1, reply)
    assert desk.traffic.remembered_bytes == 5 * each
    assert [name for name in "abcdef" if desk.recall(name, 1)] == [*"acdef"]


def test_an_answer_takes_the_place_of_the_one_before() -> None:
    desk = Desk(100_000)
    desk.keep("g", 1, bytes(100))
    desk.keep("g", 2, bytes(50))
    assert desk.traffic.remembered_bytes == 50 + DECODED * len(body("g"))


def test_questions_read_side_by_side_count_once() -> None:
    desk = Desk(100_000)
    first, second = desk.read("g"), desk.read("g")
    desk.remembered.keep(first, 1, bytes(100))
    desk.remembered.keep(second, 1, bytes(50))
    assert desk.traffic.remembered_bytes == 50 + DECODED * len(body("g"))
    desk.remembered.keep(first, 2, bytes(70))
    assert desk.traffic.remembered_bytes == 70 + DECODED * len(body("g"))
    assert desk.recall("g", 2) == bytes(70)


def test_an_answer_that_is_too_large_is_not_kept_and_its_forerunner_goes() -> None:
    desk = Desk(1_000)
    desk.keep("g", 1, b"one")
    desk.keep("g", 2, bytes(251))
    assert desk.recall("g", 2) is None
    assert desk.recall("g", 1) is None
    assert desk.traffic.remembered_bytes == 0


def test_with_no_room_nothing_is_kept() -> None:
    desk = Desk(0)
    desk.keep("g", 1, b"one")
    assert desk.recall("g", 1) is None
    assert desk.traffic.remembered_bytes == 0
