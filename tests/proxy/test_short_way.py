"""The compiled way of small frames beside the same in Python: whatever comes, in whatever pieces, they do the same.

The compiled one is tried twice: as frames leave together, and as they leave one by one.
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

from group_sidecar.codecs.registry import ApiKey
from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.disposals import Answer, Disposal, Forward, HangUp, Origin, Pass, Reply
from group_sidecar.proxy.end import SMALL_CHUNK, End, Shortcut
from group_sidecar.proxy.framing import Look
from group_sidecar.proxy.link import Link, Shared
from group_sidecar.proxy.poller import READY_AT_ONCE, Poller
from group_sidecar.proxy.session import MOST_EXPECTED, Session
from tests.proxy.fakes import PassingDesk, tcp_pair
from tests.proxy.playbook import reply, request

short_way = pytest.importorskip("group_sidecar.proxy.short_way")  # test_pump tells where it has to be there.

PRODUCE, FETCH, SHOWN, SHAKEN = map(int, (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE))
PASSED, NOTED, TAKEN, ANSWERED, INJECTED, HUNG_UP, FAILING = 3, 10, 11, 15, 16, 98, 99
KEYS = (PRODUCE, FETCH, SHOWN, SHAKEN, PASSED, NOTED, TAKEN, ANSWERED, INJECTED, HUNG_UP, FAILING)
SECONDS = 0.3
"""Between two steps, so that a Fetch reply may be looked into again after some."""


class Desk(PassingDesk):
    """Does with each request what its API key says, and remembers all that it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        self.asked.append(("glance", api_key, api_version, size))
        if api_key == FAILING:
            raise RuntimeError("a desk that fails")
        if api_key == HUNG_UP:
            return HangUp(CloseReason.MALFORMED_REQUEST)
        if api_key in (TAKEN, ANSWERED, INJECTED, SHAKEN):
            return Look.TAKE
        return {SHOWN: Look.SHOW, NOTED: "noted", FETCH: "fetching"}.get(api_key)

    def release(self, origin: Origin) -> None:
        self.asked.append("release")

    def request(self, frame: bytes, origin: Origin, now: float) -> Disposal:
        self.asked.append(("request", frame, now))
        key, correlation = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[4:8], "big", signed=True)
        if key in (TAKEN, SHAKEN):
            return Forward("shaken" if key == SHAKEN else "taken")
        if key == ANSWERED and len(frame) % 2:
            return Pass()
        inject = ((request(PASSED, 77), "injected"),) if key == INJECTED else ()
        return Answer(lambda at: reply(correlation, b"from here"), inject)

    def glance_reply(self, note: Any, size: int, now: float) -> Look:
        self.asked.append(("glance_reply", note, size, now))
        if note == "fetching" and size > 1_000:
            return Look.BEGIN
        return Look.TAKE if note in ("noted", "taken") else Look.SHOW

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        self.asked.append(("reply", note, frame, now))
        if note == "shaken":
            return Reply(raw_tokens=2)
        return Reply(reply(int.from_bytes(frame[:4], "big", signed=True), b"another") if note == "noted" else None)

    def later(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        self.asked.append(("later", note, frame, origin.client_host, now))

    def begun(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        self.asked.append(("begun", note, head, now))

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        self.asked.append(("gone", list(notes), now))


Pair = Callable[[], tuple[socket.socket, socket.socket]]
TOGETHER = short_way.Outbox(True)
ONE_BY_ONE = short_way.Outbox(False)


class World:
    """A connection whose client and broker are a test's, and which goes the compiled way where it has an outbox."""

    def __init__(self, outbox: Any, shortcut: Shortcut, pair: Pair) -> None:
        self.outbox = outbox
        (self.client, near), (self.broker, far) = pair(), pair()
        self.desk, self.traffic, self.rounds = Desk(), Traffic(), Poller()
        self.origin = Origin("10.0.0.1")
        self.origin.number = 0  # That of the other world, too.
        self.rounds.now = 100.0
        for sock in (near, far):
            sock.setblocking(False)
            self.rounds.watch(sock.fileno(), EPOLLIN, lambda _: None)  # It is the test that calls.
        shared = Shared(self.rounds, self.traffic, shortcut, {})
        session = Session(self.desk, self.traffic, self.origin, 1_000_000)
        self.link = Link(shared, End(near.detach()), End(far.detach()), session, self.rounds.now)
        shared.links[self.origin.number] = self.link
        self.links = shared.links
        self.way = short_way.ShortWay(self.link, outbox) if outbox else self.link
        self.to_client, self.to_broker, self.replied = bytearray(), bytearray(), 0

    def close(self) -> None:
        for peer in (self.client, self.broker):
            peer.close()
        if self.links:
            self.link.finish(CloseReason.SHUTDOWN)

    def go(self) -> None:
        """Rounds, until nothing more is ready."""
        self.rounds.now += SECONDS
        ends = ((self.link.client, self.way.client_ready), (self.link.upstream, self.way.upstream_ready))
        served = True
        while served:
            served = False
            for end, call in ends:
                if self.links and end.interest & EPOLLIN and readable(end.fd):
                    call(EPOLLIN)
                    served = True
            self.leave()
            self.collect()

    def leave(self) -> None:
        """The end of a round."""
        if self.outbox:
            self.outbox.leave()

    def collect(self) -> None:
        """Has both peers read."""
        for peer, found in ((self.client, self.to_client), (self.broker, self.to_broker)):
            with suppress(OSError):
                while peer.fileno() >= 0 and readable(peer.fileno()) and (chunk := peer.recv(1 << 16)):
                    found += chunk

    def owed(self, size: int) -> bytes:
        """Replies of such bodies to all that has reached the broker and not been answered."""
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
        """All that a client, a broker, the desk, an operator and the next round can tell."""
        traffic, link, session = self.traffic, self.link, self.link.session
        return {
            "client": bytes(self.to_client),
            "broker": bytes(self.to_broker),
            "desk": list(self.desk.asked),
            "bytes": (traffic.received_bytes, traffic.sent_bytes),
            "done": {key: (each.counts, round(each.sum, 6)) for key, each in traffic.durations.items()},
            "unanswered": traffic.unanswered,
            "closed": traffic.connections_closed,
            "link": (link.active, link.asking, link.flowing, bool(self.links)),
            "session": (list(session.expected), session.at_ease, session.held_bytes, session.wants_client),
        }


def readable(fd: int, seconds: float = 0) -> bool:
    poller = poll()
    poller.register(fd, POLLIN)
    return bool(poller.poll(seconds * 1_000))


@contextmanager
def worlds(pair: Pair = socket.socketpair) -> Iterator[tuple[World, World, World]]:
    """Two where small frames go the compiled way, together and one by one, and one where they go Python's."""
    shortcut = Shortcut()
    all_three = World(TOGETHER, shortcut, pair), World(ONE_BY_ONE, shortcut, pair), World(None, shortcut, pair)
    try:
        yield all_three
    finally:
        for world in all_three:
            world.close()
        shortcut.close()


# What a test has them do.

Step = tuple[str, Any]
SIZES = st.one_of(st.integers(0, 40), st.sampled_from([SMALL_CHUNK - 16, SMALL_CHUNK - 12, SMALL_CHUNK, 2_000]))


def asked(key: int, correlation: int, size: int) -> bytes:
    """A request. acks stands first in a Produce v0: of some it is 0."""
    return request(key, correlation, body=(b"\0\1" if size % 3 else b"\0\0") + b"q" * size)


requests = st.lists(st.builds(asked, st.sampled_from(KEYS), st.integers(-5, 5), SIZES), min_size=1, max_size=4)
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("client"), requests.map(b"".join)),
        st.tuples(st.just("client cut"), st.tuples(requests.map(b"".join), st.integers(1, 60))),
        st.tuples(st.just("broker"), SIZES),
        st.tuples(st.just("broker"), SIZES),
        st.tuples(st.just("broker cut"), st.tuples(SIZES, st.integers(1, 60))),
        st.tuples(st.just("client raw"), st.binary(min_size=1, max_size=30)),
        st.tuples(st.just("broker raw"), st.binary(min_size=1, max_size=30)),
        st.tuples(st.sampled_from(["client ends", "broker ends", "client goes", "broker goes"]), st.none()),
    ),
    min_size=1,
    max_size=12,
)


