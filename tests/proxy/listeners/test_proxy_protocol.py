"""The PROXY header at the start of a connection, in versions 1 and 2."""

import re
import struct
import tracemalloc
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise
from typing import Literal, NamedTuple

import pytest
from google_crc32c import value as crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from group_sidecar.proxy.listeners.proxy_protocol import (
    MAX_V1_BYTES,
    MAX_V2_LENGTH,
    V2_SIGNATURE,
    BadProxyHeader,
    ProxyHeader,
    ProxyHeaderReader,
)
from group_sidecar.proxy.runtime.addresses import format_host

LOCAL, PROXY = 0x20, 0x21
TCP4, TCP6, UNIX = 0x11, 0x21, 0x31
CRC32C, NOOP = 0x03, 0x04
IPV4_BLOCK = bytes((192, 0, 2, 1, 198, 51, 100, 2)) + struct.pack(">HH", 56_324, 9_092)
IPV6_BLOCK = IPv6Address("2001:db8::1").packed + IPv6Address("2001:db8::2").packed + struct.pack(">HH", 56_324, 9_092)
KAFKA = bytes.fromhex("00000016 0012 0003 00000001 0005") + b"admin"
FULL_IPV6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"


def version_1(text: str) -> bytes:
    return b"PROXY " + text.encode("latin-1") + b"\r\n"


def version_2(body: bytes = b"", command: int = PROXY, family: int = TCP4) -> bytes:
    return V2_SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


def tlv(kind: int, value: bytes = b"") -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def checksummed(before: bytes, after: bytes = b"", family: int = TCP4) -> bytes:
    """A header of version 2 whose checksum stands between two parts of its body."""
    checksum = crc32c(version_2(before + tlv(CRC32C, bytes(4)) + after, family=family))
    return version_2(before + tlv(CRC32C, struct.pack(">I", checksum)) + after, family=family)


def in_chunks(stream: bytes, cuts: list[int]) -> ProxyHeader | BadProxyHeader | None:
    """What the reader makes of a stream that is cut at the given positions. `rest` has all bytes after the header."""
    reader = ProxyHeaderReader()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        try:
            if header := reader.feed(stream[start:end]):
                return header._replace(rest=header.rest + stream[end:])
        except BadProxyHeader as error:
            return error
    return None


class Valid(NamedTuple):
    """A valid header with the client's address."""

    header: bytes
    source: str | None = None


