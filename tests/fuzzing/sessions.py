"""Target: both directions of a client's connection, with the real session and the real dispatcher.

An input is a script (`session_scripts`). It runs three times: with a dispatcher that passes everything, with the real
dispatcher, and with the real dispatcher and every chunk cut into pieces.

- No exception is raised and no error is logged. The sidecar only logs a handler's exception.
- If everything passes, each side gets a prefix of the bytes that the other side sent. The session holds the rest.
- The broker gets only requests of the client, in their order, and marked requests of the sidecar.
- Replies leave in the order of the requests.
- The sizes of chunks do not change the bytes that leave the session.
- A closed session holds no bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.headers import REQUEST_HEAD
from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.config.model import DEFAULT_LISTENER, Config
from group_sidecar.proxy.dataplane.commands import Close, Command, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.outcomes import Dispatcher, Origin
from group_sidecar.proxy.dataplane.session import Session, SessionLimits
from group_sidecar.proxy.handlers.api_table import make_reply_builder
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from group_sidecar.proxy.runtime.addresses import Address
from tests.fuzzing import session_scripts
from tests.fuzzing.input_bytes import pieces
from tests.fuzzing.log_lines import logged_errors
from tests.fuzzing.session_scripts import Kind, Script, Step
from tests.fuzzing.target import require
from tests.proxy.fakes import PassthroughDispatcher

EPOCH = 1_700_000_000.0
LIMITS = SessionLimits(1 << 16, 20, 1 << 16)
UPSTREAM = "10.1.1.1:9092"
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"answers": {"exclusive": True, "authorizer": "none"}},
    {"answers": {"exclusive": True, "authorizer": "none"}, "policies": {"group_max_size": {"limit": 1}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": 2}}},
    {"group_metadata_request": True},
    {"mode": "gateway"},
)
REPLACES_REQUESTS = {ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT}
"""Requests from which a policy may remove partitions."""
_SASL = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


class Left(NamedTuple):
    """The bytes that left a session."""

    to_client: bytes
    to_broker: bytes
    reason: CloseReason | None


class Run:
    """One run of a script.

    Attributes:
        from_client: all bytes that the client sent before the session closed.
        from_broker: all bytes that the broker sent before the session closed.
        to_client: all bytes that left for the client.
        to_broker: all bytes that left for the broker.
        reason: why the session closed, or None.
    """

    def __init__(self, dispatcher: Dispatcher, state: BrokerState | None, cut: int) -> None:
        self.session = Session(dispatcher, TrafficCounters(), Origin("10.0.0.1"), LIMITS)
        self._state, self._cut = state, cut
        self.from_client, self.from_broker = bytearray(), bytearray()
        self.to_client, self.to_broker = bytearray(), bytearray()
        self.reason: CloseReason | None = None
        self._now, self._sent, self._replied = 100.0, 0, 0
        self._unread = bytearray()
        """Bytes of the client that the session has not read yet. In the product, the socket's buffer holds them."""
        self._client_ended = False

    def play(self, steps: Sequence[Step]) -> Left:
        """Plays all steps, and closes the session."""
        for step in steps:
            if self.reason is None:
                self._play(step)
        left = Left(bytes(self.to_client), bytes(self.to_broker), self.reason)
        held = self.session.partial_request_bytes, self.session.partial_reply_bytes
        self.held = held if self.reason is None else None
        self.session.close(self._now)
        self._apply_deferred()
        require(self.session.held_bytes == 0, "a closed session keeps bytes")
        return left

    def _play(self, step: Step) -> None:
        match step.kind:
            case Kind.FRAME:
                self._sent += 1
                self._client_sends(_request(step, self._sent))
            case Kind.REPLY:
                self._broker_sends(self._reply(step.data))
            case Kind.CLIENT:
                self._client_sends(step.data)
            case Kind.BROKER:
                self._broker_sends(step.data)
            case Kind.TIME:
                self._now += len(step.data) / 16
            case Kind.EVICT:
                self._take(self.session.evict_held_request(self._now, CloseReason.SHUTDOWN))
            case Kind.CLIENT_ENDS:
                self._client_ended = True
            case Kind.BROKER_ENDS:
                self._take(self.session.upstream_closed(self._now))
        self._read_client()

    def _client_sends(self, data: bytes) -> None:
        if not self._client_ended:
            self._unread += data
            self._read_client()

    def _read_client(self) -> None:
        """Gives the client's bytes to the session for as long as the session reads."""
        while self.reason is None and self._unread and self.session.should_read_client:
            size = self._cut or len(self._unread)
            chunk = bytes(self._unread[:size])
            del self._unread[:size]
            self.from_client += chunk
            self._take(self.session.receive_client(chunk, self._now))
        if self.reason is None and self._client_ended and not self._unread:
            self._take(self.session.client_closed(self._now))

    def _broker_sends(self, data: bytes) -> None:
        for chunk in pieces(data, self._cut):
            if chunk and self.reason is None:  # A socket reports no empty chunk.
                self.from_broker += chunk
                self._take(self.session.receive_upstream(chunk, self._now))

    def _take(self, commands: list[Command]) -> None:
        while True:
            for command in commands:
                require(self.reason is None, "a command after the end")
                if isinstance(command, ToClient):
                    self.to_client += command.data
                elif isinstance(command, ToUpstream):
                    self.to_broker += command.data
                elif isinstance(command, Close):
                    self.reason = command.reason
            if not self.session.paused or self.reason is not None:
                break
            commands = self.session.resume(self._now)
        self._apply_deferred()

    def _apply_deferred(self) -> None:
        if self._state is not None:
            self._state.deferred.apply()

    def _reply(self, rest: bytes) -> bytes:
        """Returns the reply to the oldest request that the broker has received and not answered."""
        start = self._replied
        if len(self.to_broker) < start + REQUEST_HEAD.size:
            return b""
        size, _, _, correlation = REQUEST_HEAD.unpack_from(self.to_broker, start)
        self._replied += 4 + max(size, 0)
        return struct.pack(">ii", 4 + len(rest), correlation) + rest


