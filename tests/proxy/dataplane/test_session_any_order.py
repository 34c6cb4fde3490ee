"""Any mix of requests, cut anywhere on both sides, gives the same bytes in the same order, each once.

The model is a list. For each kind of request, it has the bytes for the broker and the bytes for the client. The
dispatcher handles the requests by kind. The session has to produce the bytes of the model for any chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import cycle
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from group_sidecar.proxy.dataplane.commands import ShutUpstream
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, Origin, Pass, Reply, RequestOutcome
from tests.proxy.dataplane.playbook import SessionDriver, reply, request, to_client, to_upstream
from tests.proxy.fakes import Named, PassthroughDispatcher


class Kind(IntEnum):
    """How a request is handled. The value is its API key."""

    SILENT = 0
    """Produce with acks=0."""
    PASSED = 1
    NOTED = 2
    REWRITTEN = 3
    UNREAD = 4
    BEGUN = 5
    TAKEN = 6
    TAKEN_AND_NOTED = 7
    REPLACED = 8
    ANSWERED = 9
    ANSWERED_NOT = 10
    ANSWERED_NOT_AND_NOTED = 11
    INJECTED = 12
    INJECTED_IN_TURN = 13


@dataclass(frozen=True)
class PlannedRequest:
    """One request of a client. `request_size` and `reply_size` are the sizes of the bodies of request and reply."""

    kind: Kind
    correlation: int
    request_size: int
    reply_size: int

    @property
    def frame(self) -> bytes:
        """The bytes that the client sends. A Produce v0 begins with acks=0."""
        return request(self.kind, self.correlation, body=b"\0\0" + b"q" * self.request_size)

    @property
    def forwarded(self) -> bytes:
        """The bytes that the broker must get."""
        match self.kind:
            case Kind.REPLACED:
                return replacement(self.correlation)
            case Kind.INJECTED | Kind.INJECTED_IN_TURN:
                return injection(self.correlation)
            case Kind.ANSWERED:
                return b""
        return self.frame

    @property
    def answered(self) -> bytes:
        """The bytes that the client must get."""
        match self.kind:
            case Kind.SILENT:
                return b""
            case Kind.REWRITTEN | Kind.ANSWERED | Kind.INJECTED | Kind.INJECTED_IN_TURN:
                return answer(self.correlation)
        return reply(self.correlation, b"t" * self.reply_size)

    @property
    def shown(self) -> list[Any]:
        """The notes of the replies that the dispatcher must get."""
        match self.kind:
            case Kind.NOTED | Kind.REWRITTEN | Kind.BEGUN | Kind.TAKEN_AND_NOTED | Kind.REPLACED:
                return [self.kind]
            case Kind.ANSWERED_NOT_AND_NOTED:
                return [self.kind]
            case Kind.INJECTED | Kind.INJECTED_IN_TURN:
                return [~self.correlation]
        return []


def replacement(correlation: int) -> bytes:
    return request(Kind.REPLACED, correlation, body=b"other")


def injection(correlation: int) -> bytes:
    return request(99, ~correlation, body=b"ours")


def answer(correlation: int) -> bytes:
    return reply(correlation, b"from here")


class AnyOrderDispatcher(PassthroughDispatcher):
    """A dispatcher that handles each request by its kind."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.lost: list[Any] = []

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        if api_key >= Kind.TAKEN:
            return FrameAction.HOLD
        return Kind(api_key) if api_key >= Kind.NOTED else None

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        kind, correlation = Kind(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[4:8], "big")
        injected = AnswerInOrder(lambda now: answer(correlation), ((injection(correlation), Named(~correlation)),))
        outcomes: dict[Kind, RequestOutcome] = {
            Kind.TAKEN: Pass(),
            Kind.TAKEN_AND_NOTED: Forward(Named(kind)),
            Kind.REPLACED: Forward(Named(kind), replacement(correlation)),
            Kind.ANSWERED: AnswerInOrder(lambda now: answer(correlation)),
            Kind.ANSWERED_NOT: AnswerInOrder(lambda now: Pass()),
            Kind.ANSWERED_NOT_AND_NOTED: AnswerInOrder(lambda now: Forward(Named(kind))),
            Kind.INJECTED: injected,
            Kind.INJECTED_IN_TURN: AnswerInOrder(lambda now: injected),
        }
        return outcomes[kind]

    def classify_reply(self, note: Any, size: int, now: float) -> FrameAction:
        return {Kind.UNREAD: FrameAction.PASS, Kind.BEGUN: FrameAction.PEEK}.get(note, FrameAction.HOLD)

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        self.shown.append(note)
        return Reply(answer(int.from_bytes(frame[:4], "big")) if note == Kind.REWRITTEN else None)

    def defer_reply_head(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        self.shown.append(note)
        assert len(head) >= 4, "the head of a reply must contain the correlation id"

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        self.lost.append(list(notes))


class Broker:
    """A broker that answers complete frames in order."""

    def __init__(self, conversation: list[PlannedRequest]) -> None:
        self._reply_sizes = {planned.correlation: planned.reply_size for planned in conversation}
        self._unread = b""
        self.received = b""
        self.to_send = b""

    def feed(self, data: bytes) -> None:
        self.received += data
        self._unread += data
        while len(self._unread) >= 4 and len(self._unread) >= (end := 4 + int.from_bytes(self._unread[:4], "big")):
            frame, self._unread = self._unread[4:end], self._unread[end:]
            correlation = int.from_bytes(frame[4:8], "big", signed=True)
            if frame[:2] != b"\0\0":
                self.to_send += reply(correlation, b"t" * self._reply_sizes.get(correlation, 0))


@st.composite
def conversations(draw: st.DrawFn) -> list[PlannedRequest]:
    """Draws requests of all kinds, some with long bodies."""
    sizes = st.integers(0, 20) | st.sampled_from((0, 300, 2000))
    some = draw(st.lists(st.tuples(st.sampled_from(Kind), sizes, sizes), max_size=12))
    return [
        PlannedRequest(kind, number, request_size, reply_size)
        for number, (kind, request_size, reply_size) in enumerate(some)
    ]


cuts = st.lists(st.integers(1, 12) | st.integers(1, 3000), min_size=1, max_size=6)
turns = st.lists(st.booleans(), min_size=1, max_size=6).filter(any)


@given(conversations(), cuts, cuts, turns)
@example([PlannedRequest(Kind.PASSED, 0, 0, 9), PlannedRequest(Kind.ANSWERED, 1, 0, 0)], [3000], [3], [True, False])
@example([PlannedRequest(kind, number, 5, 5) for number, kind in enumerate(Kind)], [1], [1], [True])
@example(
    [PlannedRequest(kind, number, 5, 5) for number, kind in enumerate(reversed(Kind))], [3000], [3000], [True, False]
)
def test_nothing_is_lost_doubled_or_out_of_order(
    conversation: list[PlannedRequest], client_cuts: list[int], broker_cuts: list[int], schedule: list[bool]
) -> None:
    """For any mix of requests and chunks, both sides get every byte once and in order, and the dispatcher every noted
    reply.
    """
    dispatcher = AnyOrderDispatcher()
    play, broker = SessionDriver(dispatcher), Broker(conversation)
    to_send, received = b"".join(planned.frame for planned in conversation), b""
    client_sizes, broker_sizes = cycle(client_cuts), cycle(broker_cuts)
    for of_client in cycle(schedule):
        if not (to_send or broker.to_send):
            break
        if to_send and play.session.should_read_client and (of_client or not broker.to_send):
            size = next(client_sizes)
            commands, to_send = play.client(to_send[:size]), to_send[size:]
        else:
            assert broker.to_send, "the session does not read the client, although no reply is pending"
            size = next(broker_sizes)
            commands, broker.to_send = play.upstream(broker.to_send[:size]), broker.to_send[size:]
        received += to_client(commands)
        broker.feed(to_upstream(commands))
        while play.session.paused:
            commands = play.session.resume(play.now)
            received += to_client(commands)
            broker.feed(to_upstream(commands))

    assert broker.received == b"".join(planned.forwarded for planned in conversation)
    assert received == b"".join(planned.answered for planned in conversation)
    assert dispatcher.shown == [note for planned in conversation for note in planned.shown]
    assert play.session.held_bytes == 0
    assert play.session.should_read_client
    assert play.client_closed() == [ShutUpstream()]
    play.upstream_closed()
    assert dispatcher.lost == [[]]