SPECIFIED = {
    "example of section 2.1": Valid(version_1("TCP4 192.168.0.1 192.168.0.11 56324 443"), "192.168.0.1"),
    "longest TCP4": Valid(version_1("TCP4 255.255.255.255 255.255.255.255 65535 65535"), "255.255.255.255"),
    "longest TCP6": Valid(version_1(f"TCP6 {FULL_IPV6} {FULL_IPV6} 65535 65535"), FULL_IPV6),
    "UNKNOWN": Valid(version_1("UNKNOWN")),
    "longest UNKNOWN": Valid(version_1(f"UNKNOWN {FULL_IPV6} {FULL_IPV6} 65535 65535")),
    "UNKNOWN with anything": Valid(version_1("UNKNOWN \xff \r TCP4")),
    "port 0": Valid(version_1("TCP4 192.0.2.1 198.51.100.2 0 0"), "192.0.2.1"),
    "short IPv6": Valid(version_1("TCP6 2001:DB8::a0 ::1 7 9092"), "2001:db8:0:0:0:0:0:a0"),
    "IPv6 with leading zeros": Valid(version_1("TCP6 0001::0002 ::1 7 9092"), "1:0:0:0:0:0:0:2"),
    "TCP over IPv4": Valid(version_2(IPV4_BLOCK), "192.0.2.1"),
    "TCP over IPv6": Valid(version_2(IPV6_BLOCK, family=TCP6), "2001:db8:0:0:0:0:0:1"),
    "TCP over IPv4-mapped IPv6": Valid(
        version_2(bytes(10) + b"\xff\xff" + IPV4_BLOCK[:4] + IPV6_BLOCK[16:], family=TCP6), "192.0.2.1"
    ),
    "UNIX stream": Valid(version_2(b"/tmp/a".ljust(216, b"\0"), family=UNIX)),
    "UNSPEC": Valid(version_2(family=0x00)),
    "UNSPEC with other bytes": Valid(version_2(b"ignored", family=0x00)),
    "IPv4 without a transport protocol": Valid(version_2(IPV4_BLOCK, family=0x10)),
    "IPv4 without a transport protocol and without addresses": Valid(version_2(family=0x10)),
    "stream without a family": Valid(version_2(b"ignored", family=0x01)),
    "LOCAL": Valid(version_2(command=LOCAL, family=0x00)),
    "LOCAL with an address": Valid(version_2(IPV4_BLOCK, command=LOCAL)),
    "LOCAL with an unknown family": Valid(version_2(b"ignored", command=LOCAL, family=0xFF)),
    "TLVs": Valid(version_2(IPV4_BLOCK + tlv(NOOP) + tlv(0xEA, bytes(300)) + tlv(NOOP)), "192.0.2.1"),
    "checksum as the first TLV": Valid(checksummed(IPV4_BLOCK, tlv(NOOP, b"123")), "192.0.2.1"),
    "checksum as the last TLV": Valid(checksummed(IPV4_BLOCK + tlv(NOOP, b"123")), "192.0.2.1"),
    "longest header": Valid(version_2(IPV4_BLOCK + tlv(NOOP, bytes(MAX_V2_LENGTH - len(IPV4_BLOCK) - 3))), "192.0.2.1"),
}
"""Headers that the specification gives or allows."""
HAPROXY = {
    "send-proxy": Valid(b"PROXY TCP4 127.0.0.1 127.0.0.1 33894 57209\r\n", "127.0.0.1"),
    "send-proxy, IPv6": Valid(b"PROXY TCP6 ::1 ::1 59874 51655\r\n", "0:0:0:0:0:0:0:1"),
    "send-proxy, IPv4-mapped": Valid(b"PROXY TCP6 ::ffff:127.0.0.1 ::ffff:127.0.0.1 59502 49589\r\n", "127.0.0.1"),
    "send-proxy, UNIX": Valid(b"PROXY UNKNOWN\r\n"),
    "send-proxy-v2": Valid(bytes.fromhex("0d0a0d0a000d0a515549540a 2111000c 7f0000017f000001d1e6d92d"), "127.0.0.1"),
    "send-proxy-v2 crc32c": Valid(
        bytes.fromhex("0d0a0d0a000d0a515549540a 21110013 7f0000017f000001c80cb379 03000455e8f117"), "127.0.0.1"
    ),
    "send-proxy-v2 crc32c,unique-id, IPv6": Valid(
        bytes.fromhex(
            "0d0a0d0a000d0a515549540a 21210052 00000000000000000000000000000001 00000000000000000000000000000001"
            "a660d99d 0300040e41f779 05002463353732383163302d353139622d346539302d623239332d323230663462346266303434"
        ),
        "0:0:0:0:0:0:0:1",
    ),
    "send-proxy-v2 crc32c, IPv4-mapped": Valid(
        bytes.fromhex(
            "0d0a0d0a000d0a515549540a 2121002b 00000000000000000000ffff7f000001 00000000000000000000ffff7f000001"
            "ec9ccd21 0300047ba116c7"
        ),
        "127.0.0.1",
    ),
    "send-proxy-v2 crc32c, health check": Valid(bytes.fromhex("0d0a0d0a000d0a515549540a 20000007 030004a9b87e8f")),
}
"""The bytes that HAProxy 2.6.12 sent to a socket, each with its settings of the server line."""
VALID = [pytest.param(each, id=name) for name, each in {**SPECIFIED, **HAPROXY}.items()]


