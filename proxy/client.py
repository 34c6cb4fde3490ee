"""A small Kafka client: one connection to one broker, one question at a time.

Owns: connecting, negotiating versions, matching a reply to its question, when a session has to be authenticated, and
saying in one line what went wrong. Must not know: what the questions mean, nor which are worth asking again; it
never retries. Nor how a stream is secured or a session authenticated (`credentials`). Client traffic never passes here.
It has more than 400 lines because each way to fail has its own exception, and its own words for people.
"""

import math
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version as installed_version
from itertools import count
from types import MappingProxyType
from typing import Any

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.registry import APIS, ApiKey, api_name
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.proxy.additions import Versions
from group_sidecar.proxy.addresses import Address

CLIENT_ID = "kafka-group-sidecar"  # The distribution's name too.
DEFAULT_TIMEOUT = 10.0
"""Seconds to wait for a connection, and for each reply."""
LARGEST_REPLY = 64 * 1024 * 1024
"""Bytes; Metadata of 100,000 partitions takes about a tenth of it."""
LARGEST_AT_ONCE = 16_384
"""Bytes of a reply beyond which it is decoded, or compared with the sidecar's own, in a thread: the data path shares
this one. A Fetch reply never is: nearly all of it is records, which are not decoded."""
SOON = 0.5
"""Seconds until a broker that has not answered ApiVersions is asked what Kafka 0.9 would answer."""

_LENGTH_BYTES, _SMALLEST_REPLY = 4, 4  # A reply has a correlation id at least.
_RENEW_AFTER = 0.85  # Of a session's lifetime, as Kafka's own clients do (KIP-368).
_CHUNK = 65536
_TLS_ALERT = b"\x15\x03"
_HTTP = b"HTTP"
_API_VERSIONS = 3  # v3 says who asks (KIP-511); v4 differs only in what it says of features.
_ABOUT_NOBODY = DescribeGroupsRequest(groups=())  # The shortest question that Kafka 0.9 knows.


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
    """The broker answered with an error; `code` is Kafka's."""

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
        versions: what the broker speaks.
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
        self.versions: Versions = MappingProxyType({})
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
        response, body = APIS[request.KEY].response, await self.ask_undecoded(request, version)
        if len(body) <= LARGEST_AT_ONCE or request.KEY == ApiKey.FETCH:
            return decode_start(response, version, body)[0]
        return (await trio.to_thread.run_sync(decode_start, response, version, body))[0]

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

    async def ping(self) -> None:
        """Asks whether the broker is still there. Raises what `ask` does."""
        await self.ask(ApiVersionsRequest() if self.speaks(ApiVersionsRequest) else _ABOUT_NOBODY, version=0)

    async def until_closed(self) -> None:
        """Waits until the broker closes the connection; may be cancelled, and asked again then.

        Raises:
            BrokerClosed: it has closed it.
            DecodeError: it sends what nobody asked for.
        """
        try:
            await self._receive_more()
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            self._usable = False
            raise BrokerClosed(f"{self.address} closed the connection") from None
        self._usable = False
        raise DecodeError("Response", "", "the broker sends what nobody asked for")

    async def negotiate(self) -> None:
        """Learns `versions`; to be called before any question. Raises what `ask` does, and BrokerRefused."""
        version = _API_VERSIONS
        try:
            body = await self._say_hello(version)
        except BrokerClosed as error:
            wants = "" if isinstance(self._stream, trio.SSLStream) else "TLS"
            raise BrokerClosed(
                f"{error}: it may want {wants or 'a certificate'}, or be older than 0.9", wants
            ) from None
        if body is None:
            self.versions = KAFKA_0_9
            return
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
        with self._trip("a SASL token"):
            await self._stream.send_all(len(token).to_bytes(_LENGTH_BYTES, "big") + token)
            return await self._receive_frame("a SASL token", smallest=0)

    def _common(self, request: type[Struct]) -> range:
        lowest, highest = self.versions.get(request.KEY, (0, -1))
        return range(max(lowest, request.VERSIONS[0]), min(highest, request.VERSIONS[-1]) + 1)

    async def _say_hello(self, version: int) -> bytes | None:
        """The body of the reply to ApiVersions; None where the broker passes the question over.

        Kafka 0.9 does, and goes on with what comes next: so the first reply tells. A listener that wants SASL would
        take a second question amiss, and none of 0.9 takes credentials as they are sent here.
        """
        if self._authenticate:
            return await self._exchange(_hello(), version)
        (number, frame), second = self._framed(_hello(), version), None
        with self._trip("ApiVersions"):
            await self._stream.send_all(frame)
            with trio.move_on_after(SOON) as soon:
                await self._receive_more()
            if soon.cancelled_caught:
                second, frame = self._framed(_ABOUT_NOBODY, 0)
                await self._stream.send_all(frame)
            reply = await self._receive_frame("ApiVersions")
            if int.from_bytes(reply[:4], "big") == second:
                return None
            if second:
                await self._receive_frame("DescribeGroups")
        return self._body(_hello(), version, number, reply)

    async def _exchange(self, request: Struct, version: int) -> bytes:
        """The body of the reply to a request. A connection on which this fails is not used again."""
        name, (number, frame) = api_name(request.KEY), self._framed(request, version)
        with self._trip(name):
            await self._stream.send_all(frame)
            reply = await self._receive_frame(name)
        return self._body(request, version, number, reply)

    def _framed(self, request: Struct, version: int) -> tuple[int, bytes]:
        """The next correlation id, and the frame that carries it."""
        number = next(self._numbers)
        return number, encode_request(request, RequestHeader(request.KEY, version, number, self._client_id))

    def _body(self, request: Struct, version: int, number: int, reply: bytes) -> bytes:
        """What stands behind a reply's header. Raises DecodeError where it is another request's."""
        name, found = api_name(request.KEY), int.from_bytes(reply[:4], "big", signed=True)
        if found != number:
            self._usable = False
            raise DecodeError(f"{name}Response v{version}", "correlation_id", f"{found}, asked with {number}")
        return split_reply(reply, flexible=version >= APIS[request.KEY].response.HEADER_FLEXIBLE)

    @contextmanager
    def _trip(self, name: str) -> Iterator[None]:
        """There and back on the stream, within the time; a connection on which this fails is not used again."""
        if not self._usable:
            raise BrokerClosed(f"the connection to {self.address} has failed before {name}")
        self._usable = False
        try:
            with trio.fail_after(self._timeout):
                yield
        except trio.TooSlowError:
            raise BrokerSilent(f"{self.address} did not answer {name} within {self._timeout:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError) as error:
            if reason := tls_reason(error):  # TLS 1.3 says only now that it wants another certificate.
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
        with memoryview(self._buffer) as view:  # Megabytes of records are copied once, not twice.
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
    timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - also of every question to come
    largest_reply: int = LARGEST_REPLY,
    secure: Secure | None = None,
    authenticate: Authenticate | None = None,
    versions: Versions | None = None,
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
        versions: what the broker is known to speak; without it, it is asked.

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
        if versions is None:
            await client.negotiate()
        else:
            client.versions = versions
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
    software_version = installed_version(CLIENT_ID).partition("+")[0]
    return ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=software_version)