def take(world: World, step: Step) -> None:
    """Has it happen, and the connection be served."""
    kind, given = step
    who, _, how = kind.partition(" ")
    peer = world.client if who == "client" else world.broker
    with suppress(OSError):  # The other side may have ended it.
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


@given(steps)
@example([("client", asked(SHOWN, 1, 5)), ("broker", 8), ("client", asked(SHOWN, 2, 5)), ("broker", 8)])
@example([("client", asked(FETCH, 1, 5)), ("broker", 8), ("client", asked(FETCH, 2, 5)), ("broker", 8)])
@example([("client", asked(INJECTED, 1, 5)), ("broker", 8), ("client", asked(SHOWN, 2, 5)), ("broker", 8)])
@example([("client", asked(SHAKEN, 1, 5)), *[("broker", 8), ("client", asked(SHOWN, 0, 5))] * 3, ("broker", 8)])
@example([("client", asked(PASSED, 1, 5)), ("broker raw", reply(7))])
@example([("client", asked(PASSED, 1, 5)), ("client goes", None)])
@example([("client", asked(FAILING, 1, 5))])
def test_whatever_comes_all_ways_do_the_same(script: list[Step]) -> None:
    with worlds() as (together, one_by_one, plain):
        for step in script:
            for world in (together, one_by_one, plain):
                take(world, step)
            assert together.seen() == plain.seen()
            assert one_by_one.seen() == plain.seen()