@pytest.mark.parametrize("valid", VALID)
def test_header_is_read_at_every_cut(valid: Valid) -> None:
    """A header in two chunks is complete with its last byte, and the bytes after the header are returned."""
    stream = valid.header + KAFKA
    for cut in range(len(stream) + 1):
        reader = ProxyHeaderReader()
        first = reader.feed(stream[:cut])
        if cut < len(valid.header):
            assert first is None
            assert reader.feed(stream[cut:]) == ProxyHeader(valid.source, KAFKA)
        else:
            assert first == ProxyHeader(valid.source, stream[len(valid.header) : cut])


@pytest.mark.parametrize("valid", VALID)
def test_header_is_read_byte_by_byte(valid: Valid) -> None:
    """A header in single bytes is complete with its last byte."""
    reader = ProxyHeaderReader()
    *before, last = (reader.feed(bytes((byte,))) for byte in valid.header)
    assert {*before} == {None}
    assert last == ProxyHeader(valid.source, b"")


def test_longest_lines_have_the_specified_sizes() -> None:
    """The longest lines of this test have the sizes that section 2.1 computes."""
    sizes = [len(SPECIFIED[f"longest {each}"].header) for each in ("TCP4", "TCP6", "UNKNOWN")]
    assert sizes == [56, 104, MAX_V1_BYTES]


class Bad(NamedTuple):
    """A stream that does not begin with a header. `decided`: after how many bytes the reader refuses the stream."""

    stream: bytes
    decided: int
    text: str


