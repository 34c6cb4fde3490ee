"""The cache of questions and encoded answers: its contents, their lifetime, and its size."""

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.schema import encode
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.handlers.reply_cache import DECODED, CachedRequest, ReplyCache

API = APIS[ApiKey.DESCRIBE_GROUPS]


def body(name: str) -> bytes:
    return encode(DescribeGroupsRequest(groups=(name,)), 0)


class Dispatcher:
    """Decodes questions and keeps the answers to them."""

    def __init__(self, max_bytes: int) -> None:
        self.traffic = TrafficCounters()
        self.remembered = ReplyCache(max_bytes, self.traffic)

    def read(self, name: str, version: int = 0) -> CachedRequest:
        return self.remembered.read(API, version, body(name))

    def put(self, name: str, state_key: int, reply: bytes) -> None:
        self.remembered.put(self.read(name), state_key, reply)

    def lookup(self, name: str, state_key: int) -> bytes | None:
        return self.remembered.lookup(self.read(name), state_key)


def test_answer_is_found_by_state_key() -> None:
    """A lookup finds an answer only for the same question and the latest state key."""
    dispatcher = Dispatcher(100_000)
    assert dispatcher.lookup("g", 1) is None
    dispatcher.put("g", 1, b"one")
    assert dispatcher.lookup("g", 1) == b"one"
    assert dispatcher.lookup("g", 2) is None
    dispatcher.put("g", 2, b"two")
    assert dispatcher.lookup("g", 2) == b"two"
    assert dispatcher.lookup("g", 1) is None
    assert dispatcher.lookup("h", 2) is None
    assert dispatcher.traffic.cached_answers == {ApiKey.DESCRIBE_GROUPS: 2}


def test_cached_request_is_not_decoded_again() -> None:
    """A request with a cached answer is not decoded again."""
    dispatcher = Dispatcher(100_000)
    assert dispatcher.read("g").request is not dispatcher.read("g").request
    dispatcher.put("g", 1, b"one")
    assert dispatcher.read("g").request is dispatcher.read("g").request
    assert dispatcher.read("g").request == DescribeGroupsRequest(groups=("g",))


def test_version_is_part_of_the_question() -> None:
    """The same bytes in another version are another question."""
    dispatcher = Dispatcher(100_000)
    dispatcher.put("g", 1, b"one")
    assert dispatcher.remembered.lookup(dispatcher.read("g", version=1), 1) is None


def test_malformed_request_is_not_decoded() -> None:
    """A malformed request raises DecodeError."""
    with pytest.raises(DecodeError):
        Dispatcher(100_000).remembered.read(API, 0, b"\0")


def test_least_recently_used_answer_is_evicted() -> None:
    """The cache evicts the least recently used answer when its byte limit is reached."""
    reply = bytes(100)
    each = len(reply) + DECODED * len(body("a"))
    dispatcher = Dispatcher(5 * each)
    for name in "abcde":
        dispatcher.put(name, 1, reply)
    assert dispatcher.traffic.reply_cache_bytes == 5 * each
    assert dispatcher.lookup("a", 1) == reply
    dispatcher.put("f", 1, reply)
    assert dispatcher.traffic.reply_cache_bytes == 5 * each
    assert [name for name in "abcdef" if dispatcher.lookup(name, 1)] == [*"acdef"]


def test_answer_replaces_previous_answer() -> None:
    """A new answer replaces the previous answer of its question, also in the byte count."""
    dispatcher = Dispatcher(100_000)
    dispatcher.put("g", 1, bytes(100))
    dispatcher.put("g", 2, bytes(50))
    assert dispatcher.traffic.reply_cache_bytes == 50 + DECODED * len(body("g"))


def test_concurrent_reads_count_once() -> None:
    """Two reads of the same question share one cache entry and are counted once."""
    dispatcher = Dispatcher(100_000)
    first, second = dispatcher.read("g"), dispatcher.read("g")
    dispatcher.remembered.put(first, 1, bytes(100))
    dispatcher.remembered.put(second, 1, bytes(50))
    assert dispatcher.traffic.reply_cache_bytes == 50 + DECODED * len(body("g"))
    dispatcher.remembered.put(first, 2, bytes(70))
    assert dispatcher.traffic.reply_cache_bytes == 70 + DECODED * len(body("g"))
    assert dispatcher.lookup("g", 2) == bytes(70)


def test_oversized_answer_is_not_cached() -> None:
    """An oversized answer is not cached, and the previous answer of its question is dropped."""
    dispatcher = Dispatcher(1_000)
    dispatcher.put("g", 1, b"one")
    dispatcher.put("g", 2, bytes(251))
    assert dispatcher.lookup("g", 2) is None
    assert dispatcher.lookup("g", 1) is None
    assert dispatcher.traffic.reply_cache_bytes == 0


def test_no_room_caches_nothing() -> None:
    """A cache with a limit of 0 bytes keeps nothing."""
    dispatcher = Dispatcher(0)
    dispatcher.put("g", 1, b"one")
    assert dispatcher.lookup("g", 1) is None
    assert dispatcher.traffic.reply_cache_bytes == 0
