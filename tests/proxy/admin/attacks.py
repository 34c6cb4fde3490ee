"""Bytes that a hostile client may send to the admin port: known attacks by name, and random ones for a fuzzer."""

import random
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HOST = b"host: localhost\r\n"
_SETTINGS, _HEADERS, _RST_STREAM = 4, 1, 3


def h2_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns a frame of HTTP/2 (RFC 9113, 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def h2_resets(streams: int = 2_000) -> bytes:
    """Returns frames that open streams and reset each at once. The headers are indexed: GET, /, http (RFC 7541, A)."""
    frames = [PREFACE, h2_frame(_SETTINGS, 0, 0)]
    for stream in range(1, 2 * streams, 2):
        frames += [h2_frame(_HEADERS, 5, stream, b"\x82\x84\x86"), h2_frame(_RST_STREAM, 0, stream, bytes(4))]
    return b"".join(frames)


ATTACKS: dict[str, bytes] = {
    "h2c upgrade with bad settings": b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: Upgrade, HTTP2-Settings\r\n"
    b"upgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n",
    "h2c upgrade and frames": b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: Upgrade, HTTP2-Settings\r\n"
    b"upgrade: h2c\r\nHTTP2-Settings: \r\n\r\n" + h2_resets(100),
    "websocket upgrade and garbage": b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    + b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7\xf6",
    "http/2 resets": h2_resets(),
    "zero bytes": bytes(1_000),
    "tls hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "kafka frame": b"\x00\x00\x00\x10" + bytes(16),
    "endless head": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
    "endless line": b"GET /" + b"a" * 200_000,
    "no version": b"GET /healthz\r\n\r\n",
    "later version": b"GET /healthz HTTP/3.0\r\n" + HOST + b"\r\n",
    "bad target": b"GET \xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "escaped target": b"GET /api/v1/groups/%ff%00%2e%2e HTTP/1.1\r\n" + HOST + b"\r\n",
    "connect": b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n",
    "two lengths": b"POST /-/reload HTTP/1.1\r\n" + HOST + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "chunks": b"POST /healthz HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5_000,
    "long body": b"POST /healthz HTTP/1.1\r\n" + HOST + b"content-length: 9999999999\r\n\r\n" + bytes(100_000),
    "expecting": b"POST /healthz HTTP/1.1\r\n" + HOST + b"content-length: 3\r\nexpect: 100-continue\r\n\r\nabc",
    "half a request": b"GET /healthz HTTP/1.1\r\nho",
    "pipelined": (b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n") * 200,
}

_METHODS = (b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"PRI", b"CONNECT", b"get", b"", b"\x00")
_PATHS = (b"/", b"/healthz", b"/readyz", b"/metrics", b"/api/v1/groups", b"/api/v1/groups/%s", b"*", b"//", b"/%00")
_NAMES: tuple[bytes, ...] = (b"host", b"connection", b"upgrade", b"http2-settings", b"content-length", b"expect")
_NAMES += (b"transfer-encoding", b"accept-encoding", b"authorization", b"cookie", b"range", b"if-none-match")
_NAMES += (b"sec-websocket-key", b"x")
_VALUES: tuple[bytes, ...] = (b"localhost", b"upgrade", b"h2c", b"websocket", b"0", b"5", b"-1", b"99999999999")
_VALUES += (b"chunked", b"gzip", b"100-continue", b"AAAA", b"Basic !!!", b"Bearer x", b"bytes=0-,5-1", b"\xff\xfe")
_VALUES += (b"", b"close")


def random_attack(dice: random.Random) -> bytes:
    """Returns random bytes, or bytes that resemble HTTP, HTTP/2 or WebSocket."""
    kind = dice.randrange(6)
    if kind == 0:
        return dice.randbytes(dice.randrange(1, 3_000))
    if kind == 1:
        return _mutated(dice, dice.choice(list(ATTACKS.values())))
    if kind == 2:
        frames = (
            h2_frame(dice.randrange(12), dice.randrange(256), dice.randrange(20), dice.randbytes(dice.randrange(40)))
            for _ in range(dice.randrange(1, 50))
        )
        return PREFACE + b"".join(frames)
    return b"".join(_random_request(dice) for _ in range(dice.randrange(1, 4)))


def _random_request(dice: random.Random) -> bytes:
    version = dice.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""))
    path = dice.choice(_PATHS)
    path = path % dice.randbytes(4).hex().encode() if b"%s" in path else path
    headers = [
        dice.choice(_NAMES) + dice.choice((b": ", b":", b" : ", b"")) + dice.choice(_VALUES)
        for _ in range(dice.randrange(8))
    ]
    end = dice.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
    head = end.join([dice.choice(_METHODS) + b" " + path + b" " + version, *headers, b"", b""])
    return head + dice.randbytes(dice.choice((0, 0, 5, 1_000)))


def _mutated(dice: random.Random, attack: bytes) -> bytes:
    changed = bytearray(attack[: dice.randrange(1, len(attack) + 1)])
    for _ in range(dice.randrange(10)):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)
