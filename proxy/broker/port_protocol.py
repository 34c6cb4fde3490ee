"""Finds out which protocol a port speaks, after a connection with another protocol has failed."""

import ssl
from enum import StrEnum

import trio

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.proxy.broker.broker_errors import BrokerClosed, BrokerError, NotABroker
from group_sidecar.proxy.broker.kafka_client import connect
from group_sidecar.proxy.runtime.addresses import Address

ATTEMPT_SECONDS = 2.0
"""Seconds that each attempt may take. The port has just accepted a connection, so a short time is enough."""
_TLS_RECORDS = (b"\x16\x03", b"\x15\x03")
"""The starts of a TLS record with a part of the handshake, and of a record with an alert (RFC 8446, 5.1)."""
_HTTP = b"HTTP/"
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"


class PortProtocol(StrEnum):
    """What a port speaks."""

    KAFKA = "Kafka without TLS"
    TLS = "TLS"
    HTTP = "HTTP"
    NOTHING = "nothing"
    """The port closes each connection without an answer, as a sidecar does while it cannot reach its broker."""


async def protocol_of(address: Address) -> PortProtocol | None:
    """Returns what a port speaks, or None if the port speaks something else or does not answer.

    The function opens up to three connections: as a client of Kafka, of TLS and of HTTP. Kafka is first, because a
    sidecar logs the first TLS client of an address at a plain listener, and a probe is no such client.
    """
    try:
        async with connect(*address, timeout=ATTEMPT_SECONDS):
            return PortProtocol.KAFKA
    except NotABroker:
        return PortProtocol.KAFKA
    except (BrokerError, DecodeError) as error:
        closed = isinstance(error, BrokerClosed)
    to_tls = await _first_bytes(address, _client_hello())
    if to_tls is not None and to_tls.startswith(_TLS_RECORDS):
        return PortProtocol.TLS
    to_http = await _first_bytes(address, _HTTP_REQUEST)
    if to_http is not None and to_http.startswith(_HTTP):
        return PortProtocol.HTTP
    return PortProtocol.NOTHING if closed and to_tls == to_http == b"" else None


def mismatch(spoken: PortProtocol | None, setting: str, *, uses_tls: bool) -> str:
    """Returns why the protocol of a port does not fit a client; empty if it fits.

    The result continues a sentence whose subject is the port, such as "speaks HTTP, not Kafka".

    Args:
        spoken: what the port speaks, or None if that is not known.
        setting: a clause that names the client's TLS setting and its value. The clause becomes part of the result.
        uses_tls: whether the client uses TLS.
    """
    if spoken is PortProtocol.HTTP:
        return "speaks HTTP, not Kafka"
    if spoken is PortProtocol.NOTHING:
        closed = "accepts connections and closes them without an answer"
        return f"{closed}: it may be a sidecar that cannot reach its broker, or a broker older than 0.9"
    if spoken is PortProtocol.TLS and not uses_tls:
        return f"speaks TLS, and {setting}"
    if spoken is PortProtocol.KAFKA and uses_tls:
        return f"does not speak TLS, and {setting}"
    return ""


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs an answer")


async def _first_bytes(address: Address, request: bytes) -> bytes | None:
    """Returns the first bytes of a port's answer to a request, at least five unless the answer is shorter.

    The answer is empty if the port closes the connection. The function returns None if no connection can be opened, or
    if the answer takes too long.
    """
    answer = b""
    with trio.move_on_after(ATTEMPT_SECONDS):
        try:
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(request)
                while len(answer) < len(_HTTP) and (chunk := await stream.receive_some()):
                    answer += chunk
        except trio.BrokenResourceError:
            pass
        except OSError:
            return None
        return answer
    return answer or None
