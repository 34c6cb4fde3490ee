"""Any bytes give a message or a DecodeError, no other exception, and no more elements than the bytes can hold."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError, TooManyElements
from group_sidecar.codecs.headers import body_start, decode_request_header, split_reply
from group_sidecar.codecs.schema import Struct, decode, encode
from tests.codecs import vectors
from tests.codecs.declarations import MESSAGES, case_id
from tests.codecs.strategies import per_message

BODIES = {cls: [(v.version, v.body) for v in vectors.read() if v.message == cls.NAME] for cls in MESSAGES}


def decodes_or_says_why(cls: type[Struct], version: int, body: bytes) -> None:
    try:
        message = decode(cls, version, body)
    except DecodeError as error:
        error_text = str(error)
    else:
        # A decoded message can be encoded again, and decodes to the same message.
        assert decode(cls, version, encode(message, version)) == message
        return
    assert error_text.startswith(f"{cls.NAME} v{version}: ")
    assert not error_text.endswith(": ")


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
@per_message
@given(st.data(), st.binary(max_size=64))
def test_any_bytes_decode_or_fail(cls: type[Struct], data: st.DataObject, body: bytes) -> None:
    """Any bytes decode to a message that encodes back, or raise a DecodeError that names the message and version."""
    decodes_or_says_why(cls, data.draw(st.sampled_from(cls.VERSIONS)), body)


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
@per_message
@given(st.data())
def test_mutated_messages_decode_or_fail(cls: type[Struct], data: st.DataObject) -> None:
    """Mutated bytes of valid messages decode to a message that encodes back, or raise a DecodeError that names the
    message and version.
    """
    version, body = data.draw(st.sampled_from(BODIES[cls]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        # Bytes that are frequent in lengths, counts and nulls, and sometimes a cut or a repetition.
        new = data.draw(st.sampled_from((b"", b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", body)))
        body = body[:at] + new + body[at + data.draw(st.integers(0, 4)) :]
    decodes_or_says_why(cls, version, body)


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
@per_message
@given(st.integers(-1, 0x7FFF))
def test_unknown_version_is_refused(cls: type[Struct], version: int) -> None:
    """Decoding a version that the class does not describe raises DecodeError."""
    if version not in cls.VERSIONS:
        with pytest.raises(DecodeError, match="version not declared"):
            decode(cls, version, b"")


@given(st.binary(max_size=32), st.booleans())
def test_any_bytes_as_headers(frame: bytes, flexible: bool) -> None:
    """Any bytes as headers raise nothing but decode errors, and the body starts within the frame."""
    with suppress(DecodeError):
        decode_request_header(frame, flexible)
    with suppress(DecodeError):
        split_reply(frame, flexible)
    with suppress(TooManyElements):
        start = body_start(frame, flexible)
        assert start is None or start <= len(frame)
