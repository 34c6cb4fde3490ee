"""Helpers that send bytes to a session and read the commands that the session returns.

`SessionDriver` drives a session with a clock that the test sets. `ScriptedDispatcher` is a dispatcher whose outcomes
the test sets. `Line` drives a session that has a real dispatcher, with messages instead of bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request, split_reply
from group_sidecar.codecs.messages.join_group import (
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from group_sidecar.codecs.schema import Struct, decode
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.client_principals import ANONYMOUS, Principal
from group_sidecar.proxy.config.model import DEFAULT_LISTENER, Config
from group_sidecar.proxy.dataplane.commands import Command, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import Dispatcher, Origin, Reply, RequestOutcome
from group_sidecar.proxy.dataplane.session import Session, SessionLimits
from group_sidecar.proxy.handlers.api_table import make_reply_builder
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.fakes import MAX_IN_FLIGHT, MAX_KEPT_BYTES, PassthroughDispatcher

ANONYMOUS_CLIENT = Principal(ANONYMOUS, listener=DEFAULT_LISTENER)
"""The principal of a client that does not authenticate, at a broker's only listener."""
EPOCH = 1_700_000_000.0
"""The time at which a session's clock reads 0, in seconds since 1970-01-01 UTC."""
LARGEST_FRAME = 1_000_000
SESSION_LIMITS = SessionLimits(LARGEST_FRAME, MAX_IN_FLIGHT, MAX_KEPT_BYTES)


def framed(payload: bytes) -> bytes:
    """The payload preceded by its length in four bytes: a frame, or a SASL token."""
    return len(payload).to_bytes(4, "big") + payload


def request(key: int, correlation: int, *, version: int = 0, client_id: str = "c", body: bytes = b"") -> bytes:
    """A request frame with a v1 header."""
    head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    head += correlation.to_bytes(4, "big", signed=True) + len(client_id).to_bytes(2, "big") + client_id.encode()
    return framed(head + body)


def reply(correlation: int, body: bytes = b"") -> bytes:
    """A reply frame with a v0 header."""
    return framed(correlation.to_bytes(4, "big", signed=True) + body)


def pieces(data: bytes, size: int) -> list[bytes]:
    """Cuts data into pieces of `size` bytes; 0 for one piece."""
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def to_client(commands: Sequence[Command]) -> bytes:
    """All bytes that the commands send to the client."""
    return b"".join(command.data for command in commands if isinstance(command, ToClient))


def to_upstream(commands: Sequence[Command]) -> bytes:
    """All bytes that the commands send to the broker."""
    return b"".join(command.data for command in commands if isinstance(command, ToUpstream))


class ScriptedDispatcher(PassthroughDispatcher):
    """A dispatcher with outcomes that the test sets. Records the frames that it receives.

    Attributes:
        notes: by API key, the result of `classify`; None for all other API keys.
        outcomes: by API key, the outcome of a request that is held.
        replies: by note, the result of `reply`; an empty `Reply()` for all other notes.
        unread: the notes whose replies pass without a call of `reply`.
        shown: all received requests and replies in order, as ("request" or the note, frame).
        lost: the notes of each call of `gone`.
    """

    def __init__(self) -> None:
        self.notes: dict[int, Any] = {}
        self.outcomes: dict[int, RequestOutcome] = {}
        self.replies: dict[Any, Reply] = {}
        self.unread: set[Any] = set()
        self.shown: list[tuple[Any, bytes]] = []
        self.lost: list[list[Any]] = []

    def takes(self, key: int, how: RequestOutcome) -> None:
        """Holds all requests of an API, and sets their outcome."""
        self.notes[key] = FrameAction.HOLD
        self.outcomes[key] = how

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return self.notes.get(api_key)

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        self.shown.append(("request", frame))
        return self.outcomes[int.from_bytes(frame[:2], "big")]

    def classify_reply(self, note: Any, size: int, now: float) -> FrameAction:
        return FrameAction.PASS if note in self.unread else FrameAction.HOLD

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        self.shown.append((note, frame))
        return self.replies.get(note, Reply())

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        self.lost.append(list(notes))


class SessionDriver:
    """A session and its clock. The clock advances only when a test sets `now`, in seconds."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        traffic: TrafficCounters | None = None,
        client_host: str = "10.0.0.1",
        limits: SessionLimits = SESSION_LIMITS,
    ) -> None:
        self.traffic = traffic or TrafficCounters()
        self.session = Session(dispatcher, self.traffic, Origin(client_host), limits)
        self.now = 100.0

    def client(self, *data: bytes) -> list[Command]:
        """The client sends all data at once. Returns the session's commands."""
        return self.session.receive_client(b"".join(data), self.now)

    def upstream(self, *data: bytes) -> list[Command]:
        """The broker sends all data at once. Returns the session's commands."""
        return self.session.receive_upstream(b"".join(data), self.now)

    def client_closed(self) -> list[Command]:
        return self.session.client_closed(self.now)

    def upstream_closed(self) -> list[Command]:
        return self.session.upstream_closed(self.now)


