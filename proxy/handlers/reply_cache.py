"""Caches decoded questions and their encoded answers.

Monitoring tools repeat the same questions. Decoding a question and encoding its answer costs a hundred times as much as
finding both in the cache. For each question, `local_answers` decides again whether the copy may answer.
"""

from collections import OrderedDict
from collections.abc import Hashable

from group_sidecar.codecs.api_registry import Api
from group_sidecar.codecs.generated_code import NO_ELEMENT_LIMIT
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator.answers.encoded_offsets import EncodedFetch
from group_sidecar.metrics.traffic_counters import TrafficCounters

DECODED = 10
"""Maximum bytes of memory for each byte of a decoded request. Four bytes may become an int in a tuple, which takes 36
bytes."""

_Key = tuple[int, int, bytes]


class CachedRequest:
    """A decoded request and its last answer.

    Attributes:
        key: the API key, the version, and the bytes after the header. Requests with the same key are equal.
        request: the decoded request.
        reply: the bytes of the last answer after the correlation id; empty if there is none.
        state_key: a key of the state from which the last answer was built.
        parts: the encoded parts of the last answer, or None if they are not worth their memory.
        charged_bytes: the size with which the cache counts the request.
    """

    __slots__ = ("charged_bytes", "key", "parts", "reply", "request", "state_key")

    def __init__(self, key: _Key, request: Struct) -> None:
        self.key = key
        self.request = request
        self.reply = b""
        self.parts: EncodedFetch | None = None
        self.charged_bytes = 0
        self.state_key: Hashable = None

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.key[1]

    @property
    def size(self) -> int:
        """The estimated bytes of memory."""
        parts = self.parts.size if self.parts else 0
        return DECODED * len(self.key[2]) + len(self.reply) + parts


class ReplyCache:
    """The latest questions. `max_bytes`: the maximum size; the least recently asked questions are evicted first."""

    def __init__(self, max_bytes: int, traffic: TrafficCounters) -> None:
        self._max_bytes = max_bytes
        self._traffic = traffic
        self._questions: OrderedDict[_Key, CachedRequest] = OrderedDict()
        self._bytes = 0

    def read(self, api: Api, version: int, body: bytes, max_elements: int = NO_ELEMENT_LIMIT) -> CachedRequest:
        """Returns a decoded question, with its last answer if that is cached.

        `max_elements`: the maximum number of elements. Raises DecodeError as `decode_start` does.
        """
        key = (api.key, version, body)
        known = self._questions.get(key)
        if known is not None:
            self._questions.move_to_end(key)
            return known
        assert api.request is not None  # Only Produce has no request schema.
        return CachedRequest(key, decode_start(api.request, version, body, max_elements)[0])

    def lookup(self, question: CachedRequest, state_key: Hashable) -> bytes | None:
        """Returns the last answer, or None if it was built from another state."""
        if not question.reply or question.state_key != state_key:
            return None
        self._traffic.answered_from_cache(question.key[0])
        return question.reply

    def put(self, question: CachedRequest, state_key: Hashable, reply: bytes) -> None:
        """Caches an answer, unless it takes more than a quarter of the cache. It would then evict too many others."""
        self._forget(question)
        question.state_key, question.reply = state_key, reply
        if question.size > self._max_bytes / 4:
            return
        self._questions[question.key] = question
        question.charged_bytes = question.size
        self._account(question.charged_bytes)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._questions.values())))

    def clear(self) -> None:
        """Removes all questions."""
        self._questions.clear()
        self._account(-self._bytes)

    def _forget(self, question: CachedRequest) -> None:
        kept = self._questions.pop(question.key, None)
        if kept is not None:
            self._account(-kept.charged_bytes)

    def _account(self, added: int) -> None:
        self._bytes += added
        self._traffic.reply_cache_bytes += added
