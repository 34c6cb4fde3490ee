"""A small Kafka client: one connection to one broker, one question at a time.

Owns: connecting, negotiating versions, matching a reply to its question, when a session has to be authenticated, and
saying in one line what went wrong. Must not know: what the questions mean, nor which are worth asking again; it
never retries. Nor how a stream is secured or a session authenticated (`credentials`).

It asks for the sidecar itself and for the command line. Client traffic never comes this way.
"""

import math
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version as installed_version
from itertools import count
from types import MappingProxyType
from typing import Any

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.registry import APIS, api_name
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.proxy.addresses import Address

CLIENT_ID = "kafka-group-sidecar"
DEFAULT_TIMEOUT = 10.0
"""Seconds to wait for a connection, and for each reply."""
LARGEST_REPLY = 64 * 1024 * 1024
"""Bytes; Metadata of 100,000 partitions takes about a tenth of it."""

_DISTRIBUTION = "kafka-group-sidecar"
_LENGTH_BYTES = 4
_SMALLEST_REPLY = 4  # The correlation id.
_RENEW_AFTER = 0.85  # Of a session's lifetime, as Kafka's own clients do (KIP-368).
_CHUNK = 65536
_TLS_ALERT = b"\x15\x03"
_API_VERSIONS = 3  # v3 says who asks (KIP-511); v4 differs only in what it says of features.


class BrokerError(Exception):
    """A broker did not answer as asked. The text is one line that names the broker.

    Attributes:
        may_want: what the listener may want that it was not given: "SASL", "TLS", or nothing.
    """

    def __init__(self, text: str, may_want: str = "") -> None:
        super().__init__(text)
        self.may_want = may_want


class BrokerUnreachable(BrokerError):
    """There is no connection to be had."""


class BrokerClosed(BrokerError):
    """The connection was closed before the reply was whole, or is of no more use."""


class BrokerSilent(BrokerError):
    """No reply in time."""


class UnsupportedApi(BrokerError):
    """The broker has no version of an API that the question can be put in."""


class BrokerRefused(BrokerError):
    """The broker answered with an error.

    Attributes:
        code: Kafka's error code.
    """

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}{f': {message}' if message else ''}")
        self.code = code


class TlsFailed(BrokerError):
    """There is a broker, and no TLS with it."""


class AuthenticationFailed(BrokerError):
    """The broker does not take the sidecar's credentials, or there are none that could be sent."""


