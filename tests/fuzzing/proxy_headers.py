"""Target: PROXY headers of versions 1 and 2.

An input is a size of pieces, a byte of flags, and bytes. A flag makes the checksum of version 2 correct.

- Only BadProxyHeader is raised, with one printable line.
- Pieces of any size give the same header. The bytes after the header are the end of the input.
- `ipaddress` accepts each address.
"""

from collections.abc import Iterator
from ipaddress import ip_address

from google_crc32c import value as crc32c

from group_sidecar.proxy.listeners.proxy_protocol import (
    MAX_V2_LENGTH,
    V2_SIGNATURE,
    BadProxyHeader,
    ProxyHeader,
    ProxyHeaderReader,
)
from tests.fuzzing.input_bytes import InputBytes, pieces
from tests.fuzzing.target import require

MAX_HELD = MAX_V2_LENGTH + 16
MAX_LINE = 600
_CHECKSUM = 1


def check(data: bytes) -> object:
    """Reads one header, whole and in pieces."""
    given = InputBytes(data)
    size, flags, content = 1 + given.number(), given.number(), given.rest()
    if flags & _CHECKSUM:
        content = _with_checksum(content)
    whole, in_pieces = _read([content]), _read(pieces(content, size))
    if isinstance(whole, ProxyHeader):
        require(content.endswith(whole.rest), "the rest is not the end of the input")
        if whole.source is not None:
            ip_address(whole.source)
        require(isinstance(in_pieces, ProxyHeader) and in_pieces.source == whole.source, "pieces change the header")
    elif whole is None:
        require(in_pieces is None, "pieces end a header early")
        require(len(content) < MAX_HELD, "a header that never ends")
    else:
        require(isinstance(in_pieces, str), "pieces make a header valid")
        for text in (whole, str(in_pieces)):
            require(text.isascii() and text.isprintable() and len(text) < MAX_LINE, f"no line for the log: {text!r}")
    return whole


def _read(chunks: list[bytes]) -> ProxyHeader | str | None:
    """Returns the header with all bytes after it, the text of the error, or None if the header is incomplete."""
    reader = ProxyHeaderReader()
    for number, chunk in enumerate(chunks):
        try:
            header = reader.feed(chunk)
        except BadProxyHeader as error:
            return str(error)
        if header is not None:
            return ProxyHeader(header.source, header.rest + b"".join(chunks[number + 1 :]))
    return None


def _with_checksum(content: bytes) -> bytes:
    """Appends a TLV with the checksum to a header of version 2, and makes its length correct."""
    if not content.startswith(V2_SIGNATURE) or len(content) < 16:
        return content
    length = len(content) - 16 + 7
    head = content[:14] + length.to_bytes(2, "big") + content[16:] + b"\3\0\4"
    checksum: int = crc32c(head + bytes(4))
    return head + checksum.to_bytes(4, "big")


def seeds() -> Iterator[bytes]:
    """Headers of all kinds, followed by bytes of Kafka."""
    kafka = b"\0\0\0\x10"
    for line in (
        b"TCP4 192.0.2.1 192.0.2.2 1 65535",
        b"TCP6 2001:db8::1 ::ffff:192.0.2.1 0 9",
        b"UNKNOWN x",
        b"UNKNOWN",
    ):
        yield b"\4\0PROXY " + line + b"\r\n" + kafka
    for command, family, block in ((0x21, 0x11, 12), (0x21, 0x21, 36), (0x21, 0x31, 216), (0x20, 0, 0), (0x21, 0, 3)):
        addresses = bytes(range(1, block + 1)) if block < 200 else bytes(block)
        head = V2_SIGNATURE + bytes((command, family)) + block.to_bytes(2, "big") + addresses
        yield b"\2\0" + head + kafka
        yield b"\7\1" + head + b"\2\0\4host"
