"""All ways of forwarding do the same, for any bytes of a client and a broker, in any pieces.

There are four ways: `FastPath` with frames that are sent together, `FastPath` with frames that are sent one by one,
`Connection` alone, and `Connection` with a session that cuts all chunks with `FrameWalker`.
"""

import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from select import EPOLLHUP, EPOLLIN, EPOLLOUT, POLLIN, poll
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.dataplane.buffer_budget import BufferBudget
from group_sidecar.proxy.dataplane.connection import Connection, SharedResources
from group_sidecar.proxy.dataplane.connections import NO_BUDGET
from group_sidecar.proxy.dataplane.connections_per_address import ConnectionsPerAddress
from group_sidecar.proxy.dataplane.delivered_closes import DeliveredCloses
from group_sidecar.proxy.dataplane.endpoint_socket import SMALL_READ_BYTES, EndpointSocket, SplicePipe
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, HangUp, Origin, Pass, Reply, RequestOutcome
from group_sidecar.proxy.dataplane.poller import MAX_EVENTS_PER_ROUND, Poller
from group_sidecar.proxy.dataplane.session import Session, SessionLimits
from tests.proxy.dataplane.playbook import framed, reply, request
from tests.proxy.fakes import MAX_IN_FLIGHT, MAX_KEPT_BYTES, Named, PassthroughDispatcher, tcp_pair

fast_path = pytest.importorskip(
    "group_sidecar.proxy.dataplane.fast_path"
)  # test_connections fails if the fast path has to be compiled and is not.

PRODUCE, FETCH, SHOWN, SHAKEN = map(int, (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE))
PASSED, NOTED, TAKEN, ANSWERED, INJECTED, HUNG_UP, FAILING = 3, 10, 11, 15, 16, 98, 99
KEYS = (PRODUCE, FETCH, SHOWN, SHAKEN, PASSED, NOTED, TAKEN, ANSWERED, INJECTED, HUNG_UP, FAILING)
LARGEST = 1_000_000
SECONDS = 0.3
"""Seconds between two steps. After some steps, a Fetch reply may be read again."""


