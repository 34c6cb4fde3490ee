"""Target: the ClientHello and the server name in it (SNI).

An input is a size of pieces, a byte of flags, and the bytes of a client. A flag makes the lengths of the record and of
the message correct.

- No exception is raised, and pieces of any size give the same result.
- A reader that waits for more bytes holds at most the maximum size of a ClientHello.
- If OpenSSL reads a name from the same bytes, the reader reads the same name. Otherwise a client could resume a session
  of one name and ask for another name.
"""

import ssl
from collections.abc import Iterator
from functools import cache

from group_sidecar.proxy.tls.client_hello import MAX_HELLO_BYTES, MAX_RECORDS, ClientHelloReader
from tests.fuzzing.input_bytes import InputBytes, pieces
from tests.fuzzing.target import require

MAX_HELD = MAX_HELLO_BYTES + MAX_RECORDS * (5 + 16_384)
_LENGTHS = 1


def check(data: bytes) -> object:
    """Reads one ClientHello."""
    given = InputBytes(data)
    size, flags, content = 1 + given.number(), given.number(), given.rest()
    if flags & _LENGTHS:
        content = _with_lengths(content)
    whole, in_pieces = ClientHelloReader(), ClientHelloReader()
    whole.feed(content)
    for chunk in pieces(content, size):
        in_pieces.feed(chunk)
    require(whole.received == in_pieces.received == content, "bytes are missing")
    require(whole.is_complete == in_pieces.is_complete, "pieces change whether the ClientHello is complete")
    if not whole.is_complete:
        require(len(content) <= MAX_HELD, "a ClientHello that never ends")
        return None
    name = whole.server_name()
    require(in_pieces.server_name() == name, "pieces change the name")
    require(name is None or (name.isascii() and name == name.lower()), "a name that is not in lower case")
    if whole.is_client_hello:
        asked = _name_for_openssl(content)
        require(asked is None or asked.lower().removesuffix(".") == (name or ""), f"OpenSSL reads {asked}, not {name}")
    return name


def _with_lengths(content: bytes) -> bytes:
    """Returns the input as one record with one message: writes the correct lengths into it."""
    if len(content) < 9 or len(content) > 16_384:
        return content
    message = content[5:6] + (len(content) - 9).to_bytes(3, "big") + content[9:]
    return content[:3] + len(message).to_bytes(2, "big") + message


@cache
def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _name_for_openssl(content: bytes) -> str | None:
    """Returns the name that OpenSSL reads, or None if OpenSSL reads no name or refuses the bytes before the name."""
    names: list[str | None] = []

    def named(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int:
        names.append(name)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = _context()
    context.sni_callback = named
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    received.write(content)
    try:
        context.wrap_bio(received, sent, server_side=True).do_handshake()
    except ssl.SSLError:
        pass
    return names[0] if names else None


def client_hello(name: str | None, version: ssl.TLSVersion) -> bytes:
    """Returns the first bytes of OpenSSL's client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(received, sent, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def seeds() -> Iterator[bytes]:
    """ClientHellos of OpenSSL, and one in several records."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for name in ("broker-1.example", "Broker-1.Example.", None):
            hello = client_hello(name, version)
            yield b"\6\0" + hello
            yield b"\6\1" + hello
    message = hello[5:]
    records = [hello[:3] + len(part).to_bytes(2, "big") + part for part in pieces(message, 60)]
    yield b"\x20\0" + b"".join(records)
    yield b"\0\0\x16\3\1\0\0\x16\3\1\x40\0"
