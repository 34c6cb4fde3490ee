"""A small Kafka client: one connection to one broker, one request at a time.

The client connects, negotiates versions, matches each reply to its request, and knows when a session must be
authenticated again. The client repeats only one request: if the broker rejects the version of ApiVersions, the client
sends ApiVersions v0. TLS and SASL are in `own_credentials`, and the exceptions in `broker_errors`. Traffic of the
sidecar's clients does not use this module.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from types import MappingProxyType
from typing import Any

import trio

from group_sidecar.codecs.api_registry import APIS, ApiKey, api_name
from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.metrics.installed_version import installed_version
from group_sidecar.proxy.broker.added_versions import Versions
from group_sidecar.proxy.broker.broker_errors import (
    BrokerClosed,
    BrokerRefused,
    BrokerTimeout,
    BrokerUnreachable,
    NotABroker,
    TlsFailed,
    UnsupportedApi,
    connect_failure,
    tls_reason,
)
from group_sidecar.proxy.runtime.addresses import Address

CLIENT_ID = "kafka-group-sidecar"
DEFAULT_TIMEOUT = 10.0
"""Seconds to wait for a connection, and for each reply."""
LARGEST_REPLY = 64 * 1024 * 1024
"""The maximum size of a reply in bytes. A Metadata reply with 100,000 partitions takes about a tenth of this size."""
MAX_INLINE_BYTES = 16_384
"""A worker thread decodes a reply that has more bytes than this, and compares it with the sidecar's own answer.
Trio's thread, which also runs the data path, handles shorter replies. Trio's thread also decodes every Fetch reply:
nearly all bytes of a Fetch reply are records, which stay undecoded."""
SLOW_API_VERSIONS_SECONDS = 0.5
"""Seconds to wait for a reply to ApiVersions. After that, the broker gets a second request that Kafka 0.9 would
answer."""

_LENGTH_BYTES, _SMALLEST_REPLY = 4, 4  # A reply has at least a correlation id.
# The share of a session's lifetime (KIP-368) after which the client authenticates again. Kafka's Java client takes a
# random share from 0.85 to 0.95.
_REAUTHENTICATE_AFTER = 0.85
_CHUNK = 65536
_TLS_ALERT = b"\x15\x03"
_HTTP = b"HTTP"
_API_VERSIONS_VERSION = 3  # v3 names the client (KIP-511); v4 only changes features.
_EMPTY_DESCRIBE_GROUPS = DescribeGroupsRequest(groups=())  # A request that Kafka 0.9 knows, and that asks for nothing.


Secure = Callable[[trio.abc.Stream, Address], Awaitable[trio.abc.Stream]]
"""Puts TLS on a stream to an address. Raises TlsFailed."""
Authenticate = Callable[["KafkaClient"], Awaitable[float]]
"""Authenticates a session, and returns the session's lifetime in seconds, or infinity if there is no limit. Raises
AuthenticationFailed, and the exceptions of `ask`."""


class KafkaClient:
    """One connection to one broker. Only one task at a time may send requests.

    Attributes:
        address: the address of the broker.
        versions: the versions that the broker offers.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        address: Address,
        client_id: str,
        timeout: float,
        largest_reply: int,
        authenticate: Authenticate | None = None,
    ) -> None:
        self.address = address
        self.versions: Versions = MappingProxyType({})
        self._stream = stream
        self._client_id = client_id
        self._timeout = timeout
        self._largest_reply = largest_reply
        self._buffer = bytearray()
        self._correlation_ids = count(1)
        self._usable = True
        self._answered = False
        self._authenticate = authenticate
        self._reauthenticate_at = math.inf

    def raise_reply_limit(self, size: int) -> None:
        """Accepts replies of up to this many bytes, if that is more than before."""
        self._largest_reply = max(self._largest_reply, size)

    def speaks(self, request: type[Struct]) -> bool:
        """Whether the broker has this API in a version that the sidecar can decode."""
        return bool(self._common(request))

    def version_for(self, request: type[Struct], lowest: int = 0, highest: int = 0x7FFF) -> int:
        """Returns the highest version from `lowest` to `highest` that both sides know.

        Raises UnsupportedApi if there is no such version.
        """
        if fit := [version for version in self._common(request) if lowest <= version <= highest]:
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
            request: a request that has a reply.
            version: the version to use, or None for the highest version that both sides know.

        Returns:
            The reply, an instance of the API's response class. Bytes after the reply are ignored, as in Kafka's
            clients.

        Raises:
            UnsupportedApi: there is no common version. The connection stays usable.
            DecodeError: the reply does not match its API and version, or the reply belongs to another request, or its
                frame has an impossible length. The connection stays usable only in the first case.
            BrokerClosed, BrokerTimeout: the connection broke off, or no reply arrived in time.
            TlsFailed: the broker ended TLS, for instance because it rejects the sidecar's certificate.
            AuthenticationFailed: the session had to be authenticated again, and the broker refused.
        """
        if version is None:
            version = self.version_for(type(request))
        response, body = APIS[request.KEY].response, await self.ask_undecoded(request, version)
        if len(body) <= MAX_INLINE_BYTES or request.KEY == ApiKey.FETCH:
            return decode_start(response, version, body)[0]
        return (await trio.to_thread.run_sync(decode_start, response, version, body))[0]

    async def ask_undecoded(self, request: Struct, version: int) -> bytes:
        """Sends a request as `ask` does, and returns the undecoded body of the reply."""
        if trio.current_time() >= self._reauthenticate_at:
            await self.authenticate()
        try:
            body = await self._exchange(request, version)
        except (BrokerClosed, BrokerTimeout) as error:
            # Before authentication, a listener that requires SASL replies only to ApiVersions.
            if self._answered or self._authenticate:
                raise
            raise type(error)(f"{error}: it may require SASL", may_require="SASL") from None
        self._answered = True
        return body

    async def ping(self) -> None:
        """Checks that the broker still answers. Raises the exceptions of `ask`."""
        await self.ask(ApiVersionsRequest() if self.speaks(ApiVersionsRequest) else _EMPTY_DESCRIBE_GROUPS, version=0)

    async def wait_closed(self) -> None:
        """Waits until the broker closes the connection. May be cancelled, and called again.

        Raises:
            BrokerClosed: the broker closed the connection.
            DecodeError: the broker sent bytes without a request.
        """
        try:
            await self._receive_more()
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            self._usable = False
            raise BrokerClosed(f"{self.address} closed the connection") from None
        self._usable = False
        raise DecodeError("Response", "", "the broker sent bytes without a request")

    async def negotiate(self) -> None:
        """Asks the broker for its versions, and stores them in `versions`.

        If the versions are unknown, this must be the first request. Raises the exceptions of `ask`, BrokerRefused and
        NotABroker.
        """
        version = _API_VERSIONS_VERSION
        try:
            body = await self._ask_api_versions(version)
        except BrokerClosed as error:
            wants = "" if isinstance(self._stream, trio.SSLStream) else "TLS"
            raise BrokerClosed(
                f"{error}: it may require {wants or 'a certificate'}, or be older than 0.9", wants
            ) from None
        if body is None:
            self.versions = KAFKA_0_9
            return
        if int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:  # A broker reports this error in v0.
            version, body = 0, await self._exchange(_api_versions_request(), 0)
        reply, _ = decode_start(ApiVersionsResponse, version, body)
        if reply.error_code:
            raise BrokerRefused(f"{self.address} answers ApiVersions", reply.error_code)
        self.versions = MappingProxyType({api.api_key: (api.min_version, api.max_version) for api in reply.api_keys})
        if ApiKey.METADATA not in self.versions:
            raise NotABroker(f"{self.address} speaks Kafka without Metadata: is it the listener of a controller?")

    async def authenticate(self) -> None:
        """Authenticates the session if there are credentials. `ask` repeats the authentication before the session
        expires.
        """
        if self._authenticate is None:
            return
        self._reauthenticate_at = math.inf  # Requests of the authentication must not start another authentication.
        started_at = trio.current_time()
        try:
            self._reauthenticate_at = started_at + _REAUTHENTICATE_AFTER * await self._authenticate(self)
        except BaseException:
            self._usable = False
            raise

    async def exchange_token(self, token: bytes) -> bytes:
        """Sends a raw SASL token after SaslHandshake v0 (KIP-43), and returns the broker's token.

        On the wire, the length of a token precedes the token.
        """
        with self._round_trip("a SASL token"):
            await self._stream.send_all(len(token).to_bytes(_LENGTH_BYTES, "big") + token)
            return await self._receive_frame("a SASL token", smallest=0)

    def _common(self, request: type[Struct]) -> range:
        lowest, highest = self.versions.get(request.KEY, (0, -1))
        return range(max(lowest, request.VERSIONS[0]), min(highest, request.VERSIONS[-1]) + 1)

    async def _ask_api_versions(self, version: int) -> bytes | None:
        """Returns the body of the ApiVersions reply, or None if the broker ignores the request.

        Kafka 0.9 ignores ApiVersions and handles the next request. So the client sends a second request after a while,
        and the first reply shows which of the two requests the broker answered. With credentials the second request is
        not sent: a listener with SASL would reject it, and Kafka 0.9 supports none of the SASL mechanisms used here.
        """
        if self._authenticate:
            return await self._exchange(_api_versions_request(), version)
        (correlation_id, frame), second_correlation_id = self._encode_frame(_api_versions_request(), version), None
        with self._round_trip("ApiVersions"):
            await self._stream.send_all(frame)
            with trio.move_on_after(SLOW_API_VERSIONS_SECONDS) as soon:
                await self._receive_more()
            if soon.cancelled_caught:
                second_correlation_id, frame = self._encode_frame(_EMPTY_DESCRIBE_GROUPS, 0)
                await self._stream.send_all(frame)
            reply = await self._receive_frame("ApiVersions")
            if int.from_bytes(reply[:4], "big") == second_correlation_id:
                return None
            if second_correlation_id:
                await self._receive_frame("DescribeGroups")
        return self._reply_body(_api_versions_request(), version, correlation_id, reply)

    async def _exchange(self, request: Struct, version: int) -> bytes:
        """Returns the body of the reply to a request. After a failure the connection is not used again."""
        name, (correlation_id, frame) = api_name(request.KEY), self._encode_frame(request, version)
        with self._round_trip(name):
            await self._stream.send_all(frame)
            reply = await self._receive_frame(name)
        return self._reply_body(request, version, correlation_id, reply)

    def _encode_frame(self, request: Struct, version: int) -> tuple[int, bytes]:
        """Returns the next correlation id, and the frame that carries it."""
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(request.KEY, version, correlation_id, self._client_id)
        return correlation_id, encode_request(request, header)

    def _reply_body(self, request: Struct, version: int, correlation_id: int, reply: bytes) -> bytes:
        """Returns the part of a reply after its header. Raises DecodeError if the reply belongs to another request."""
        name, found = api_name(request.KEY), int.from_bytes(reply[:4], "big", signed=True)
        if found != correlation_id:
            self._usable = False
            raise DecodeError(f"{name}Response v{version}", "correlation_id", f"{found}, asked with {correlation_id}")
        return split_reply(reply, flexible=version >= APIS[request.KEY].response.HEADER_FLEXIBLE)

    @contextmanager
    def _round_trip(self, name: str) -> Iterator[None]:
        """Bounds the time of one exchange on the stream. After a failure the connection is not used again."""
        if not self._usable:
            raise BrokerClosed(f"the connection to {self.address} has failed before {name}")
        self._usable = False
        try:
            with trio.fail_after(self._timeout):
                yield
        except trio.TooSlowError:
            raise BrokerTimeout(f"{self.address} did not answer {name} within {self._timeout:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError) as error:
            if reason := tls_reason(error):  # With TLS 1.3, a rejected certificate shows only now.
                raise TlsFailed(f"{self.address} ended TLS at {name}: {reason}") from None
            raise BrokerClosed(f"{self.address} closed the connection at {name}") from None
        self._usable = True

    async def _receive_frame(self, name: str, smallest: int = _SMALLEST_REPLY) -> bytes:
        head = await self._receive(_LENGTH_BYTES)
        size = int.from_bytes(head, "big", signed=True)
        if head.startswith(_TLS_ALERT):
            raise DecodeError(f"{name}Response", "", "the broker speaks TLS here")
        if head == _HTTP:
            raise DecodeError(f"{name}Response", "", f"{self.address} speaks HTTP; is it an admin port?")
        if not smallest <= size <= self._largest_reply:
            fits = f"{smallest} to {self._largest_reply}"
            raise DecodeError(f"{name}Response", "", f"a frame of {size} bytes, where {fits} are expected")
        return await self._receive(size)

    async def _receive(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._receive_more()
        with memoryview(self._buffer) as view:  # The view avoids a second copy of megabytes of records.
            data = bytes(view[:size])
        del self._buffer[:size]
        return data

    async def _receive_more(self) -> None:
        chunk = await self._stream.receive_some(_CHUNK)
        if not chunk:
            raise EOFError
        self._buffer += chunk


@asynccontextmanager
async def connect(
    host: str,
    port: int,
    *,
    client_id: str = CLIENT_ID,
    timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - it also applies to every later request
    largest_reply: int = LARGEST_REPLY,
    secure: Secure | None = None,
    authenticate: Authenticate | None = None,
    versions: Versions | None = None,
) -> AsyncIterator[KafkaClient]:
    """Connects, negotiates versions and authenticates. Closes the connection at the end of the block.

    Args:
        host: a name or an address.
        port: the TCP port.
        client_id: the name of this client in the broker's logs and quotas.
        timeout: seconds to wait for the connection, and again for each reply.
        largest_reply: the maximum size of a reply in bytes. A longer reply is refused unread.
        secure: puts TLS on the connection, or None for a plain connection.
        authenticate: authenticates the session, or None for no authentication.
        versions: the versions that the broker is known to offer, or None to ask the broker.

    Raises:
        BrokerUnreachable: no connection could be opened.
        TlsFailed, AuthenticationFailed: TLS or the authentication failed.
        BrokerClosed, BrokerTimeout, BrokerRefused, DecodeError: the broker did not report its versions, or the
            authentication broke off.
        NotABroker: the port belongs to a controller.
    """
    address = Address(host, port)
    stream = await _open(address, timeout)
    try:
        if secure:
            stream = await secure(stream, address)
        client = KafkaClient(stream, address, client_id, timeout, largest_reply, authenticate)
        if versions is None:
            await client.negotiate()
        else:
            client.versions = versions
        await client.authenticate()
        yield client
    finally:
        await trio.aclose_forcefully(stream)


async def _open(address: Address, timeout: float) -> trio.abc.Stream:  # noqa: ASYNC109 - as in connect
    try:
        with trio.fail_after(timeout):
            return await trio.open_tcp_stream(*address)
    except trio.TooSlowError:
        raise BrokerUnreachable(f"{address} cannot be reached: no connection within {timeout:g} s") from None
    except (OSError, ValueError, OverflowError) as error:  # ValueError, OverflowError: the name or the port is invalid.
        raise BrokerUnreachable(f"{address} cannot be reached: {connect_failure(error)}") from None


def _api_versions_request() -> ApiVersionsRequest:
    # Brokers do not accept the "+" of a local version (PEP 440) here.
    software_version = installed_version().partition("+")[0]
    return ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=software_version)
