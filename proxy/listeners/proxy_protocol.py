"""Reads the header with which a load balancer begins each connection to report the client's address.

The header is HAProxy's PROXY protocol, version 1 or 2, as HAProxy's `doc/proxy-protocol.txt` of 2020/03/05 describes
it. Section numbers in this module refer to that document. A connection without a valid header has to be closed, because
section 2 forbids a receiver to guess whether a header is present.
"""

from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from group_sidecar.proxy.runtime.addresses import format_host

V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""The first 12 bytes of a header of version 2 (section 2.2)."""
MAX_V1_BYTES: Final = 107
"""The size of the longest header of version 1, including CRLF (section 2.1)."""
MAX_V2_LENGTH: Final = 4_096
"""The maximum number of bytes after the 16 fixed bytes of a header of version 2: addresses and TLVs. The length field
allows 65,535 bytes, but section 2 promises that a whole header fits in a TCP segment of 536 bytes."""

_TCP4, _TCP6, _UNKNOWN = b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"
_STARTS: Final = (_TCP4, _TCP6, _UNKNOWN + b" ", _UNKNOWN + b"\r\n", V2_SIGNATURE)
_LONGEST_START: Final = max(map(len, _STARTS))
_V1_FIELDS: Final = 6
_MAX_PORT: Final = 65_535

_COMMAND_AT, _FAMILY_AT, _LENGTH_AT, _V2_HEAD_BYTES = 12, 13, 14, 16
_VERSION_2: Final = 2
_LOCAL, _PROXY = 0, 1
_AF_UNSPEC, _AF_INET, _AF_INET6, _AF_UNIX = 0, 1, 2, 3
_ADDRESS_BLOCK_BYTES: Final = {_AF_UNSPEC: 0, _AF_INET: 12, _AF_INET6: 36, _AF_UNIX: 216}
_UNSPEC, _STREAM, _DGRAM = 0, 1, 2
_TLV_HEAD_BYTES: Final = 3
_TLV_CRC32C: Final = 0x03
_CRC32C_BYTES: Final = 4


class BadProxyHeader(Exception):
    """A connection does not begin with a valid PROXY header. The text is one line of printable ASCII for the log."""


class ProxyHeader(NamedTuple):
    """A complete PROXY header.

    Attributes:
        source: the client's IP address as `format_host` returns it. None if the header contains no IP address of a
            client, for example in a health check of the load balancer. The TCP peer then counts as the client.
        rest: the bytes of the connection that were received after the header.
    """

    source: str | None
    rest: bytes


class ProxyHeaderReader:
    """Reads the PROXY header of one connection.

    The reader keeps the received bytes until the header is complete. Before that, each call of `feed` inspects at most
    `MAX_V1_BYTES` bytes. The time of a call does not grow with the number of calls, even if each chunk is one byte.
    """

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, chunk: bytes) -> ProxyHeader | None:
        """Adds a chunk that was read from the connection, and returns the header if the header is complete.

        The caller must not call `feed` again after `feed` has returned a header or raised BadProxyHeader.

        Returns:
            The header, or None if more bytes are needed.

        Raises:
            BadProxyHeader: the bytes do not begin a valid header. Wrong fixed bytes are refused as soon as they arrive.
                Addresses, ports and TLVs are read when the header is complete, as sections 2.1 and 2.2 require.
        """
        received = self._received
        received += chunk
        start = bytes(received[:_LONGEST_START])
        if not any(start.startswith(each) or each.startswith(start) for each in _STARTS):
            raise BadProxyHeader(f"the connection does not begin with a PROXY header, but with {start!r}")
        is_version_2 = start.startswith(V2_SIGNATURE[:1])
        size = _v2_size(received) if is_version_2 else _v1_size(received)
        if size is None or len(received) < size:
            return None
        header = bytes(received[:size])
        source = _read_v2(header) if is_version_2 else _read_v1(header)
        return ProxyHeader(source, bytes(received[size:]))


def _v1_size(received: bytearray) -> int | None:
    """Returns the size of a header of version 1 with its CRLF, or None if the CRLF has not arrived.

    Raises:
        BadProxyHeader: the line is too long, or the line ends with a line feed alone.
    """
    end = received.find(b"\n", 0, MAX_V1_BYTES)
    if end < 0:
        if len(received) >= MAX_V1_BYTES:
            raise BadProxyHeader(f"a PROXY header of version 1 does not end within {MAX_V1_BYTES} bytes")
        return None
    if received[end - 1] != ord("\r"):
        raise BadProxyHeader("a PROXY header of version 1 ends with LF instead of CRLF")
    return end + 1


def _read_v1(line: bytes) -> str | None:
    """Returns the client's address from a header of version 1, or None. Raises BadProxyHeader."""
    if line.startswith(_UNKNOWN):
        return None  # Section 2.1: the receiver ignores the rest of the line.
    fields = line.removesuffix(b"\r\n").split(b" ")
    if len(fields) != _V1_FIELDS:
        raise BadProxyHeader(f"a PROXY header of version 1 has {len(fields)} fields instead of {_V1_FIELDS}")
    read_address = _read_ipv4 if line.startswith(_TCP4) else _read_ipv6
    source, _ = map(read_address, fields[2:4])
    for field in fields[4:]:
        _check_port(field)
    return format_host(source)


def _read_ipv4(field: bytes) -> bytes:
    """Returns an IPv4 address in 4 bytes. Raises BadProxyHeader for other text, also for leading zeros."""
    try:
        return IPv4Address(field.decode("ascii")).packed
    except (AddressValueError, UnicodeDecodeError):
        raise BadProxyHeader(f"a TCP4 PROXY header contains no IPv4 address: {field!r}") from None


