"""Questions and their answers in bytes, kept while they are asked often.

Owns: which are kept, their bound, and when an encoded reply still tells what is known. Must not know: what a question
means, nor whether it may be answered: that is judged anew each time, of the question as it was decoded (`answering`).

Monitoring tools ask the same again and again. To decode a question and to encode its answer costs a hundred times
as much as to find both.
"""

from collections import OrderedDict
from collections.abc import Hashable

from group_sidecar.codecs.compiled import NO_BOUND
from group_sidecar.codecs.registry import Api
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator.encoded_offsets import EncodedFetch
from group_sidecar.metrics.traffic import Traffic

DECODED = 10
"""Bytes that a byte of a request takes up at most once it is decoded: four are an int in a tuple."""

_Key = tuple[int, int, bytes]


class Question:
    """A request, decoded, and what was last answered to it.

    Attributes:
        key: the API, the version, and the bytes behind the header: the same key means the same request.
        request: decoded.
        reply: the last answer, as it stands behind the correlation id.
        made_from: what it was made from.
        parts: what it was made of, where that is worth keeping.
        counted: bytes that it was counted with.
    """

    __slots__ = ("counted", "key", "made_from", "parts", "reply", "request")

    def __init__(self, key: _Key, request: Struct) -> None:
        self.key = key
        self.request = request
        self.reply = b""
        self.parts: EncodedFetch | None = None
        self.counted = 0
        self.made_from: Hashable = None

    @property
    def version(self) -> int:
        """Of the request."""
        return self.key[1]

    @property
    def size(self) -> int:
        """Bytes that it takes up, about."""
        parts = self.parts.size if self.parts else 0
        return DECODED * len(self.key[2]) + len(self.reply) + parts


class Remembered:
    """What was asked, the latest last. `most_bytes`: what it may take up; what was not asked for longest goes first."""

    def __init__(self, most_bytes: int, traffic: Traffic) -> None:
        self._most_bytes = most_bytes
        self._traffic = traffic
        self._questions: OrderedDict[_Key, Question] = OrderedDict()
        self._bytes = 0

    def read(self, api: Api, version: int, body: bytes, most: int = NO_BOUND) -> Question:
        """A question of at most so many elements, decoded, and with its last answer if that is kept. Raises DecodeError
        as `decode_start`.
        """
        key = (api.key, version, body)
        known = self._questions.get(key)
        if known is not None:
            self._questions.move_to_end(key)
            return known
        assert api.request is not None  # Produce alone has none.
        return Question(key, decode_start(api.request, version, body, most)[0])

    def recall(self, question: Question, made_from: Hashable) -> bytes | None:
        """The last answer, if that was made from the same."""
        if not question.reply or question.made_from != made_from:
            return None
        self._traffic.remembered(question.key[0])
        return question.reply

    def keep(self, question: Question, made_from: Hashable, reply: bytes) -> None:
        """Keeps an answer. One that takes up a quarter of all there is room for would drive out too many."""
        self._forget(question)
        question.made_from, question.reply = made_from, reply
        if question.size > self._most_bytes / 4:
            return
        self._questions[question.key] = question
        question.counted = question.size
        self._account(question.counted)
        while self._bytes > self._most_bytes:
            self._forget(next(iter(self._questions.values())))

    def clear(self) -> None:
        """Forgets all."""
        self._questions.clear()
        self._account(-self._bytes)

    def _forget(self, question: Question) -> None:
        kept = self._questions.pop(question.key, None)
        if kept is not None:
            self._account(-kept.counted)

    def _account(self, added: int) -> None:
        self._bytes += added
        self._traffic.remembered_bytes += added
