"""Questions and their answers in bytes, kept while they are asked often.

Owns: which are kept, their bound, and when an encoded reply still tells what is known. Must not know: what a question
means, nor whether it may be answered: that is judged anew each time, of the question as it was decoded
(`local_answers`).

Monitoring tools ask the same again and again. To decode a question and to encode its answer costs a hundred times
as much as to find both.
"""

from collections import OrderedDict
from collections.abc import Hashable

from group_sidecar.codecs.api_registry import Api
from group_sidecar.codecs.generated_code import NO_ELEMENT_LIMIT
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator.answers.encoded_offsets import EncodedFetch
from group_sidecar.metrics.traffic_counters import TrafficCounters

DECODED = 10
"""Bytes that a byte of a request takes up at most once it is decoded: four are an int in a tuple."""

_Key = tuple[int, int, bytes]


class CachedRequest:
    """A request, decoded, and what was last answered to it.

    Attributes:
        key: the API, the version, and the bytes behind the header: the same key means the same request.
        request: decoded.
        reply: the last answer, as it stands behind the correlation id.
        state_key: what it was made from.
        parts: what it was made of, where that is worth keeping.
        charged_bytes: bytes that it was counted with.
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
        """Of the request."""
        return self.key[1]

    @property
    def size(self) -> int:
        """Bytes that it takes up, about."""
        parts = self.parts.size if self.parts else 0
        return DECODED * len(self.key[2]) + len(self.reply) + parts


class ReplyCache:
    """What was asked, the latest last. `most_bytes`: what it may take up; what was not asked for longest goes first."""

    def __init__(self, most_bytes: int, traffic: TrafficCounters) -> None:
        self._max_bytes = most_bytes
        self._traffic = traffic
        self._questions: OrderedDict[_Key, CachedRequest] = OrderedDict()
        self._bytes = 0

    def read(self, api: Api, version: int, body: bytes, most: int = NO_ELEMENT_LIMIT) -> CachedRequest:
        """A question of at most so many elements, decoded, and with its last answer if that is kept. Raises DecodeError
        as `decode_start`.
        """
        key = (api.key, version, body)
        known = self._questions.get(key)
        if known is not None:
            self._questions.move_to_end(key)
            return known
        assert api.request is not None  # Produce alone has none.
        return CachedRequest(key, decode_start(api.request, version, body, most)[0])

    def lookup(self, question: CachedRequest, state_key: Hashable) -> bytes | None:
        """The last answer, if that was made from the same."""
        if not question.reply or question.state_key != state_key:
            return None
        self._traffic.remembered(question.key[0])
        return question.reply

    def put(self, question: CachedRequest, state_key: Hashable, reply: bytes) -> None:
        """Keeps an answer. One that takes up a quarter of all there is room for would drive out too many."""
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
        """Forgets all."""
        self._questions.clear()
        self._account(-self._bytes)

    def _forget(self, question: CachedRequest) -> None:
        kept = self._questions.pop(question.key, None)
        if kept is not None:
            self._account(-kept.charged_bytes)

    def _account(self, added: int) -> None:
        self._bytes += added
        self._traffic.reply_cache_bytes += added