def _read_ipv6(field: bytes) -> bytes:
    """Returns an IPv6 address in 16 bytes. Raises BadProxyHeader for other text, also for an address with a zone.

    HAProxy writes IPv4-mapped addresses as `::ffff:192.0.2.1`, although section 2.1 names only hexadecimal digits.
    """
    try:
        address = IPv6Address(field.decode("ascii"))
    except (AddressValueError, UnicodeDecodeError):
        address = None
    if address is None or address.scope_id is not None:
        raise BadProxyHeader(f"a TCP6 PROXY header contains no IPv6 address: {field!r}")
    return address.packed


def _check_port(field: bytes) -> None:
    """Raises BadProxyHeader if a field is not a number from 0 to 65,535 without leading zeros."""
    if not field.isdigit() or (field.startswith(b"0") and field != b"0") or int(field) > _MAX_PORT:
        raise BadProxyHeader(f"a PROXY header contains no port: {field!r}")


def _v2_size(received: bytearray) -> int | None:
    """Returns the size of a header of version 2, or None if the 16 fixed bytes have not arrived.

    Raises:
        BadProxyHeader: the fixed bytes are not valid, or the header is too long.
    """
    if len(received) <= _COMMAND_AT:
        return None
    version, command = divmod(received[_COMMAND_AT], 16)
    if version != _VERSION_2:
        raise BadProxyHeader(f"a binary PROXY header has the version {version} instead of {_VERSION_2}")
    if command not in (_LOCAL, _PROXY):
        raise BadProxyHeader(f"a PROXY header has the unknown command {command}")
    if len(received) <= _FAMILY_AT:
        return None
    smallest = _address_block_bytes(received[_FAMILY_AT]) if command == _PROXY else 0
    if len(received) < _V2_HEAD_BYTES:
        return None
    length = int.from_bytes(received[_LENGTH_AT:_V2_HEAD_BYTES], "big")
    if length < smallest:
        raise BadProxyHeader(f"a PROXY header announces {length} bytes, but its addresses take {smallest}")
    if length > MAX_V2_LENGTH:
        raise BadProxyHeader(f"a PROXY header announces {length} bytes, more than {MAX_V2_LENGTH}")
    return _V2_HEAD_BYTES + length


def _address_block_bytes(family_and_protocol: int) -> int:
    """Returns how many bytes the addresses take in a header with the command PROXY. 0 if a receiver ignores them.

    Args:
        family_and_protocol: the 14th byte of the header.

    Raises:
        BadProxyHeader: the address family or the transport protocol is unknown, or the protocol is DGRAM.
    """
    family, protocol = divmod(family_and_protocol, 16)
    if family not in _ADDRESS_BLOCK_BYTES:
        raise BadProxyHeader(f"a PROXY header has the unknown address family {family}")
    if protocol == _DGRAM:
        raise BadProxyHeader("a PROXY header reports a client that sends datagrams")
    if protocol not in (_UNSPEC, _STREAM):
        raise BadProxyHeader(f"a PROXY header has the unknown transport protocol {protocol}")
    return 0 if protocol == _UNSPEC else _ADDRESS_BLOCK_BYTES[family]


def _read_v2(header: bytes) -> str | None:
    """Returns the client's address from a header of version 2 that `_v2_size` has checked, or None.

    Section 2.2 tells a receiver to ignore the addresses if the command is LOCAL, or if the family or the protocol is
    unspecified. All bytes after the fixed bytes are skipped then, because the position of the TLVs is not specified.

    Raises:
        BadProxyHeader: the TLVs or the checksum are not valid.
    """
    family, protocol = divmod(header[_FAMILY_AT], 16)
    if header[_COMMAND_AT] % 16 == _LOCAL or family == _AF_UNSPEC or protocol == _UNSPEC:
        return None
    _check_tlvs(header, _V2_HEAD_BYTES + _ADDRESS_BLOCK_BYTES[family])
    if family == _AF_UNIX:
        return None
    address_bytes = 4 if family == _AF_INET else 16
    return format_host(header[_V2_HEAD_BYTES : _V2_HEAD_BYTES + address_bytes])


def _check_tlvs(header: bytes, position: int) -> None:
    """Walks over the TLVs of a header of version 2 from `position`, and verifies the checksum if there is one.

    Raises:
        BadProxyHeader: a TLV does not end within the header, or the checksum is wrong, repeated, or not 4 bytes long.
    """
    checksum_at = None
    while position < len(header):
        value_at = position + _TLV_HEAD_BYTES
        end = value_at + int.from_bytes(header[position + 1 : value_at], "big")
        if end > len(header):
            raise BadProxyHeader(f"a PROXY header ends within a TLV of type {header[position]}")
        if header[position] == _TLV_CRC32C:
            if checksum_at is not None or end - value_at != _CRC32C_BYTES:
                raise BadProxyHeader("a PROXY header has two checksums, or a checksum that is not 4 bytes long")
            checksum_at = value_at
        position = end
    if checksum_at is not None:
        _check_crc32c(header, checksum_at)


def _check_crc32c(header: bytes, position: int) -> None:
    """Verifies the checksum at `position` as section 2.2.3 describes. Raises BadProxyHeader for a wrong checksum."""
    end = position + _CRC32C_BYTES
    computed = crc32c(header[:position] + bytes(_CRC32C_BYTES) + header[end:])
    if computed != int.from_bytes(header[position:end], "big"):
        raise BadProxyHeader("the checksum of a PROXY header is wrong")