NO_HEADER, NO_PORT, NO_IPV4, NO_IPV6 = "does not begin with", "no port", "no IPv4 address", "no IPv6 address"
BAD_STARTS = {
    "Kafka": Bad(KAFKA, 1, NO_HEADER),
    "TLS": Bad(bytes.fromhex("16030100c8"), 1, NO_HEADER),
    "HTTP": Bad(b"GET / HTTP/1.1\r\n", 1, NO_HEADER),
    "HTTP POST": Bad(b"POST / HTTP/1.1\r\n", 2, NO_HEADER),
    "lower case": Bad(b"proxy TCP4", 1, NO_HEADER),
    "two spaces first": Bad(b"PROXY  TCP4 ", 7, NO_HEADER),
    "tab": Bad(b"PROXY\tTCP4 ", 6, NO_HEADER),
    "UDP": Bad(b"PROXY UDP4 ", 8, NO_HEADER),
    "TCP5": Bad(b"PROXY TCP5 ", 10, NO_HEADER),
    "TCP4 with a tab": Bad(b"PROXY TCP4\t", 11, NO_HEADER),
    "word after UNKNOWN": Bad(b"PROXY UNKNOWNS\r\n", 14, NO_HEADER),
    "UNKNOWN with CR alone": Bad(b"PROXY UNKNOWN\r \n", 15, NO_HEADER),
    "two blank lines": Bad(b"\r\n\r\n\r\n", 5, NO_HEADER),
    "last byte of the signature": Bad(V2_SIGNATURE[:-1] + b"\r", 12, NO_HEADER),
}
BAD_VERSION_1 = {
    "LF alone": Bad(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n", 35, "LF instead of CRLF"),
    "LF within UNKNOWN": Bad(b"PROXY UNKNOWN a\nb\r\n", 16, "LF instead of CRLF"),
    "no CRLF": Bad(b"PROXY TCP4 " + b"1" * 200, MAX_V1_BYTES, "does not end within 107 bytes"),
    "CRLF one byte late": Bad(b"PROXY UNKNOWN ".ljust(106, b"1") + b"\r\n", MAX_V1_BYTES, "does not end within 107"),
    **{
        text: Bad(version_1(text), len(version_1(text)), error)
        for text, error in {
            "TCP4 ": "3 fields instead of 6",
            "TCP4 192.0.2.1  192.0.2.2 1 2": "7 fields instead of 6",
            "TCP4 192.0.2.1 192.0.2.2 1": "5 fields instead of 6",
            "TCP4 192.0.2.1 192.0.2.2 1 2 ": "7 fields instead of 6",
            "TCP4 192.0.2.1 192.0.2.2 1 2\r": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2  2": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 01 2": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 1 00": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 65536 2": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 1 65536": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 +1 2": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 -1 2": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 1_0 2": NO_PORT,
            "TCP4 192.0.2.1 192.0.2.2 \xb2 2": NO_PORT,
            "TCP4 192.0.2.01 192.0.2.2 1 2": NO_IPV4,
            "TCP4 192.0.2.256 192.0.2.2 1 2": NO_IPV4,
            "TCP4 192.0.2 192.0.2.2 1 2": NO_IPV4,
            "TCP4 192.0.2.1 192.0.2.2.3 1 2": NO_IPV4,
            "TCP4 ::1 192.0.2.2 1 2": NO_IPV4,
            "TCP4 192.0.2.1 ::1 1 2": NO_IPV4,
            "TCP4 192.0.2.1\xff 192.0.2.2 1 2": NO_IPV4,
            "TCP4 host 192.0.2.2 1 2": NO_IPV4,
            "TCP6 192.0.2.1 ::1 1 2": NO_IPV6,
            "TCP6 ::1 192.0.2.1 1 2": NO_IPV6,
            "TCP6 fe80::1%eth0 ::1 1 2": NO_IPV6,
            "TCP6 fe80::1%\x1b ::1 1 2": NO_IPV6,
            "TCP6 1::2::3 ::1 1 2": NO_IPV6,
            "TCP6 00001::1 ::1 1 2": NO_IPV6,
            "TCP6 ::ffff:192.0.2.01 ::1 1 2": NO_IPV6,
            "TCP6 ::\xff ::1 1 2": NO_IPV6,
        }.items()
    },
}
BAD_HEADS = {
    "version 1 in binary": Bad(version_2(IPV4_BLOCK, command=0x11), 13, "version 1 instead of 2"),
    "version 3": Bad(version_2(IPV4_BLOCK, command=0x31), 13, "version 3 instead of 2"),
    "unknown command": Bad(version_2(IPV4_BLOCK, command=0x22), 13, "unknown command 2"),
    "unknown family": Bad(version_2(IPV4_BLOCK, family=0x41), 14, "unknown address family 4"),
    "unknown protocol": Bad(version_2(IPV4_BLOCK, family=0x13), 14, "unknown transport protocol 3"),
    "UDP over IPv4": Bad(version_2(IPV4_BLOCK, family=0x12), 14, "datagrams"),
    "UDP over IPv6": Bad(version_2(IPV6_BLOCK, family=0x22), 14, "datagrams"),
    "UNIX datagram": Bad(version_2(bytes(216), family=0x32), 14, "datagrams"),
    "short IPv4": Bad(version_2(IPV4_BLOCK[:-1]), 16, "11 bytes, but its addresses take 12"),
    "no IPv4": Bad(version_2(), 16, "0 bytes, but its addresses take 12"),
    "short IPv6": Bad(version_2(IPV6_BLOCK[:-1], family=TCP6), 16, "35 bytes, but its addresses take 36"),
    "short UNIX": Bad(version_2(bytes(215), family=UNIX), 16, "215 bytes, but its addresses take 216"),
    "too long": Bad(version_2(bytes(MAX_V2_LENGTH + 1)), 16, "announces 4097 bytes, more than 4096"),
    "longest of the wire": Bad(version_2(bytes(65_535)), 16, "announces 65535 bytes"),
    "too long LOCAL": Bad(version_2(bytes(MAX_V2_LENGTH + 1), command=LOCAL), 16, "announces 4097 bytes"),
}
BAD_TLVS = {
    name: Bad(header, len(header), error)
    for name, (header, error) in {
        "TLV of one byte": (version_2(IPV4_BLOCK + b"\x04"), "ends within a TLV of type 4"),
        "TLV of two bytes": (version_2(IPV4_BLOCK + b"\x04\x00"), "ends within a TLV of type 4"),
        "TLV with a long length": (version_2(IPV4_BLOCK + b"\x02\x00\x05abcd"), "ends within a TLV of type 2"),
        "second TLV with a long length": (version_2(IPV4_BLOCK + tlv(NOOP, b"a") + b"\x05\xff\xff"), "of type 5"),
        "byte after the TLVs": (version_2(IPV6_BLOCK + tlv(NOOP, b"a") + b"\x00", family=TCP6), "of type 0"),
        "TLV of a UNIX socket": (version_2(bytes(216) + b"\x04\x00", family=UNIX), "of type 4"),
        "wrong checksum": (version_2(IPV4_BLOCK + tlv(CRC32C, bytes(4))), "checksum of a PROXY header is wrong"),
        "wrong checksum of a UNIX socket": (version_2(bytes(216) + tlv(CRC32C, bytes(4)), family=UNIX), "is wrong"),
        "short checksum": (version_2(IPV4_BLOCK + tlv(CRC32C, bytes(3))), "not 4 bytes long"),
        "long checksum": (version_2(IPV4_BLOCK + tlv(CRC32C, bytes(5))), "not 4 bytes long"),
        "two checksums": (checksummed(IPV4_BLOCK, tlv(CRC32C, bytes(4))), "two checksums"),
    }.items()
}
BAD = [
    pytest.param(each, id=ascii(name))
    for name, each in {**BAD_STARTS, **BAD_VERSION_1, **BAD_HEADS, **BAD_TLVS}.items()
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_header_is_refused_at_once(bad: Bad) -> None:
    """The reader refuses a stream with the byte that decides it, and not before."""
    reader = ProxyHeaderReader()
    assert [reader.feed(bytes((byte,))) for byte in bad.stream[: bad.decided - 1]] == [None] * (bad.decided - 1)
    with pytest.raises(BadProxyHeader) as raised:
        reader.feed(bad.stream[bad.decided - 1 : bad.decided])
    assert bad.text in str(raised.value)


@pytest.mark.parametrize("bad", BAD)
def test_bad_header_is_refused_at_every_cut(bad: Bad) -> None:
    """The reader refuses a stream in two chunks, and the error is one printable line."""
    for cut in range(min(len(bad.stream), MAX_V1_BYTES + 1)):
        error = in_chunks(bad.stream, [cut])
        assert isinstance(error, BadProxyHeader)
        assert bad.text in str(error)
        assert str(error).isascii()
        assert str(error).isprintable()


@pytest.mark.parametrize("name", ["send-proxy-v2 crc32c", "send-proxy-v2 crc32c,unique-id, IPv6"])
def test_checksum_protects_addresses_and_tlvs(name: str) -> None:
    """A header of HAProxy with a checksum is refused if one byte of an address, a port or a TLV's value has changed."""
    header = HAPROXY[name].header
    checksum_head = header.index(tlv(CRC32C, bytes(4))[:3])
    for at in {*range(16, len(header))} - {*range(checksum_head, checksum_head + 3)}:
        changed = header[:at] + bytes((header[at] ^ 0x10,)) + header[at + 1 :]
        assert isinstance(in_chunks(changed, []), BadProxyHeader)


PORTS = st.integers(0, 65_535)
CUTS = st.lists(st.integers(0, 200), max_size=5)
TLVS = st.lists(st.builds(tlv, st.integers(0, 255).filter(lambda kind: kind != CRC32C), st.binary(max_size=40)))


@given(st.data(), st.sampled_from((4, 6)), PORTS, PORTS, st.binary(max_size=30), CUTS)
def test_version_1_round_trip(
    data: st.DataObject, version: Literal[4, 6], source_port: int, port: int, rest: bytes, cuts: list[int]
) -> None:
    """Any addresses and ports of a version 1 header are read, however the header is cut."""
    source, target = (data.draw(st.ip_addresses(v=version)) for _ in range(2))
    text = data.draw(st.sampled_from((source.compressed, source.exploded, source.exploded.upper())))
    header = version_1(f"TCP{version} {text} {target} {source_port} {port}")
    assert in_chunks(header + rest, cuts) == ProxyHeader(format_host(source.packed), rest)


@given(st.data(), PORTS, st.lists(TLVS, min_size=2, max_size=2), st.booleans(), st.binary(max_size=30), CUTS)
def test_version_2_round_trip(
    data: st.DataObject, port: int, tlvs: list[list[bytes]], with_checksum: bool, rest: bytes, cuts: list[int]
) -> None:
    """Any addresses and ports of a version 2 header are read with any TLVs, however the header is cut."""
    source = data.draw(st.ip_addresses())
    target = data.draw(st.ip_addresses(v=source.version))
    family = TCP4 if isinstance(source, IPv4Address) else TCP6
    addresses = source.packed + target.packed + struct.pack(">HH", port, 9_092)
    before, after = (b"".join(each) for each in tlvs)
    if with_checksum:
        header = checksummed(addresses + before, after, family)
    else:
        header = version_2(addresses + before + after, family=family)
    assert in_chunks(header + rest, cuts) == ProxyHeader(format_host(source.packed), rest)


EXAMPLES = [each.header for each in (*SPECIFIED.values(), *HAPROXY.values())]
PIECES = (b"", b"\0", b"\1", b"\xff", b" ", b"0", b"1", b".", b":", b"%", b"\r", b"\n", b"\r\n", b"\x03\x00\x04")


@st.composite
def damaged(draw: st.DrawFn, headers: list[bytes]) -> bytes:
    """A header in which a few bytes were replaced, added or removed."""
    header = draw(st.sampled_from(headers))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(header)))
        header = header[:at] + draw(st.sampled_from(PIECES)) + header[at + draw(st.integers(0, 3)) :]
    return header