class Line(SessionDriver):
    """A client's session with the real dispatcher of a broker. Its methods take messages instead of bytes.

    Attributes:
        counters: the counters of the listener, unless another dispatcher is given.
    """

    def __init__(
        self,
        state: BrokerState,
        client_id: str | None = "client",
        client_host: str = "10.0.0.1",
        *,
        dispatcher: BrokerDispatcher | None = None,
    ) -> None:
        self.counters = ListenerCounters(DEFAULT_LISTENER)
        super().__init__(dispatcher or new_dispatcher(state, self.counters), state.traffic, client_host)
        self._state = state
        self._client_id = client_id
        self._correlation = 0

    def client(self, *data: bytes) -> list[Command]:
        """See SessionDriver. Also does what the event loop does after a socket."""
        return self._end_of_round(super().client(*data))

    def upstream(self, *data: bytes) -> list[Command]:
        """See SessionDriver. Also does what the event loop does after a socket."""
        return self._end_of_round(super().upstream(*data))

    def _end_of_round(self, commands: list[Command]) -> list[Command]:
        """Gives the session its turns, and has the deferred replies decoded."""
        while self.session.paused:
            commands += self.session.resume(self.now)
        self._state.deferred.apply()
        return commands

    def frame(self, message: Struct, version: int) -> bytes:
        """The frame of the client's next request. Advances the correlation id."""
        self._correlation += 1
        return encode_request(message, RequestHeader(message.KEY, version, self._correlation, self._client_id))

    def sends(self, message: Struct, version: int) -> list[Command]:
        """The client sends a request."""
        return self.client(self.frame(message, version))

    def broker_replies(self, message: Struct, version: int, correlation: int | None = None) -> list[Command]:
        """The broker sends a reply. Without `correlation`, it is the reply to the last request."""
        return self.upstream(encode_reply(message, version, self._correlation if correlation is None else correlation))

    def exchange(self, message: Struct, answer: Struct, version: int) -> None:
        """Exchanges a request and its reply. Asserts that the session forwards both unchanged."""
        frame = self.frame(message, version)
        assert self.client(frame) == [ToUpstream(frame)]
        back = encode_reply(answer, version, self._correlation)
        assert self.upstream(back) == [ToClient(back)]

    def reads_reply(self, commands: Sequence[Command], message: Struct, version: int) -> Any:
        """Decodes the reply to the last request from the commands.

        Asserts that the commands send this one frame to the client and nothing to the broker.
        """
        frame = to_client(commands)
        assert to_upstream(commands) == b""
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big", signed=True) == self._correlation
        answer = APIS[message.KEY].response
        return decode(answer, version, split_reply(frame[4:], version >= answer.HEADER_FLEXIBLE))


def broker_state(
    facts: Callable[[Fact], None] = lambda fact: None, advertise: Advertise | None = None, **settings: Any
) -> BrokerState:
    """The state of a broker before any traffic. `settings` are added to the configuration."""
    config = Config.model_validate({"listen": "127.0.0.1:9092", "upstream": "10.1.1.1:9092", **settings})
    return BrokerState(Address("10.1.1.1", 9092), config, TrafficCounters(), facts, advertise, EPOCH)


def access_of(state: BrokerState) -> ClientAccess:
    """The access of the clients of a broker's only listener."""
    return state.accesses[DEFAULT_LISTENER]


def new_dispatcher(state: BrokerState, counters: ListenerCounters | None = None) -> BrokerDispatcher:
    """A dispatcher for the clients of a broker's only listener."""
    return BrokerDispatcher(state, counters or ListenerCounters(DEFAULT_LISTENER), make_reply_builder(state))


def complete_state(facts: Callable[[Fact], None] = lambda fact: None, **settings: Any) -> BrokerState:
    """The state of a broker that had no groups at first contact, and whose clients all use this sidecar."""
    state = broker_state(facts, **{"answers": {"exclusive": True, "authorizer": "none"}, **settings})
    state.learn_initial_groups([])
    return state


def confirm(state: BrokerState, existing: Mapping[UUID, str], at: float = EPOCH + 100.0) -> None:
    """The broker confirms the topics in `existing` by id, and no other topics that are due at `at`."""
    state.topic_ids.are_confirmed(existing.keys())
    state.topic_ids.are_fresh(at)
    due = state.topic_ids.due(at)
    state.topic_ids.learn(due, existing)


def joining(group: str = "g", member_id: str = "") -> JoinGroupRequest:
    """The JoinGroup request of a consumer."""
    protocols = (JoinGroupProtocol(name="range", metadata=b"subscription"),)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
    )


def stable_group(state: BrokerState, *members: str, group: str = "g", generation: int = 1) -> list[Line]:
    """Makes a group of these members Stable, with the first as leader. Returns one `Line` per member."""
    lines = [Line(state, client_id=member) for member in members]
    for line, member in zip(lines, members, strict=True):
        known = state.copy.manager.view(group, EPOCH + line.now).members
        line.sends(joining(group, member if member in {m.member_id for m in known} else ""), 3)
    roster = tuple(JoinGroupMember(member_id=member, metadata=b"subscription") for member in members)
    for line, member in zip(lines, members, strict=True):
        accepted = JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_name="range",
            leader=members[0],
            member_id=member,
            members=roster if member == members[0] else (),
        )
        line.broker_replies(accepted, 3)
    assignments = tuple(SyncGroupRequestAssignment(member_id=m, assignment=b"for " + m.encode()) for m in members)
    for line, member in zip(lines, members, strict=True):
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            assignments=assignments if member == members[0] else (),
        )
        line.exchange(sync, SyncGroupResponse(error_code=0, assignment=b"for " + member.encode()), 3)
    return lines