class Dispatcher(PassthroughDispatcher):
    """A dispatcher whose outcome depends on the API key. Records all calls."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        self.asked.append(("classify", api_key, api_version, size))
        if api_key == FAILING:
            raise RuntimeError("a dispatcher that fails")
        if api_key == HUNG_UP:
            return HangUp(CloseReason.MALFORMED_REQUEST)
        if api_key in (TAKEN, ANSWERED, INJECTED, SHAKEN):
            return FrameAction.HOLD
        return {SHOWN: FrameAction.DEFER, NOTED: "noted", FETCH: "fetching"}.get(api_key)

    def release(self, origin: Origin) -> None:
        self.asked.append("release")

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        self.asked.append(("request", frame, now))
        key, correlation = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[4:8], "big", signed=True)
        if key in (TAKEN, SHAKEN):
            return Forward(Named("shaken" if key == SHAKEN else "taken"))
        if key == ANSWERED and len(frame) % 2:
            return Pass()
        inject = ((request(PASSED, 77), Named("injected")),) if key == INJECTED else ()
        return AnswerInOrder(lambda at: reply(correlation, b"from here"), inject)

    def classify_reply(self, note: Any, size: int, now: float) -> FrameAction:
        self.asked.append(("classify_reply", note, size, now))
        if note == "fetching" and size > 1_000:
            return FrameAction.PEEK
        return FrameAction.HOLD if note in ("noted", "taken") else FrameAction.DEFER

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        self.asked.append(("reply", note, frame, now))
        if note == "shaken":
            return Reply(raw_tokens=2)
        return Reply(reply(int.from_bytes(frame[:4], "big", signed=True), b"another") if note == "noted" else None)

    def defer_reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        self.asked.append(("later", note, frame, origin.client_host, now))

    def defer_reply_head(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        self.asked.append(("begun", note, head, now))

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        self.asked.append(("gone", list(notes), now))


Pair = Callable[[], tuple[socket.socket, socket.socket]]
TOGETHER = fast_path.Outbox(True)
ONE_BY_ONE = fast_path.Outbox(False)


class World:
    """A connection whose client and broker are the test's sockets. With an outbox, it uses the compiled fast path.

    Args:
        walks: whether the session must cut every chunk with `FrameWalker`, also a chunk that is one whole frame.
        largest: the maximum bytes of an accepted request.
        endpoint: makes the sidecar's end of the client's connection, and then that of the broker's, from a descriptor.
    """

    def __init__(
        self,
        outbox: Any,
        splice_pipe: SplicePipe,
        pair: Pair,
        *,
        walks: bool = False,
        largest: int = LARGEST,
        endpoint: Callable[[int], EndpointSocket] = EndpointSocket,
    ) -> None:
        self.outbox, self.walks = outbox, walks
        (self.client, near), (self.broker, far) = pair(), pair()
        self.dispatcher, self.traffic, self.rounds = Dispatcher(), TrafficCounters(), Poller()
        self.counters = ListenerCounters("clients")
        self.origin = Origin("10.0.0.1")
        self.origin.number = 0  # All worlds have the same number.
        self.rounds.now = 100.0
        self.rounds.time = lambda: self.rounds.now
        for sock in (near, far):
            sock.setblocking(False)
            self.rounds.watch(sock.fileno(), EPOLLIN, lambda _: None)  # The test calls these methods.
        shared = SharedResources(
            self.rounds,
            splice_pipe,
            {},
            DeliveredCloses(self.rounds),
            ConnectionsPerAddress(0),
            BufferBudget(NO_BUDGET, self.rounds),
        )
        session = Session(
            self.dispatcher, self.traffic, self.origin, SessionLimits(largest, MAX_IN_FLIGHT, MAX_KEPT_BYTES)
        )
        self.connection = Connection(
            shared,
            endpoint(near.detach()),
            endpoint(far.detach()),
            session,
            self.counters,
            self.rounds.now,
        )
        shared.connections[self.origin.number] = self.connection
        self.connections = shared.connections
        self.way = fast_path.FastPath(self.connection, outbox) if outbox else self.connection
        self.to_client, self.to_broker, self.replied = bytearray(), bytearray(), 0

    def close(self) -> None:
        for peer in (self.client, self.broker):
            peer.close()
        if self.connections:
            self.connection.finish(CloseReason.SHUTDOWN)

    def go(self) -> None:
        """Runs rounds until no socket is ready."""
        self.rounds.now += SECONDS
        ends = ((self.connection.client, self.way.client_ready), (self.connection.upstream, self.way.upstream_ready))
        served = True
        while served:
            served = False
            for end, call in ends:
                if self.connections and end.interest & EPOLLIN and readable(end.fd):
                    if self.walks:
                        self.connection.session.can_use_fast_path = False
                    call(EPOLLIN)
                    served = True
            self.rounds.take_turns()
            self.leave()
            self.collect()

    def leave(self) -> None:
        """Ends a round."""
        if self.outbox:
            self.outbox.flush()

    def collect(self) -> None:
        """Lets both peers read all bytes."""
        for peer, found in ((self.client, self.to_client), (self.broker, self.to_broker)):
            with suppress(OSError):
                while peer.fileno() >= 0 and readable(peer.fileno()) and (chunk := peer.recv(1 << 16)):
                    found += chunk

    def owed(self, size: int) -> bytes:
        """Returns replies, with bodies of `size` bytes, to all unanswered requests that the broker has received."""
        found = b""
        while len(self.to_broker) >= self.replied + 12:
            length, key, _, correlation = struct.unpack_from(">ihhi", self.to_broker, self.replied)
            if len(self.to_broker) < self.replied + 4 + length:
                break
            acks = struct.unpack_from(">h", self.to_broker, self.replied + 15)[0] if key == ApiKey.PRODUCE else 1
            self.replied += 4 + length
            found += reply(correlation, b"t" * size) if acks else b""
        return found

    def seen(self) -> dict[str, Any]:
        """Returns everything that a client, a broker, the dispatcher, an operator and the next round can observe."""
        traffic, connection, session = self.traffic, self.connection, self.connection.session
        counters = self.counters
        return {
            "client": bytes(self.to_client),
            "broker": bytes(self.to_broker),
            "dispatcher": list(self.dispatcher.asked),
            "bytes": (counters.received_bytes, counters.sent_bytes),
            "done": {key: (each.counts, round(each.sum, 6)) for key, each in traffic.durations.items()},
            "unanswered": traffic.unanswered,
            "closed": counters.connections_closed,
            "connection": (connection.last_active, connection.awaits_reply, connection.flowing, bool(self.connections)),
            "session": (
                list(session.in_flight),
                bool(self.connections) and session.can_use_fast_path,
                session.held_bytes,
                session.should_read_client,
            ),
        }


def readable(fd: int, seconds: float = 0) -> bool:
    poller = poll()
    poller.register(fd, POLLIN)
    return bool(poller.poll(seconds * 1_000))


@contextmanager
def worlds(pair: Pair = socket.socketpair, largest: int = LARGEST) -> Iterator[tuple[World, World, World, World]]:
    """Yields a world for each way of forwarding."""
    splice_pipe = SplicePipe()
    every = (
        World(TOGETHER, splice_pipe, pair, largest=largest),
        World(ONE_BY_ONE, splice_pipe, pair, largest=largest),
        World(None, splice_pipe, pair, largest=largest),
        World(None, splice_pipe, pair, walks=True, largest=largest),
    )
    try:
        yield every
    finally:
        for world in every:
            world.close()
        splice_pipe.close()


# The steps of a script.

Step = tuple[str, Any]
SIZES = st.one_of(
    st.integers(0, 40), st.sampled_from([SMALL_READ_BYTES - 16, SMALL_READ_BYTES - 12, SMALL_READ_BYTES, 2_000])
)


def request_frame(key: int, correlation: int, size: int) -> bytes:
    """Returns a request. A Produce v0 begins with acks, which is 0 for some sizes."""
    return request(key, correlation, body=(b"\0\1" if size % 3 else b"\0\0") + b"q" * size)


requests = st.lists(st.builds(request_frame, st.sampled_from(KEYS), st.integers(-5, 5), SIZES), min_size=1, max_size=4)
raw = st.one_of(st.binary(min_size=1, max_size=30), st.binary(max_size=30).map(framed))
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("client"), requests.map(b"".join)),
        st.tuples(st.just("client cut"), st.tuples(requests.map(b"".join), st.integers(1, 60))),
        st.tuples(st.just("broker"), SIZES),
        st.tuples(st.just("broker"), SIZES),
        st.tuples(st.just("broker cut"), st.tuples(SIZES, st.integers(1, 60))),
        st.tuples(st.just("client raw"), raw),
        st.tuples(st.just("broker raw"), raw),
        st.tuples(st.sampled_from(["client ends", "broker ends", "client goes", "broker goes"]), st.none()),
    ),
    min_size=1,
    max_size=12,
)


def take(world: World, step: Step) -> None:
    """Performs a step, and serves the connection."""
    kind, given = step
    who, _, how = kind.partition(" ")
    peer = world.client if who == "client" else world.broker
    with suppress(OSError):  # The sidecar may have closed the connection.
        match how:
            case "ends":
                peer.shutdown(socket.SHUT_WR)
            case "goes":
                peer.close()
            case "raw":
                peer.sendall(given)
            case "cut":
                data = given[0] if who == "client" else world.owed(given[0])
                for part in (data[: given[1]], data[given[1] :]):
                    peer.sendall(part)
                    world.go()
            case _:
                peer.sendall(given if who == "client" else world.owed(given))
    world.go()


def holds_alike(script: list[Step], largest: int = LARGEST) -> None:
    """Runs a script in all worlds. Asserts after each step that all observations are equal."""
    with worlds(largest=largest) as every:
        play(script, every)


def play(script: list[Step], every: Sequence[World]) -> None:
    """Runs a script in several worlds, and asserts after each step that all observations are equal.

    The last world walks.
    """
    for step in script:
        for world in every:
            take(world, step)
        *compiled_and_plain, walking = every
        for world in compiled_and_plain:
            assert world.seen() == walking.seen()


@given(steps)
@example([("client", request_frame(SHOWN, 1, 5)), ("broker", 8), ("client", request_frame(SHOWN, 2, 5)), ("broker", 8)])
@example([("client", request_frame(FETCH, 1, 5)), ("broker", 8), ("client", request_frame(FETCH, 2, 5)), ("broker", 8)])
@example(
    [("client", request_frame(INJECTED, 1, 5)), ("broker", 8), ("client", request_frame(SHOWN, 2, 5)), ("broker", 8)]
)
@example(
    [
        ("client", request_frame(SHAKEN, 1, 5)),
        *[("broker", 8), ("client", request_frame(SHOWN, 0, 5))] * 3,
        ("broker", 8),
    ]
)
@example([("client", request_frame(PASSED, 1, 5)), ("broker raw", reply(7))])
@example([("client", request_frame(PASSED, 1, 5)), ("broker raw", framed(b"\0\0\0"))])
@example([("client", request_frame(PASSED, 1, 5)), ("client goes", None)])
@example(
    [("client", request_frame(TAKEN, 1, 5)), ("broker", 8), ("client", request_frame(ANSWERED, 2, 5)), ("broker", 8)]
)
@example([("client", request_frame(HUNG_UP, 1, 5))])
@example([("client", request_frame(PRODUCE, 1, 3)), ("client", request_frame(PRODUCE, 2, 4)), ("broker", 8)])
@example([("client raw", framed(b"\0\3\0\0\0\0\0"))])
@example([("client", request_frame(FAILING, 1, 5))])
def test_all_ways_behave_alike(script: list[Step]) -> None:
    """After any script of steps, all four ways of forwarding show the same state and bytes."""
    holds_alike(script)


@given(steps)
@example([("client", request_frame(PASSED, 1, 30))])
@example([("client", request_frame(PASSED, 1, 31))])
def test_all_ways_refuse_the_same_lengths(script: list[Step]) -> None:
    """All four ways of forwarding accept and refuse the same request lengths."""
    holds_alike(script, len(request_frame(PASSED, 1, 30)) - 4)


@pytest.mark.parametrize("who", ["client", "broker"])
def test_reset_is_handled_alike(who: str) -> None:
    """All four ways of forwarding close a connection that is reset with the same reason."""
    with worlds(tcp_pair) as every:
        for world in every:
            take(world, ("client", request_frame(PASSED, 1, 5)))
            peer, near = (
                (world.client, world.connection.client)
                if who == "client"
                else (world.broker, world.connection.upstream)
            )
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            assert readable(near.fd, seconds=10)
            world.go()
        *_, plain = every
        for world in every:
            assert world.counters.connections_closed == plain.counters.connections_closed
            assert sum(world.counters.connections_closed.values()) == 1


def test_untaken_bytes_are_queued() -> None:
    """Bytes that a peer does not accept at once are queued, and the other side is no longer read."""
    with worlds() as every:
        for world in every:
            for fd in (
                world.client.fileno(),
                world.broker.fileno(),
                world.connection.client.fd,
                world.connection.upstream.fd,
            ):
                with socket.socket(fileno=os.dup(fd)) as sock:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            frame, reply_frame = request_frame(SHOWN, 1, 100), reply(1, b"t" * 460)
            sent = 0
            while not world.connection.upstream.backlog:
                world.client.sendall(frame)
                sent += 1
                world.rounds.now += SECONDS
                world.way.client_ready(EPOLLIN)
                world.leave()
            assert world.connection.upstream.interest == EPOLLIN | EPOLLOUT
            assert not world.connection.client.interest & EPOLLIN
            while not world.connection.client.backlog:
                world.broker.sendall(reply_frame)
                world.way.upstream_ready(EPOLLIN)
                world.leave()
            assert world.connection.client.interest == EPOLLOUT
            assert world.counters.received_bytes == sent * len(frame)


def test_replies_in_flight_are_bounded() -> None:
    """The client is not read once MAX_IN_FLIGHT replies are pending."""
    with worlds() as every:
        for world in every:
            for correlation in range(MAX_IN_FLIGHT):
                world.client.sendall(request_frame(PASSED, correlation, 1))
                world.way.client_ready(EPOLLIN)
                world.leave()
                world.collect()
            assert not world.connection.client.interest & EPOLLIN
        assert Counter(len(world.connection.session.in_flight) for world in every) == {MAX_IN_FLIGHT: 4}


@pytest.fixture(params=["as the kernel has it", "where a ring fails"])
def outbox(request: pytest.FixtureRequest) -> Any:
    """A new outbox. A ring works only in the thread that opened it."""
    if request.param == "as the kernel has it":
        return fast_path.Outbox(True)
    made: list[Any] = []
    other = threading.Thread(target=lambda: made.append(fast_path.Outbox(True)))
    other.start()
    other.join()
    return made[0]


@contextmanager
def crowd(outbox: Any, size: int) -> Iterator[list[World]]:
    """Yields several connections with the same outbox."""
    splice_pipe = SplicePipe()
    all_of_them = [World(outbox, splice_pipe, socket.socketpair) for _ in range(size)]
    try:
        yield all_of_them
    finally:
        for world in all_of_them:
            world.close()
        splice_pipe.close()


def ask_all(all_of_them: list[World]) -> None:
    for number, world in enumerate(all_of_them):
        world.client.sendall(request_frame(PASSED, number, 5))
        world.way.client_ready(EPOLLIN)


def reply_and_request_in_one_round(one: World, following: bytes) -> None:
    """Delivers the reply to request 0, and then the bytes of another request. The round has not ended."""
    ask_all([one])
    one.leave()
    one.broker.sendall(reply(0))
    one.client.sendall(following)
    one.way.upstream_ready(EPOLLIN)
    one.way.client_ready(EPOLLIN)


@pytest.mark.parametrize("size", [1, 2, MAX_EVENTS_PER_ROUND, 2 * MAX_EVENTS_PER_ROUND + 3])
def test_batched_frames_leave_at_round_end(outbox: Any, size: int) -> None:
    """Frames that were read in a round leave at the end of the round, or earlier when the batch is full."""
    with crowd(outbox, size) as all_of_them:
        for _ in range(3):
            ask_all(all_of_them)
            waiting = sum(not readable(world.broker.fileno()) for world in all_of_them)
            assert waiting == (((size - 1) % MAX_EVENTS_PER_ROUND) + 1 if outbox.batched else 0)
            outbox.flush()
            for number, world in enumerate(all_of_them):
                world.collect()
                assert world.to_broker == request_frame(PASSED, number, 5)
                world.broker.sendall(reply(number))
                world.way.upstream_ready(EPOLLIN)
            outbox.flush()
            for number, world in enumerate(all_of_them):
                world.collect()
                assert world.to_client == reply(number)
                assert world.counters.sent_bytes == len(reply(number))
                world.to_broker.clear()
                world.to_client.clear()
                world.counters.sent_bytes = 0


def test_slow_path_frame_does_not_overtake(outbox: Any) -> None:
    """A frame on the slow path leaves after the queued frames of other connections."""
    with crowd(outbox, 3) as (first, second, third):
        ask_all([first, second])
        third.client.sendall(request_frame(PASSED, 3, 2_000))
        third.way.client_ready(EPOLLIN)
        for world in (first, second, third):
            world.collect()
            assert world.to_broker


def test_lost_peer_affects_no_other(outbox: Any) -> None:
    """A peer that has closed ends only its own connection. The others get their frames."""
    with crowd(outbox, 4) as all_of_them:
        ask_all(all_of_them)
        outbox.flush()
        for number, world in enumerate(all_of_them):
            world.broker.sendall(reply(number))
        for world in all_of_them:
            world.way.upstream_ready(EPOLLIN)
        gone = all_of_them[1]
        gone.client.close()
        outbox.flush()
        assert [bool(world.connections) for world in all_of_them] == [True, outbox.batched is False, True, True]
        for world in (all_of_them[0], *all_of_them[2:]):
            world.collect()
            assert world.to_client


def test_local_answer_does_not_overtake_reply(outbox: Any) -> None:
    """A local answer reaches the client after the queued reply of the broker."""
    with crowd(outbox, 1) as [one]:
        reply_and_request_in_one_round(one, request_frame(ANSWERED, 1, 5))
        outbox.flush()
        one.collect()
        assert one.to_client == reply(0) + reply(1, b"from here")


def test_failing_connection_flushes_first(outbox: Any) -> None:
    """A connection that fails has sent its queued reply before it closes."""
    with crowd(outbox, 1) as [one]:
        reply_and_request_in_one_round(one, request_frame(FAILING, 1, 5))
        assert not one.connections
        one.collect()
        assert one.to_client == reply(0)


@pytest.mark.parametrize("events", [EPOLLIN, EPOLLIN | EPOLLHUP])
def test_connection_closed_by_flush_is_not_used(outbox: Any, events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ended during a flush does not touch its descriptors, which may belong to other sockets."""
    others: list[socket.socket] = []

    def gone(*_: Any) -> None:
        while not ended <= {each.fileno() for each in others}:  # The system gives out the lowest free descriptor.
            others.extend(socket.socketpair())
        for each in others:
            each.sendall(b"another's")

    with crowd(outbox, 1) as [one]:
        ended = {one.connection.client.fd, one.connection.upstream.fd}
        monkeypatch.setattr(one.dispatcher, "gone", gone)
        reply_and_request_in_one_round(one, request_frame(PASSED, 7, 5))
        one.client.close()
        one.broker.close()
        one.way.client_ready(events)
        assert not one.connections
        assert others
        for each in others:
            assert each.recv(100, socket.MSG_DONTWAIT) == b"another's"
        for each in others:
            each.close()
