"""Scripts for a session: the bytes that a client and a broker send, their order, and other events.

An input begins with a size of pieces and a kind of settings. Steps follow. The steps `FRAME` and `REPLY` make correct
headers, so that a fuzzer need not guess lengths and correlation ids.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.headers import encode_reply_rest
from group_sidecar.codecs.schema import encode
from tests.codecs.declarations import full_sample, limited_to, null_sample
from tests.fuzzing.input_bytes import InputBytes, piece

MAX_STEPS = 30


class Kind(IntEnum):
    """The kind of a step."""

    FRAME = 0
    """The client sends a request. The step has its API key, version and body."""
    REPLY = 1
    """The broker replies to the oldest request without a reply. The step has the bytes after the correlation id."""
    CLIENT = 2
    """The client sends any bytes."""
    BROKER = 3
    """The broker sends any bytes."""
    TIME = 4
    """For each byte of the step, a sixteenth of a second passes."""
    EVICT = 5
    """The sidecar needs the memory of held requests."""
    CLIENT_ENDS = 6
    BROKER_ENDS = 7


@dataclass(frozen=True)
class Step:
    """One step. `key` and `version` are only used for frames."""

    kind: Kind
    data: bytes = b""
    key: int = 0
    version: int = 0

    def to_bytes(self) -> bytes:
        """Returns the bytes of an input for this step."""
        return bytes((self.kind, self.key, self.version)) + piece(self.data)


@dataclass(frozen=True)
class Script:
    """A whole input. `cut`: the size in bytes of the pieces in the run with cut chunks, at least 1."""

    cut: int
    settings: int
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, data: bytes) -> "Script":
        """Returns the script of an input."""
        given = InputBytes(data)
        cut, settings = 1 + given.number(), given.number()
        steps: list[Step] = []
        while given and len(steps) < MAX_STEPS:
            kind, key, version = Kind(given.number() % len(Kind)), given.number(), given.number()
            steps.append(Step(kind, given.piece(), key, version))
        return cls(cut, settings, tuple(steps))

    def to_bytes(self) -> bytes:
        """Returns the input."""
        return bytes((self.cut - 1, self.settings)) + b"".join(step.to_bytes() for step in self.steps)


def seeds(settings: int) -> Iterator[bytes]:
    """Exchanges of each API in each version, conversations of several APIs, and bytes that are not Kafka."""
    conversation: list[Step] = []
    for number, (key, api) in enumerate(APIS.items()):
        for version in api.request.VERSIONS:
            for sample in (full_sample, null_sample):
                request = encode(limited_to(sample(api.request), version), version)
                reply = encode_reply_rest(limited_to(sample(api.response), version), version)
                exchange = [Step(Kind.FRAME, request, int(key), version), Step(Kind.REPLY, reply)]
                if version in (api.request.VERSIONS[0], api.request.VERSIONS[-1]):
                    yield Script(1 + number, number % settings, tuple(exchange)).to_bytes()
            conversation = [*conversation[-8:], *exchange]
        yield Script(7, number % settings, tuple(conversation)).to_bytes()
    produce = b"\0\0" + bytes(8)
    yield Script(2, 0, (Step(Kind.FRAME, produce, ApiKey.PRODUCE), Step(Kind.CLIENT_ENDS))).to_bytes()
    yield Script(3, 1, (Step(Kind.CLIENT, bytes.fromhex("160301007f")), Step(Kind.BROKER, b"\x16\3\3"))).to_bytes()
    sasl = (Step(Kind.FRAME, b"\0\5PLAIN", ApiKey.SASL_HANDSHAKE), Step(Kind.REPLY, bytes(2) + b"\0\0\0\1\0\5PLAIN"))
    yield Script(3, 2, (*sasl, Step(Kind.CLIENT, b"\0\0\0\4\0a\0b"), Step(Kind.BROKER, bytes(4)))).to_bytes()
    yield Script(1, 3, (Step(Kind.CLIENT, b"\0\1"), Step(Kind.EVICT), Step(Kind.TIME, bytes(40)))).to_bytes()