def check(data: bytes) -> object:
    """Plays one script."""
    with logged_errors() as errors:
        outcome = _check(Script.of(data))
    require(not errors, f"an error is logged: {errors}")
    return outcome


def _check(script: Script) -> object:
    _check_passing(script)
    settings = script.settings % len(SETTINGS)
    whole, left = _play(settings, script.steps, 0)
    _, cut = _play(settings, script.steps, script.cut)
    if not any(step.kind is Kind.EVICT for step in script.steps):
        require(left == cut, f"cuts change what leaves: {left} {cut}")
    if not _has_other_bytes(script):
        _check_requests(bytes(whole.from_client), left.to_broker)
        _check_order(bytes(whole.from_client), left.to_client)
    return left, cut


def _check_passing(script: Script) -> None:
    for cut in (0, script.cut):
        run = Run(PassthroughDispatcher(), None, cut)
        left = run.play(script.steps)
        require(run.from_client.startswith(left.to_broker), "the broker gets other bytes")
        require(run.from_broker.startswith(left.to_client), "the client gets other bytes")
        if run.held is not None:
            missing = len(run.from_client) - len(left.to_broker), len(run.from_broker) - len(left.to_client)
            require(missing == run.held, f"bytes are missing: {missing} of {run.held}")


def _play(settings: int, steps: Sequence[Step], cut: int) -> tuple[Run, Left]:
    config = _config(settings)
    advertise = _advertised if config.mode == "gateway" else None
    state = BrokerState(Address("10.1.1.1", 9092), config, TrafficCounters(), lambda fact: None, advertise, EPOCH)
    state.learn_initial_groups([])
    dispatcher = BrokerDispatcher(state, ListenerCounters(DEFAULT_LISTENER), make_reply_builder(state))
    run = Run(dispatcher, state, cut)
    return run, run.play(steps)


def _advertised(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"gateway-{node_id % 3}", 9_000 + node_id % 3


@cache
def _config(settings: int) -> Config:
    return Config.model_validate({"listen": "127.0.0.1:9092", "upstream": UPSTREAM, **SETTINGS[settings]})


def _request(step: Step, correlation: int) -> bytes:
    """Returns a request with a correct header."""
    api = APIS.get(ApiKey(step.key)) if step.key in {*ApiKey} else None
    tags = b"\0" if api is not None and api.flexible(step.version) else b""
    head = struct.pack(">hhih", step.key, step.version, correlation, 1) + b"c" + tags
    return (len(head) + len(step.data)).to_bytes(4, "big") + head + step.data


def _has_other_bytes(script: Script) -> bool:
    """Whether the client may send something that is not a request: TLS, SASL tokens, or any bytes."""
    return any(step.kind is Kind.CLIENT or (step.kind is Kind.FRAME and step.key in _SASL) for step in script.steps)


def _frames(data: bytes) -> Iterator[bytes]:
    """Yields the whole frames at the start of some bytes."""
    at = 0
    while len(data) >= at + 4 and len(data) >= (end := at + 4 + int.from_bytes(data[at : at + 4], "big")):
        yield data[at:end]
        at = end


def _check_requests(sent: bytes, received: bytes) -> None:
    requests = iter(_frames(sent))
    for frame in _frames(received):
        _, key, _, correlation = REQUEST_HEAD.unpack_from(frame)
        if correlation < 0:
            continue  # A request of the sidecar. Clients of this target count up from 1.
        wanted = next((each for each in requests if REQUEST_HEAD.unpack_from(each)[3] == correlation), None)
        require(wanted is not None, "a request that no client sent, or out of order")
        require(frame == wanted or key in REPLACES_REQUESTS, "the broker gets a changed request")


def _check_order(sent: bytes, received: bytes) -> None:
    correlations = (REQUEST_HEAD.unpack_from(frame)[3] for frame in _frames(sent))
    for frame in _frames(received):
        correlation = int.from_bytes(frame[4:8], "big", signed=True)
        require(any(each == correlation for each in correlations), "a reply out of order")


def seeds() -> Iterator[bytes]:
    """See `session_scripts`."""
    return session_scripts.seeds(len(SETTINGS))
