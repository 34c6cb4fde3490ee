"""Target: the decoders of all requests and replies, in every version.

An input is the index of a message, a version, and a body.

- Any body gives a message or a DecodeError that names the message and the version.
- A decoded message can be encoded, and then decodes to the same message. Encoding that message gives the same bytes.
  A message whose text was not UTF-8 may become too long to encode.
- The generated reader and the slow layout decode the same message.
- A limit on the number of elements gives the same message or an error.
"""

from collections.abc import Iterator

from group_sidecar.codecs.errors import DecodeError, TooManyElements
from group_sidecar.codecs.schema import Struct, _read_by_layout, decode, decode_start, encode
from tests.codecs import vectors
from tests.codecs.declarations import MESSAGES
from tests.fuzzing.input_bytes import InputBytes
from tests.fuzzing.target import require

MAX_ELEMENTS = 50
REPLACEMENT = "\ufffd"


def check(data: bytes) -> object:
    """Decodes one body."""
    given = InputBytes(data)
    cls = MESSAGES[given.number() % len(MESSAGES)]
    version = cls.VERSIONS[given.number() % len(cls.VERSIONS)]
    body = given.rest()
    try:
        message = decode(cls, version, body)
    except DecodeError as error:
        require(str(error).startswith(f"{cls.NAME} v{version}: "), f"unclear error: {error}")
        message = None
    _check_bounded(cls, version, body, message)
    _check_layout(cls, version, body, message)
    if message is not None:
        _check_round_trip(cls, version, message)
    return message


def _check_bounded(cls: type[Struct], version: int, body: bytes, message: Struct | None) -> None:
    try:
        bounded, rest = decode_start(cls, version, body, MAX_ELEMENTS)
    except TooManyElements:
        return
    except DecodeError:
        require(message is None, "a bound on elements refuses a message for another reason")
        return
    require(message is None or repr(bounded) == repr(message), "a bound on elements changes a message")
    require(bool(rest) == (message is None), "decode and decode_start disagree on bytes after a message")


def _check_layout(cls: type[Struct], version: int, body: bytes, message: Struct | None) -> None:
    try:
        slow, end = _read_by_layout(cls, version, body)
    except DecodeError:
        require(message is None, "only the generated reader accepts the message")
        return
    if end == len(body):
        require(repr(slow) == repr(message), "the generated reader and the layout differ")


def _check_round_trip(cls: type[Struct], version: int, message: Struct) -> None:
    try:
        encoded = encode(message, version)
    except ValueError:
        require(REPLACEMENT in repr(message), "a decoded message cannot be encoded")
        return
    again = decode(cls, version, encoded)
    require(repr(again) == repr(message), "a message changes when it is encoded and decoded")
    require(encode(again, version) == encoded, "a message has two encodings")


def seeds() -> Iterator[bytes]:
    """The samples that Kafka's own classes encoded."""
    places = {cls.NAME: at for at, cls in enumerate(MESSAGES)}
    for vector in vectors.read():
        if vector.message in places:
            at = places[vector.message]
            yield bytes((at, MESSAGES[at].VERSIONS.index(vector.version))) + vector.body
