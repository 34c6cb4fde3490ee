"""A broker with the model of Kafka's coordinator. It answers requests and keeps the history of its groups.

The broker leads all partitions of `__consumer_offsets` and of topic "t", until a fault moves a leader.

The module has more than 400 lines because requests and faults change the same state.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader, decode_request_header, encode_reply
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.end_txn import EndTxnRequest
from group_sidecar.codecs.messages.fetch import FetchRequest
from group_sidecar.codecs.messages.join_group import JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.produce import ProduceRequest
from group_sidecar.codecs.messages.txn_offset_commit import TxnOffsetCommitRequest
from group_sidecar.codecs.schema import Struct, decode
from tests.coordinator.model import Broker
from tests.coordinator.model_groups import EMPTY, NEVER, PREPARING, STABLE, ModelGroup, Respond
from tests.simulation import group_replies, topic_replies
from tests.simulation.broker_connection import BrokerConnection, HangUp
from tests.simulation.history import Effect, GroupState, History, Offsets
from tests.simulation.network import LONGEST_DELAY, Reset
from tests.simulation.offsets_log import OffsetsLog
from tests.simulation.timeline import Timeline
from tests.simulation.transactions import Transactions

SEEN_AT = "/10.0.0.2"
"""The host at which the broker sees each client of the sidecar."""
VERSIONS: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 9),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.END_TXN: (0, 4),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_DELETE: (0, 0),
}
BYPASS_SECONDS = 3.5
"""Seconds after which the sidecar must know a change that only the log or the leaders of its partitions show. This is
FRESH_SECONDS of the product, plus half a second."""
_TYPE_SINCE = 7  # The first version of JoinGroup replies with a protocol type.


class Kafka:
    """The broker.

    Args:
        timeline: the broker's clock.
        rng: makes the broker's random choices, such as delays and the sizes of replies.
        partitions: how many partitions `__consumer_offsets` has.
        initial_delay: Kafka's group.initial.rebalance.delay.ms, in seconds.
        eager: whether the broker logs a group at its first join, as Kafka 4 does.
        may_move: whether the cluster has another broker, which may coordinate groups.

    Attributes:
        history: all states of all groups.
        log: `__consumer_offsets`.
        is_up: whether the broker runs.
        on_handled: called with each request's header, frame, effect and connection, before the broker handles it.
        on_replied: called with the header of each request and its reply.
        on_changed: called with the group id after each change of a group.
        on_completed: called with the group id, the generation and the number of members of each new generation.
        reset: called with a connection and the API key of its next request. Returns when the connection breaks; None if
            it does not.
    """

    def __init__(
        self, timeline: Timeline, rng: Random, *, partitions: int, initial_delay: float, eager: bool, may_move: bool
    ) -> None:
        self._timeline, self._rng = timeline, rng
        self.history = History()
        self._model = Broker(initial_delay=initial_delay)
        self.log = OffsetsLog(self._model, partitions, eager=eager, may_move=may_move)
        self.transactions = Transactions(
            timeline, rng, self.log, self._marker_error, self._commit_transaction, self._transactions_changed
        )
        self.is_up = True
        self.on_handled: Callable[[RequestHeader, bytes, Effect, BrokerConnection], None] = lambda *_: None
        self.on_replied: Callable[[RequestHeader, bytes], None] = lambda header, reply: None
        self.on_completed: Callable[[str, int, int], None] = lambda group_id, generation, size: None
        self.on_changed: Callable[[str], None] = lambda group_id: None
        self.reset: Callable[[BrokerConnection, int], Reset | None] = lambda connection, api_key: None
        self._parked: dict[str, list[tuple[float, int]]] = {}
        """By group: pairs of a time and the number of joins that were parked from then on."""
        self._loading_until: dict[int, float] = {}
        self._connections: list[BrokerConnection] = []
        self._waiting_fetches: list[Callable[[], bool]] = []
        self._next_tick = NEVER

    def know(self, group_id: str) -> None:
        """Begins the history of a group that does not exist yet."""
        self.history.record(
            group_id, GroupState(0, self._model.describe(group_id), {}), Effect(self._timeline.now), self._timeline.now
        )

    # Connections.

    @property
    def now(self) -> float:
        """The time of the broker."""
        return self._timeline.now

    def call_soon(self, call: Callable[[], None]) -> None:
        """Schedules a call, which runs after the present call of the timeline."""
        self._timeline.after(0.0, call)

    def handle_late(self, call: Callable[[], None]) -> None:
        """Schedules a call that handles a request of a broken connection. A broker that is down then does nothing."""
        self._timeline.after(self._rng.uniform(0.0, LONGEST_DELAY), lambda: call() if self.is_up else None)

    def connect(self, link: "Any") -> BrokerConnection:
        """Accepts a connection."""
        connection = BrokerConnection(self, link)
        self._connections.append(connection)
        return connection

    def forget(self, connection: BrokerConnection) -> None:
        """Forgets a connection that has ended."""
        if connection in self._connections:
            self._connections.remove(connection)

    def handle(
        self, frame: bytes, effect: Effect, connection: BrokerConnection, respond: Callable[[bytes | None], None]
    ) -> None:
        """Handles a request. Calls `respond` with the reply's frame, or with None if the request has no reply.

        Raises HangUp for an API or a version at which Kafka closes the connection.
        """
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big", signed=True)
        offered = VERSIONS.get(key)
        if offered is None:
            raise HangUp
        kind = APIS[key].request
        assert kind is not None
        header, body = decode_request_header(frame, flexible=version >= kind.FLEXIBLE)
        if not offered[0] <= version <= offered[1]:
            if key != ApiKey.API_VERSIONS:
                raise HangUp
            respond(encode_reply(_versions(ErrorCode.UNSUPPORTED_VERSION), 0, header.correlation_id))
            return
        request = decode(kind, version, body)
        self._timeline.note(f"broker handles {kind.__name__} v{version} {header.client_id} {header.correlation_id}")
        self.on_handled(header, frame, effect, connection)

        def answer(reply: Struct | None) -> None:
            encoded = None if reply is None else encode_reply(reply, version, header.correlation_id)
            if encoded is not None:
                self.on_replied(header, encoded)
            respond(encoded)

        self._answer(request, header, effect, answer)

    def _answer(self, request: Struct, header: RequestHeader, effect: Effect, respond: Respond) -> None:
        if isinstance(request, ApiVersionsRequest):
            respond(_versions(0))
        elif isinstance(request, FetchRequest):
            self._fetch(request, respond)
        elif isinstance(request, EndTxnRequest):
            respond(self.transactions.end(request))
        elif isinstance(request, ProduceRequest):
            respond(topic_replies.produce(request, self._rng) if request.acks else None)
        elif (reply := topic_replies.reply(request, header.api_version, self.log)) is not None:
            respond(reply)
        else:
            self._answer_about_groups(request, header, effect, respond)

    # Groups.

    def _answer_about_groups(self, request: Struct, header: RequestHeader, effect: Effect, respond: Respond) -> None:
        version, model = header.api_version, self._model
        if (refusal := group_replies.refusal(request, version, self.error_of)) is not None:
            respond(refusal)
        elif group_replies.is_question(request):
            respond(group_replies.reply(request, version, model, self.error_of, self.transactions.pending))
        elif isinstance(request, TxnOffsetCommitRequest):
            error = self.error_of(request.group_id)
            if not error:
                model.groups.setdefault(request.group_id, ModelGroup(request.group_id))
            respond(self.transactions.store(request, error))
            self.record(effect)
            self._wake_fetches()
        else:
            if header.api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
                # The sidecar forwarded the request, so it must know from now on that the group may change.
                effect.show(self._timeline.now)
            model.handle(
                request, version, header.client_id or "", SEEN_AT, self._timeline.now, _typed(respond, version)
            )
            if isinstance(request, OffsetCommitRequest):
                self._overwrite_pending(request)
            self.record(effect, header.api_key != ApiKey.HEARTBEAT)

    def _overwrite_pending(self, request: OffsetCommitRequest) -> None:
        """Drops the pending offsets of partitions whose offset a commit has just stored."""
        group = self._model.groups.get(request.group_id)
        committed = {
            ((topic.name, each.partition_index), each.committed_offset)
            for topic in request.topics
            for each in topic.partitions
        }
        if group is not None:
            stored = {place for place, offset in committed if group.offsets.get(place, (None,))[0] == offset}
            self.transactions.overwritten(request.group_id, stored)
            self.log.repeat(request.group_id, {place: group.offsets[place] for place in stored})

    # Transactions.

    def _marker_error(self, group_id: str) -> int:
        return self.error_of(group_id) if self.is_up else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _commit_transaction(self, group_id: str, offsets: Offsets) -> None:
        self._model.groups.setdefault(group_id, ModelGroup(group_id)).offsets.update(offsets)

    def _transactions_changed(self) -> None:
        self.record(None)
        self._wake_fetches()

    def _wake_fetches(self) -> None:
        self._waiting_fetches = [fetch for fetch in self._waiting_fetches if not fetch()]

    def rebalancing(self) -> set[str]:
        """Returns the groups whose members are joining."""
        return {group_id for group_id, group in self._model.groups.items() if group.state == PREPARING}

    def groups(self) -> tuple[str, ...]:
        """Returns the groups that the broker has."""
        return tuple(self._model.groups)

    def is_kept(self, group_id: str, *, for_offsets: bool) -> bool:
        """Whether a group exists and has a state other than Empty.

        `for_offsets`: whether an empty group with offsets counts too.
        """
        group = self._model.groups.get(group_id)
        return group is not None and (group.state != EMPTY or (for_offsets and bool(group.offsets)))

    def knows_member(self, group_id: str, member_id: str) -> bool:
        """Whether a group has a member with this id, or has issued this id and waits for the member's join."""
        group = self._model.groups.get(group_id)
        return group is not None and (member_id in group.members or member_id in group.pending)

    def sizes(self) -> dict[str, int]:
        """Returns the number of members of each stable group."""
        groups = self._model.groups
        return {group_id: len(group.members) for group_id, group in groups.items() if group.state == STABLE}

    def most_parked(self, group_id: str, since: float) -> int:
        """Returns the maximum number of joins of a group that were parked at once, at the time `since` or later."""
        most = 0
        for time, number in reversed(self._parked.get(group_id, ())):
            most = max(most, number)
            if time <= since:
                break
        return most

    def _count_parked(self) -> None:
        for group_id in {**self._parked, **self._model.groups}:
            group, counts = self._model.groups.get(group_id), self._parked.setdefault(group_id, [(0.0, 0)])
            number = len(group.awaiting) if group else 0
            if counts[-1][1] != number:
                counts.append((self._timeline.now, number))

    def error_of(self, group_id: str) -> int:
        """Returns the error of the group's coordinator: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or 0."""
        number = self.log.partition_of(group_id)
        if not self.log.partitions[number].led:
            return ErrorCode.NOT_COORDINATOR
        loads = self._timeline.now < self._loading_until.get(number, 0.0)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loads else 0

    def record(self, effect: Effect | None, writes: bool = True) -> None:
        """Records what has changed, and sets the next timer.

        `effect`: see `History.record`. `writes`: whether to write the log and the history.
        """
        now, model = self._timeline.now, self._model
        if not self.is_up:
            return
        for group_id, generation, size in model.completed:
            self.on_completed(group_id, generation, size)
        model.completed.clear()
        self._count_parked()
        if writes:
            written = self.log.write()
            for group_id in {**dict.fromkeys(self.history.versions), **model.groups}:
                group = model.groups.get(group_id)
                state = GroupState(
                    self.error_of(group_id),
                    model.describe(group_id),
                    dict(group.offsets) if group else {},
                    self.transactions.pending(group_id),
                )
                if self.history.record(group_id, state, effect, now):
                    summary = f"{state.described.group_state} {len(state.described.members)}"
                    self._timeline.note(f"broker has {group_id} {state.error} {summary} {[*state.offsets.values()]}")
                    self.on_changed(group_id)
            if written:
                self._wake_fetches()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._model.next_deadline()
        if due < self._next_tick:
            self._next_tick = due
            self._timeline.at(due, self._tick)

    def _tick(self) -> None:
        self._next_tick = NEVER
        if self.is_up:
            self._model.tick(self._timeline.now)
            # The sidecar starts its timer of a session when it gets the reply. So its timer ends later than the
            # broker's, by the delay of the reply.
            effect = Effect(self._timeline.now) if self._model.completed else self._noticed_effect(LONGEST_DELAY)
            self.record(effect)

    def clean_up(self) -> None:
        """Removes empty groups without committed or pending offsets, as Kafka does periodically."""
        groups = self._model.groups
        kept = {each: groups[each] for each in self.transactions.groups() if each in groups}
        self._model.clean_up()
        groups |= kept
        self.record(None)

    # Fetches of the log.

    def _fetch(self, request: FetchRequest, respond: Respond) -> None:
        until = self._timeline.now + request.max_wait_ms / 1000

        def try_now() -> bool:
            reply, is_empty = topic_replies.fetch(request, self.log)
            if is_empty and self._timeline.now < until:
                return False
            respond(reply)
            return True

        def give_up() -> None:
            if try_now in self._waiting_fetches:
                self._waiting_fetches.remove(try_now)
                try_now()

        if not try_now():
            self._waiting_fetches.append(try_now)
            self._timeline.at(until, give_up)

    # Faults.

    def bypass(self, request: OffsetCommitRequest) -> None:
        """Handles a commit of a client that bypasses the sidecar. The sidecar learns of the commit from the log."""
        if self.is_up and not self.error_of(request.group_id):
            self._model.handle(request, 7, "bypassing", "/10.2.0.1", self._timeline.now, lambda reply: None)
            self.record(self._noticed_effect())

    def lose_leadership(self, number: int) -> None:
        """Makes another broker the leader of a partition of the log, and so the coordinator of its groups."""
        self.log.partitions[number].led = False
        self.log.partitions[number].epoch += 1
        self._unload(number)
        self.record(self._noticed_effect())
        self._wake_fetches()

    def _noticed_effect(self, seconds: float = BYPASS_SECONDS) -> Effect:
        """Returns the effect of a change that the sidecar must know after `seconds`, by default from the log."""
        effect = Effect()
        self._timeline.after(seconds, lambda: effect.show(self._timeline.now))
        return effect

    def become_leader(self, number: int, loading_seconds: float) -> None:
        """Makes the broker the leader of a partition again. Loading the partition takes `loading_seconds`."""
        partition = self.log.partitions[number]
        partition.led, partition.epoch = True, partition.epoch + 1
        self._load([number], loading_seconds, self._noticed_effect())

    def _unload(self, number: int) -> None:
        for group_id in [each for each in self._model.groups if self.log.partition_of(each) == number]:
            group = self._model.groups.pop(group_id)
            for member in group.members.values():
                for parked, refuse in (
                    (member.join, group_replies.join_refused),
                    (member.sync, group_replies.sync_refused),
                ):
                    if parked:
                        parked(refuse(ErrorCode.NOT_COORDINATOR))
        self.log.forget_groups(number)

    def _load(self, numbers: Iterable[int], loading_seconds: float, effect: Effect) -> None:
        """Loads partitions. Their groups have the error COORDINATOR_LOAD_IN_PROGRESS for `loading_seconds`.

        The history gets one record for all partitions, so it never shows groups of the later partitions as Dead.
        """
        loaded_at = self._timeline.now + loading_seconds
        for number in numbers:
            self._loading_until[number] = loaded_at
            self.log.load(number, loaded_at)
        self.record(effect)
        self._timeline.at(loaded_at, lambda: self.record(effect))

    def stop(self) -> None:
        """Ends the broker. Its connections close, and it forgets the groups that it has in memory."""
        self.is_up = False
        for connection in [*self._connections]:
            connection.cut()
        self._waiting_fetches.clear()
        for number, partition in self.log.partitions.items():
            if partition.led:
                self._unload(number)

    def start(self, loading_seconds: float) -> None:
        """Starts the broker again. Loading its partitions takes `loading_seconds`."""
        self.is_up = True
        partitions = self.log.partitions
        for partition in partitions.values():
            partition.epoch += 1
        led = [number for number, partition in partitions.items() if partition.led]
        self._load(led, loading_seconds, Effect(self._timeline.now))

    def cut_connection(self) -> None:
        """Closes one of the broker's connections, chosen at random."""
        if self._connections:
            self._rng.choice(self._connections).cut()


def _versions(error: int) -> ApiVersionsResponse:
    offered = (ApiVersion(api_key=key, min_version=first, max_version=last) for key, (first, last) in VERSIONS.items())
    return ApiVersionsResponse(error_code=error, api_keys=tuple(offered))


def _typed(respond: Respond, version: int) -> Respond:
    """Returns a function that adds the protocol type to JoinGroup replies, which the model leaves out."""

    def typed(reply: Any) -> None:
        if isinstance(reply, JoinGroupResponse) and version >= _TYPE_SINCE and not reply.error_code:
            reply = replace(reply, protocol_type="consumer")
        respond(reply)

    return typed