@pytest.mark.parametrize("who", ["client", "broker"])
def test_a_reset_is_taken_alike(who: str) -> None:
    with worlds(tcp_pair) as all_three:
        for world in all_three:
            take(world, ("client", asked(PASSED, 1, 5)))
            peer, near = (world.client, world.link.client) if who == "client" else (world.broker, world.link.upstream)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            assert readable(near.fd, seconds=10)
            world.go()
        *_, plain = all_three
        for world in all_three:
            assert world.traffic.connections_closed == plain.traffic.connections_closed
            assert sum(world.traffic.connections_closed.values()) == 1


def test_what_a_peer_does_not_take_at_once_is_kept() -> None:
    with worlds() as all_three:
        for world in all_three:
            for fd in (world.client.fileno(), world.broker.fileno(), world.link.client.fd, world.link.upstream.fd):
                with socket.socket(fileno=os.dup(fd)) as sock:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            frame, told = asked(SHOWN, 1, 100), reply(1, b"t" * 460)
            sent = 0
            while not world.link.upstream.backlog:
                world.client.sendall(frame)
                sent += 1
                world.rounds.now += SECONDS
                world.way.client_ready(EPOLLIN)
                world.leave()
            assert world.link.upstream.interest == EPOLLIN | EPOLLOUT
            assert not world.link.client.interest & EPOLLIN
            while not world.link.client.backlog:
                world.broker.sendall(told)
                world.way.upstream_ready(EPOLLIN)
                world.leave()
            assert world.link.client.interest == EPOLLOUT
            assert world.traffic.received_bytes == sent * len(frame)


def test_no_more_replies_are_waited_for_than_may_be() -> None:
    with worlds() as all_three:
        for world in all_three:
            for correlation in range(MOST_EXPECTED):
                world.client.sendall(asked(PASSED, correlation, 1))
                world.way.client_ready(EPOLLIN)
                world.leave()
                world.collect()
            assert not world.link.client.interest & EPOLLIN
        assert Counter(len(world.link.session.expected) for world in all_three) == {MOST_EXPECTED: 3}


@pytest.fixture(params=["as the kernel has it", "where a ring fails"])
def outbox(request: pytest.FixtureRequest) -> Any:
    """One of its own. A ring works for the thread alone that opened it."""
    if request.param == "as the kernel has it":
        return short_way.Outbox(True)
    made: list[Any] = []
    other = threading.Thread(target=lambda: made.append(short_way.Outbox(True)))
    other.start()
    other.join()
    return made[0]


@contextmanager
def crowd(outbox: Any, size: int) -> Iterator[list[World]]:
    """Connections of one thread."""
    shortcut = Shortcut()
    all_of_them = [World(outbox, shortcut, socket.socketpair) for _ in range(size)]
    try:
        yield all_of_them
    finally:
        for world in all_of_them:
            world.close()
        shortcut.close()