@given(st.one_of(st.binary(max_size=150), damaged(EXAMPLES)), CUTS)
@example(V2_SIGNATURE + bytes.fromhex("2111ffff"), [])
def test_any_bytes_give_header_none_or_error(stream: bytes, cuts: list[int]) -> None:
    """Any bytes give a header, None or BadProxyHeader, and the cuts make no difference."""
    found, whole = in_chunks(stream, cuts), in_chunks(stream, [])
    if isinstance(whole, BadProxyHeader):
        assert isinstance(found, BadProxyHeader)
        assert str(found).isascii()
        assert str(found).isprintable()
        return
    assert found == whole
    if whole is not None:
        assert stream.endswith(whole.rest)
        assert len(stream) > len(whole.rest)


NUMBER = r"(?:0|[1-9][0-9]{0,4})"
TCP4_LINE = re.compile(
    rf"PROXY TCP4 ({NUMBER})\.({NUMBER})\.({NUMBER})\.({NUMBER}) ({NUMBER})\.({NUMBER})\.({NUMBER})\.({NUMBER})"
    rf" ({NUMBER}) ({NUMBER})\r\n".encode()
)


@given(damaged([each for each in EXAMPLES if each.startswith(b"PROXY TCP4")]))
def test_tcp4_line_is_read_exactly_if_it_is_specified(line: bytes) -> None:
    """A TCP4 line is accepted if it matches section 2.1 letter by letter, and only then."""
    match = TCP4_LINE.match(line)
    numbers = [int(each) for each in match.groups()] if match else []
    specified = bool(match) and max(numbers[:8]) <= 255 and max(numbers[8:]) <= 65_535
    assert isinstance(in_chunks(line, []), ProxyHeader) == specified


def test_single_bytes_copy_no_whole_buffer() -> None:
    """The memory that a call allocates does not grow with the bytes that were received before."""
    *before, _ = SPECIFIED["longest header"].header
    reader, peaks = ProxyHeaderReader(), []
    tracemalloc.start()
    try:
        for byte in before:
            tracemalloc.reset_peak()
            allocated, _ = tracemalloc.get_traced_memory()
            reader.feed(bytes((byte,)))
            peaks.append(tracemalloc.get_traced_memory()[1] - allocated)
    finally:
        tracemalloc.stop()
    assert sorted(peaks[-100:])[50] < 1_024
