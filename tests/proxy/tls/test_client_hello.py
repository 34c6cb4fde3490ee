"""The name in a ClientHello, compared with the name that OpenSSL finds in the same bytes."""

import ssl
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.tls.client_hello import MAX_EXTENSIONS, MAX_HELLO_BYTES, MAX_RECORDS, ClientHelloReader

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
RANDOM = bytes(32)


def hello(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Returns the record in which OpenSSL asks for a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def made_up(extensions: bytes) -> bytes:
    """Returns a ClientHello in one record."""
    content = b"\x03\x03" + RANDOM + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00" + sized(2, extensions)
    return record(b"\x01" + sized(3, content))


def sized(length_bytes: int, content: bytes) -> bytes:
    return len(content).to_bytes(length_bytes, "big") + content


def record(content: bytes, kind: int = 22) -> bytes:
    return bytes([kind, 3, 1]) + sized(2, content)


def server_name(name: bytes, kind: int = 0) -> bytes:
    """Returns the extension of the name."""
    return b"\x00\x00" + sized(2, sized(2, bytes([kind]) + sized(2, name)))


def in_records(data: bytes, size: int) -> bytes:
    """Cuts the content of a record into records of `size` bytes."""
    content = data[5:]
    return b"".join(record(content[start : start + size]) for start in range(0, len(content), size))


def read(data: bytes, piece: int = 1 << 16) -> ClientHelloReader:
    """Returns a reader that got the data in pieces, until it wants no more of them."""
    reader = ClientHelloReader()
    for start in range(0, len(data), piece):
        assert not reader.is_complete
        reader.feed(data[start : start + piece])
    return reader


def openssl_reads(data: bytes) -> list[str | None]:
    """Returns the name that OpenSSL reports, or nothing if it refuses the ClientHello first."""
    found: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _, name, __: found.append(name)
    incoming = ssl.MemoryBIO()
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    incoming.write(data)
    with suppress(ssl.SSLError):
        server.do_handshake()
    return found


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("piece", [1, 3, 100, 1 << 16])
@pytest.mark.parametrize("records", [16, 100, 1 << 14])
def test_name_is_found(version: ssl.TLSVersion, piece: int, records: int) -> None:
    """The name is found, however the bytes arrive, and all bytes are kept for OpenSSL."""
    data = in_records(hello("kafka.b.example", version), max(records, 16))
    reader = read(data, piece)
    assert reader.is_complete
    assert reader.server_name() == "kafka.b.example"
    assert reader.received == data


def test_spelling_of_the_name() -> None:
    """The name is in lower case and has no dot at its end. A client may ask for no name."""
    assert read(hello("KAFKA.B.example")).server_name() == "kafka.b.example"
    assert read(made_up(server_name(b"kafka.example."))).server_name() == "kafka.example"
    assert read(hello(None)).server_name() is None
    assert read(hello("127.0.0.1")).server_name() is None


@pytest.mark.parametrize(
    "extensions",
    [
        b"",
        server_name(b""),
        server_name(b"."),
        server_name("ümlaut".encode()),
        server_name(b"\xff" * 1000),
        server_name(b"kafka.example", kind=1),
        server_name(b"kafka.example")[:-1],
        b"\x00\x00\x00\x00",
        b"\x00\x00",
        b"\x00",
        b"\xff\xff" * 10,
        b"\x00\x05\x00\x00" * MAX_EXTENSIONS + server_name(b"kafka.example"),
    ],
    ids=lambda extensions: extensions[:24].hex(),
)
def test_strange_names(extensions: bytes) -> None:
    """A name that is missing, cut, not ASCII or behind very many extensions counts as no name."""
    reader = read(made_up(extensions))
    assert reader.is_complete
    assert reader.server_name() is None


def test_long_names() -> None:
    """A name of 16 kB is returned as it is, and no certificate has it."""
    name = "a" * 16_000
    assert read(made_up(server_name(name.encode()))).server_name() == name


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"G",
        b"\x80\x2e",
        record(b"\x02\x28", kind=21),
        record(b"\x02\x00\x00\x04abcd"),
        b"\x16\x03\x01\xff\xff",
        in_records(made_up(server_name(b"kafka.example")), 1)[: 6 * MAX_RECORDS],
        record(b"") * MAX_RECORDS,
    ],
    ids=["kafka", "http", "SSLv2", "alert", "other message", "long record", "many records", "empty records"],
)
def test_other_bytes_are_complete_at_once(data: bytes) -> None:
    """Bytes that are no ClientHello are not waited for. OpenSSL gets them and gives the reason."""
    reader = read(data)
    assert reader.is_complete
    assert reader.server_name() is None
    assert reader.received == data


def test_incomplete_hello_is_waited_for() -> None:
    """A ClientHello is not complete before its last byte, in one record or in several ones."""
    for data in (hello("kafka.example"), in_records(hello("kafka.example"), 100), record(b"") + hello("a")):
        assert not any(read(data[:end]).is_complete for end in range(len(data)))
        assert read(data).is_complete


@given(
    st.sampled_from([hello(name, version) for name in ("kafka.b.example", None) for version in VERSIONS]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    st.sampled_from([0, 0, 1]),
)
def test_changed_bytes_are_read_as_openssl_does(data: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    """If OpenSSL accepts a ClientHello with changed bytes, both find the same name. Otherwise nothing is raised."""
    changed = bytearray(data[: len(data) - cut])
    for position, value in changes:
        changed[position % len(changed)] = value
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # OpenSSL's module cannot report names beyond ASCII.
    try:
        expected = openssl_reads(bytes(changed))
    finally:
        sys.unraisablehook = hook
    reader = ClientHelloReader()
    reader.feed(bytes(changed))
    found = reader.server_name() if reader.is_complete else None
    if expected:
        assert reader.is_complete
        assert found == ((expected[0] or "").lower().removesuffix(".") or None)


@pytest.mark.parametrize(("message_bytes", "is_complete"), [(MAX_HELLO_BYTES, False), (MAX_HELLO_BYTES + 1, True)])
@pytest.mark.parametrize("cut", [1, 2, 3, 100])
def test_too_long_hello_is_not_waited_for(message_bytes: int, is_complete: bool, cut: int) -> None:
    """A ClientHello that announces more than MAX_HELLO_BYTES is given to OpenSSL at once, which refuses it."""
    message = b"\x01" + (message_bytes - 4).to_bytes(3, "big") + RANDOM
    reader = ClientHelloReader()
    for part in (message[:cut], message[cut:]):
        reader.feed(record(part))
    assert reader.is_complete == is_complete
    assert reader.server_name() is None