def ask_all(all_of_them: list[World]) -> None:
    for number, world in enumerate(all_of_them):
        world.client.sendall(asked(PASSED, number, 5))
        world.way.client_ready(EPOLLIN)


def reply_and_request_in_one_round(one: World, following: bytes) -> None:
    """The reply to request 0 comes, and behind it another request. The round is not over."""
    ask_all([one])
    one.leave()
    one.broker.sendall(reply(0))
    one.client.sendall(following)
    one.way.upstream_ready(EPOLLIN)
    one.way.client_ready(EPOLLIN)


@pytest.mark.parametrize("size", [1, 2, READY_AT_ONCE, 2 * READY_AT_ONCE + 3])
def test_what_was_read_in_a_round_leaves_at_its_end(outbox: Any, size: int) -> None:
    with crowd(outbox, size) as all_of_them:
        for _ in range(3):
            ask_all(all_of_them)
            waiting = sum(not readable(world.broker.fileno()) for world in all_of_them)
            assert waiting == (((size - 1) % READY_AT_ONCE) + 1 if outbox.together else 0)
            outbox.leave()
            for number, world in enumerate(all_of_them):
                world.collect()
                assert world.to_broker == asked(PASSED, number, 5)
                world.broker.sendall(reply(number))
                world.way.upstream_ready(EPOLLIN)
            outbox.leave()
            for number, world in enumerate(all_of_them):
                world.collect()
                assert world.to_client == reply(number)
                assert world.traffic.sent_bytes == len(reply(number))
                world.to_broker.clear()
                world.to_client.clear()
                world.traffic.sent_bytes = 0


def test_what_takes_the_long_way_overtakes_nothing(outbox: Any) -> None:
    with crowd(outbox, 3) as (first, second, third):
        ask_all([first, second])
        third.client.sendall(asked(PASSED, 3, 2_000))
        third.way.client_ready(EPOLLIN)
        for world in (first, second, third):
            world.collect()
            assert world.to_broker


def test_a_peer_that_has_gone_takes_nobody_with_it(outbox: Any) -> None:
    with crowd(outbox, 4) as all_of_them:
        ask_all(all_of_them)
        outbox.leave()
        for number, world in enumerate(all_of_them):
            world.broker.sendall(reply(number))
        for world in all_of_them:
            world.way.upstream_ready(EPOLLIN)
        gone = all_of_them[1]
        gone.client.close()
        outbox.leave()
        assert [bool(world.links) for world in all_of_them] == [True, outbox.together is False, True, True]
        for world in (all_of_them[0], *all_of_them[2:]):
            world.collect()
            assert world.to_client


def test_an_answer_from_here_does_not_overtake_a_reply(outbox: Any) -> None:
    with crowd(outbox, 1) as [one]:
        reply_and_request_in_one_round(one, asked(ANSWERED, 1, 5))
        outbox.leave()
        one.collect()
        assert one.to_client == reply(0) + reply(1, b"from here")


def test_a_connection_that_fails_has_sent_what_it_had(outbox: Any) -> None:
    with crowd(outbox, 1) as [one]:
        reply_and_request_in_one_round(one, asked(FAILING, 1, 5))
        assert not one.links
        one.collect()
        assert one.to_client == reply(0)


@pytest.mark.parametrize("events", [EPOLLIN, EPOLLIN | EPOLLHUP])
def test_a_connection_that_ended_as_its_frames_left_is_left_alone(
    outbox: Any, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptors are another's by then."""
    others: list[socket.socket] = []

    def gone(*_: Any) -> None:
        for _each in range(4):
            others.extend(socket.socketpair())
        for each in others:
            each.sendall(b"another's")

    with crowd(outbox, 1) as [one]:
        ended = {one.link.client.fd, one.link.upstream.fd}
        monkeypatch.setattr(one.desk, "gone", gone)
        reply_and_request_in_one_round(one, asked(PASSED, 7, 5))
        one.client.close()
        one.broker.close()
        one.way.client_ready(events)
        assert not one.links
        assert ended <= {each.fileno() for each in others}
        for each in others:
            assert each.recv(100, socket.MSG_DONTWAIT) == b"another's"
        for each in others:
            each.close()