def tls_reason(error: BaseException) -> str:
    """What TLS has against the other side, where that is what broke the stream; else nothing."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        return (cause.reason or str(cause)).replace("_", " ").lower()
    return ""


Secure = Callable[[trio.abc.Stream, Address], Awaitable[trio.abc.Stream]]
"""Puts TLS on a stream to an address. Raises TlsFailed."""
Authenticate = Callable[["KafkaClient"], Awaitable[float]]
"""Authenticates a session, and gives the seconds that it lasts; infinite where that is for ever. Raises
AuthenticationFailed, and what `ask` does."""


class KafkaClient:
    """One connection to one broker. One task at a time may ask.

    Attributes:
        address: where the broker is.
        versions: what the broker speaks, API key to (lowest, highest) version.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        address: Address,
        client_id: str,
        timeout: float,
        largest: int,
        authenticate: Authenticate | None = None,
    ) -> None:
        self.address = address
        self.versions: Mapping[int, tuple[int, int]] = MappingProxyType({})
        self._stream = stream
        self._client_id = client_id
        self._timeout = timeout
        self._largest_reply = largest
        self._buffer = bytearray()
        self._numbers = count(1)
        self._usable = True
        self._answered = False
        self._authenticate = authenticate
        self._renew_at = math.inf

    def allow(self, size: int) -> None:
        """Takes replies of so many bytes, where that is more than before."""
        self._largest_reply = max(self._largest_reply, size)

    def speaks(self, request: type[Struct]) -> bool:
        """Whether the broker has this API in a version that is described here."""
        return bool(self._common(request))

    def version_for(self, request: type[Struct], lowest: int = 0, highest: int = 0x7FFF) -> int:
        """The highest version, between these two, that both sides know. Raises UnsupportedApi where there is none."""
        fit = [version for version in self._common(request) if lowest <= version <= highest]
        if fit:
            return fit[-1]
        name = api_name(request.KEY)
        if request.KEY not in self.versions:
            raise UnsupportedApi(f"{self.address} does not know {name}")
        first, last = self.versions[request.KEY]
        wanted = f"v{max(lowest, request.VERSIONS[0])} to v{min(highest, request.VERSIONS[-1])}"
        raise UnsupportedApi(f"{self.address} speaks {name} v{first} to v{last}, where {wanted} is needed")

    async def ask(self, request: Struct, version: int | None = None) -> Any:
        """Sends a request and waits for its reply.

        Args:
            request: one that has a reply.
            version: the version to ask in; without it, the highest that both sides know.

        Returns:
            The reply, an instance of the API's response class. What follows it is left unread, as Kafka's clients do.

        Raises:
            UnsupportedApi: there is no common version. The connection stays usable, as after the next.
            DecodeError: the reply is not what its API and version promise, or not this request's.
            BrokerClosed, BrokerSilent: the connection broke off, or no reply came in time.
            AuthenticationFailed: the session had to be authenticated anew, and was refused.
        """
        if version is None:
            version = self.version_for(type(request))
        reply, _ = decode_start(APIS[request.KEY].response, version, await self.ask_undecoded(request, version))
        return reply

    async def ask_undecoded(self, request: Struct, version: int) -> bytes:
        """As `ask`, and gives the body of the reply as it came."""
        if trio.current_time() >= self._renew_at:
            await self.authenticate()
        try:
            body = await self._exchange(request, version)
        except (BrokerClosed, BrokerSilent) as error:
            # Brokers that want SASL say what they speak, and nothing more.
            if self._answered or self._authenticate:
                raise
            raise type(error)(f"{error}: it may want SASL", may_want="SASL") from None
        self._answered = True
        return body

    async def negotiate(self) -> None:
        """Learns `versions`; to be called before any question. Raises what `ask` does, and BrokerRefused."""
        version, body = _API_VERSIONS, b""
        try:
            body = await self._exchange(_hello(), version)
        except BrokerClosed as error:
            if isinstance(self._stream, trio.SSLStream):
                raise BrokerClosed(f"{error}: it may want a certificate, or be older than 0.10") from None
            raise BrokerClosed(f"{error}: it may want TLS, or be older than 0.10", may_want="TLS") from None
        if int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:  # Said in v0, whatever was asked.
            version, body = 0, await self._exchange(_hello(), 0)
        reply, _ = decode_start(ApiVersionsResponse, version, body)
        if reply.error_code:
            raise BrokerRefused(f"{self.address} answers ApiVersions", reply.error_code)
        self.versions = MappingProxyType({api.api_key: (api.min_version, api.max_version) for api in reply.api_keys})

    async def authenticate(self) -> None:
        """Authenticates the session, where there is something to do it with; `ask` does so again when it is due."""
        if self._authenticate is None:
            return
        self._renew_at = math.inf  # What is asked on the way must not begin it anew.
        started_at = trio.current_time()
        try:
            self._renew_at = started_at + _RENEW_AFTER * await self._authenticate(self)
        except BaseException:
            self._usable = False
            raise

    async def exchange_token(self, token: bytes) -> bytes:
        """Sends a token as SaslHandshake v0 has it, behind its length alone, and gives the broker's (KIP-43)."""
        return await self._round_trip("a SASL token", len(token).to_bytes(_LENGTH_BYTES, "big") + token, smallest=0)

    def _common(self, request: type[Struct]) -> range:
        lowest, highest = self.versions.get(request.KEY, (0, -1))
        return range(max(lowest, request.VERSIONS[0]), min(highest, request.VERSIONS[-1]) + 1)

    async def _exchange(self, request: Struct, version: int) -> bytes:
        """The body of the reply to a request. A connection on which this fails is not used again."""
        name = api_name(request.KEY)
        number = next(self._numbers)
        frame = encode_request(request, RequestHeader(request.KEY, version, number, self._client_id))
        reply = await self._round_trip(name, frame)
        found = int.from_bytes(reply[:4], "big", signed=True)
        if found != number:
            self._usable = False
            raise DecodeError(f"{name}Response v{version}", "correlation_id", f"{found}, asked with {number}")
        return split_reply(reply, flexible=version >= APIS[request.KEY].response.HEADER_FLEXIBLE)

    async def _round_trip(self, name: str, frame: bytes, smallest: int = _SMALLEST_REPLY) -> bytes:
        """Sends a frame, and gives what the next one holds."""
        if not self._usable:
            raise BrokerClosed(f"the connection to {self.address} has failed before {name}")
        self._usable = False
        try:
            with trio.fail_after(self._timeout):
                await self._stream.send_all(frame)
                reply = await self._receive_frame(name, smallest)
        except trio.TooSlowError:
            raise BrokerSilent(f"{self.address} did not answer {name} within {self._timeout:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError) as error:
            if reason := tls_reason(error):  # TLS 1.3 says only now that it wants another certificate.
                raise TlsFailed(f"{self.address} ended TLS at {name}: {reason}") from None
            raise BrokerClosed(f"{self.address} closed the connection at {name}") from None
        self._usable = True
        return reply

    async def _receive_frame(self, name: str, smallest: int) -> bytes:
        head = await self._receive(_LENGTH_BYTES)
        size = int.from_bytes(head, "big", signed=True)
        if head.startswith(_TLS_ALERT):
            raise DecodeError(f"{name}Response", "", "the broker speaks TLS here")
        if not smallest <= size <= self._largest_reply:
            fits = f"{smallest} to {self._largest_reply}"
            raise DecodeError(f"{name}Response", "", f"a frame of {size} bytes, where {fits} are expected")
        return await self._receive(size)

    async def _receive(self, size: int) -> bytes:
        while len(self._buffer) < size:
            chunk = await self._stream.receive_some(_CHUNK)
            if not chunk:
                raise EOFError
            self._buffer += chunk
        with memoryview(self._buffer) as view:  # Megabytes of records are copied once, not twice.
            data = bytes(view[:size])
        del self._buffer[:size]
        return data


@asynccontextmanager
async def connect(
    host: str,
    port: int,
    *,
    client_id: str = CLIENT_ID,
    timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - also of every question to come
    largest_reply: int = LARGEST_REPLY,
    secure: Secure | None = None,
    authenticate: Authenticate | None = None,
) -> AsyncIterator[KafkaClient]:
    """Connects, negotiates versions, authenticates, and closes at the end.

    Args:
        host: a name or an address.
        port: the TCP port.
        client_id: how the broker's logs and quotas name this client.
        timeout: seconds to wait for the connection, and again for each reply.
        largest_reply: bytes of a reply beyond which it is refused unread.
        secure: puts TLS on the connection; without it, it stays plain.
        authenticate: authenticates its session; without it, the client is nobody.

    Raises:
        BrokerUnreachable: there is no connection to be had.
        TlsFailed, AuthenticationFailed: the broker and the client do not get on.
        BrokerClosed, BrokerSilent, BrokerRefused, DecodeError: the broker did not say what it speaks.
    """
    address = Address(host, port)
    stream = await _open(address, timeout)
    try:
        if secure:
            stream = await secure(stream, address)
        client = KafkaClient(stream, address, client_id, timeout, largest_reply, authenticate)
        await client.negotiate()
        await client.authenticate()
        yield client
    finally:
        await trio.aclose_forcefully(stream)


async def _open(address: Address, timeout: float) -> trio.abc.Stream:  # noqa: ASYNC109 - as of connect
    try:
        with trio.fail_after(timeout):
            return await trio.open_tcp_stream(*address)
    except trio.TooSlowError:
        raise BrokerUnreachable(f"{address} cannot be reached: no connection within {timeout:g} s") from None
    except (OSError, ValueError, OverflowError) as error:  # The last two: no such name or port can exist.
        raise BrokerUnreachable(f"{address} cannot be reached: {_reason(error)}") from None


def error_name(code: int) -> str:
    """Kafka's name of an error with its code, or the code alone where this project does not name it."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error {code}"


def _reason(error: Exception) -> str:
    """The innermost reason: trio gathers the failures of all addresses of a name behind one error."""
    inner = error.__cause__
    if isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    cause = inner if isinstance(inner, OSError) else error
    if not isinstance(cause, OSError):
        return str(cause)
    # Name resolution has negative numbers and good texts; trio's texts repeat the address.
    return os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)


def _hello() -> ApiVersionsRequest:
    # A local version's "+" is not among the letters that brokers accept here.
    software_version = installed_version(_DISTRIBUTION).partition("+")[0]
    return ApiVersionsRequest(client_software_name=_DISTRIBUTION, client_software_version=software_version)
