"""A broker that sends the replies that a test chooses, on memory streams or on a real port.

The broker handles framing and ApiVersions, and finds the answer for each type of request.
"""

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from trio.testing import memory_stream_pair

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader, decode_request_header, encode_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.codecs.schema import Struct, decode
from group_sidecar.proxy.runtime.addresses import Address

MAX_FRAME = 104_857_600
"""Kafka's default of `socket.request.max.bytes`. A broker closes a connection with a longer request."""


@dataclass(frozen=True)
class RawReply:
    """Sent instead of a reply: these bytes, preceded by their length."""

    data: bytes


class HangUp(Exception):
    """Raised by an answer: the broker closes the connection."""


class NoReply(Exception):
    """Raised by an answer: the broker sends nothing more and keeps the connection open."""


class SkipRequest(Exception):
    """Raised by an answer: the broker sends no reply and handles the next request."""


Said = Struct | RawReply
Answer = Said | Exception | Callable[[Any, int], Said]
"""A reply, an exception to raise, or a function that returns a reply to a request and its version."""


class ScriptedBroker:
    """Answers requests by type. Closes the connection at a request without an answer, as brokers do.

    Attributes:
        answers: the answer to each type of request.
        versions: the versions that ApiVersions offers. A type of `answers` without an entry has all its known versions.
        asked: every request except ApiVersions, with its version, in order.
        clients: the client id of every request.
        streams: all connections so far, on the broker's side.
    """

    def __init__(
        self,
        answers: Mapping[type[Struct], Answer] | None = None,
        versions: Mapping[type[Struct], tuple[int, int]] | None = None,
    ) -> None:
        self.answers: dict[type[Struct], Answer] = {ApiVersionsRequest: self._offer, **(answers or {})}
        self.versions = dict(versions or {})
        self.asked: list[tuple[Struct, int]] = []
        self.clients: list[str | None] = []
        self.streams: list[trio.abc.Stream] = []

    def requests(self, kind: type[Struct]) -> list[Any]:
        """All requests of one type so far."""
        return [request for request, _ in self.asked if type(request) is kind]

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serves one connection until it ends."""
        self.streams.append(stream)
        try:
            async with stream:
                while True:
                    size = int.from_bytes(await _exactly(stream, 4), "big")
                    if size > MAX_FRAME:
                        raise HangUp
                    frame = await _exactly(stream, size)
                    await stream.send_all(await self._reply(frame))
        except (HangUp, EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def hang_up(self) -> None:
        """Closes the newest connection."""
        await trio.aclose_forcefully(self.streams[-1])

    async def _reply(self, frame: bytes) -> bytes:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        kind = APIS[key].request
        assert kind is not None
        header, body = decode_request_header(frame, flexible=version >= kind.FLEXIBLE)
        request = decode(kind, version, body)
        self.clients.append(header.client_id)
        if kind is not ApiVersionsRequest:
            self.asked.append((request, version))
        try:
            return self._said(request, header)
        except SkipRequest:
            return b""
        except NoReply:
            await trio.sleep_forever()
            raise

    def _said(self, request: Struct, header: RequestHeader) -> bytes:
        answer = self.answers.get(type(request), HangUp())
        if isinstance(answer, Exception):
            raise answer
        reply = answer(request, header.api_version) if callable(answer) else answer
        if isinstance(reply, RawReply):
            return len(reply.data).to_bytes(4, "big") + reply.data
        if isinstance(reply, ApiVersionsResponse) and reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return encode_reply(reply, 0, header.correlation_id)
        return encode_reply(reply, header.api_version, header.correlation_id)

    def _offer(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        kinds: tuple[type[Struct], ...] = (MetadataRequest, *self.answers)  # Every broker offers Metadata.
        described = {kind: (kind.VERSIONS[0], kind.VERSIONS[-1]) for kind in kinds}
        offered = {**described, **self.versions}
        lowest, highest = offered[ApiVersionsRequest]
        return ApiVersionsResponse(
            error_code=0 if lowest <= version <= highest else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=tuple(
                ApiVersion(api_key=kind.KEY, min_version=first, max_version=last)
                for kind, (first, last) in offered.items()
            ),
        )


class MemoryNetwork:
    """Replaces `trio.open_tcp_stream` in tests: connects to brokers by address over memory streams.

    Attributes:
        brokers: the broker at each address. At an address with None, a connection attempt never ends.
        attempts: the addresses of all connection attempts, in order.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.brokers: dict[Address, ScriptedBroker | None] = {}
        self.attempts: list[Address] = []
        self._nursery = nursery

    async def open_tcp_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Connects to the broker at an address.

        Raises:
            OSError: no broker has this address.
        """
        address = Address(host, port)
        self.attempts.append(address)
        await trio.lowlevel.checkpoint()
        if address not in self.brokers:
            raise OSError(errno.ECONNREFUSED, "all attempts to connect failed")
        broker = self.brokers[address]
        if broker is None:
            await trio.sleep_forever()
        assert broker is not None
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(broker.serve, theirs)
        return ours


@contextmanager
def listening(*brokers: ScriptedBroker) -> Iterator[list[Address]]:
    """Runs brokers on free ports of the loopback interface, in another thread. Yields their addresses."""
    addresses: list[Address] = []
    ready = threading.Event()
    ended: list[Callable[[], None]] = []

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            token = trio.lowlevel.current_trio_token()
            ended.append(partial(token.run_sync_soon, nursery.cancel_scope.cancel))
            for broker in brokers:
                listeners = await nursery.start(partial(trio.serve_tcp, broker.serve, 0, host="127.0.0.1"))
                addresses.append(Address(*listeners[0].socket.getsockname()))
            ready.set()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield addresses
    finally:
        ended[0]()
        thread.join(10)


async def _exactly(stream: trio.abc.Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = await stream.receive_some(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
