"""Each message and version, compared with bytes of Kafka's own classes: whole, cut at every byte, with a tail."""

import pytest

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.schema import Struct, decode, encode
from tests.codecs import vectors
from tests.codecs.declarations import CASES, MESSAGES, case_id, full_sample, limited_to, null_sample

SAMPLES = {"full": full_sample, "null": null_sample}
BY_NAME = {cls.NAME: cls for cls in MESSAGES}
VECTORS = [(BY_NAME[vector.message], vector.version, vector.kind, vector.body) for vector in vectors.read()]

each_vector = pytest.mark.parametrize(
    ("cls", "version", "kind", "body"), VECTORS, ids=lambda value: "" if isinstance(value, bytes) else case_id(value)
)


def test_vectors_cover_messages_and_versions() -> None:
    """There are vectors for each message, version and kind of sample."""
    assert [(cls, version, kind) for cls, version, kind, _ in VECTORS] == [
        (cls, version, kind) for cls, version in CASES for kind in SAMPLES
    ]


@each_vector
def test_vectors_match(cls: type[Struct], version: int, kind: str, body: bytes) -> None:
    """Each vector decodes to its message and encodes to its bytes."""
    message = limited_to(SAMPLES[kind](cls), version)
    assert decode(cls, version, body) == message
    assert encode(message, version) == body


@each_vector
def test_truncated_vectors_are_refused(cls: type[Struct], version: int, kind: str, body: bytes) -> None:
    """A truncated vector raises a DecodeError that names the message and version."""
    for end in range(len(body)):
        with pytest.raises(DecodeError) as caught:
            decode(cls, version, body[:end])
        assert caught.value.what == f"{cls.NAME} v{version}"


@each_vector
def test_extended_vectors_are_refused(cls: type[Struct], version: int, kind: str, body: bytes) -> None:
    """A vector with a trailing byte raises DecodeError."""
    with pytest.raises(DecodeError, match="1 bytes left over"):
        decode(cls, version, body + b"\0")
