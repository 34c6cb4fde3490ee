"""Tests the verification of samples: when a difference counts, what follows, and when a group is trusted again."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import encode_reply_rest
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters, Verification
from group_sidecar.proxy.broker import verification_window
from group_sidecar.proxy.broker.kafka_client import MAX_INLINE_BYTES, KafkaClient, connect
from group_sidecar.proxy.broker.verification import (
    FIRST_PAUSE,
    IDLE_SECONDS,
    LONGEST_PAUSE,
    MAX_CASES,
    MAX_INCONCLUSIVE,
    MAX_LOGGED_GROUPS,
    MAX_WAITING_SAMPLES,
    SampleQueue,
    Verifier,
)
from group_sidecar.proxy.broker.verification_window import CATCH_UP_SECONDS, VerificationWindows
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.supervision import Supervisor, Task
from tests.proxy.dataplane.playbook import EPOCH, complete_state, stable_group, to_client
from tests.proxy.fakes import holds
from tests.proxy.scripted_broker import HangUp, MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
STABLE, EMPTY = "Stable", "Empty"
DESCRIBE, LIST, FETCH = 15, 16, 9
VERSION = 5
FOREVER = 100 * LONGEST_PAUSE


@dataclass
class Manager:
    """The copy's groups by their state, and the distrusted ones."""

    states: dict[str, str] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    distrusted: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)

    def changes_of(self, group_id: str) -> tuple[int, int]:
        return self.changes.get(group_id, 0), 0

    def change(self, group_id: str, state: str) -> None:
        self.states[group_id] = state
        self.changes[group_id] = self.changes.get(group_id, 0) + 1

    def distrust(self, group_id: str) -> None:
        if group_id in self.distrusted:
            return
        self.distrusted.add(group_id)
        self.calls.append(("distrust", group_id))

    def trust(self, group_id: str) -> None:
        self.distrusted.remove(group_id)
        self.calls.append(("trust", group_id))


class Copy:
    """The copy of one broker with `manager.states`, and the broker with `broker_states`."""

    def __init__(self, **states: str) -> None:
        self.address = BROKER
        self.manager = Manager(dict(states))
        self.traffic = TrafficCounters()
        self.samples = SampleQueue(1.0, self.traffic)
        self.may_have_authorizer = False
        self.true_hosts = True
        self.speechless = False
        self.reloaded: list[str] = []
        self.lacking: FallbackReason | None = None
        self.offsets = OffsetFetchResponse()
        self.broker_states = dict(states)
        self.broker = ScriptedBroker({DescribeGroupsRequest: self._describe, ListGroupsRequest: self._list})

    def epoch(self, now: float) -> float:
        return EPOCH + now

    def connect(self, *, additional: bool = False) -> AbstractAsyncContextManager[KafkaClient]:
        return connect(*self.address, timeout=5)

    def reply(self, request: Struct, version: int, at: float) -> bytes | None:
        assert at == self.epoch(trio.current_time())
        return None if self.speechless else encode_reply_rest(self._reply_of(self.manager.states, request), version)

    def lacks(self, request: Struct, version: int, at: float) -> FallbackReason | None:
        return self.lacking

    def answered(self, *groups: str, listed: bool = False, version: int = VERSION) -> None:
        """Answers a client from the copy."""
        request = ListGroupsRequest() if listed else DescribeGroupsRequest(groups=groups)
        rest = encode_reply_rest(self._reply_of(self.manager.states, request), version)
        self.samples.sample_answer(exchange(request, version), rest)

    def _reply_of(self, states: dict[str, str], request: Struct) -> Struct:
        if isinstance(request, OffsetFetchRequest):
            return self.offsets
        if isinstance(request, ListGroupsRequest):
            return ListGroupsResponse(
                error_code=0,
                groups=tuple(ListedGroup(group_id=g, protocol_type="", group_state=s) for g, s in states.items()),
            )
        assert isinstance(request, DescribeGroupsRequest)
        return DescribeGroupsResponse(
            groups=tuple(
                DescribedGroup(
                    error_code=0, group_id=g, group_state=states[g], protocol_type="", protocol_data="", members=()
                )
                for g in request.groups
            )
        )

    def _describe(self, request: DescribeGroupsRequest, version: int) -> Any:
        return self._reply_of(self.broker_states, request)

    def _list(self, request: ListGroupsRequest, version: int) -> Any:
        return self._reply_of(self.broker_states, request)

    def outcomes(self, key: int = DESCRIBE) -> dict[Verification, int]:
        return {outcome: n for (api, outcome), n in self.traffic.verifications.items() if api == key}


def exchange(request: Struct, version: int = VERSION) -> Exchange:
    return Exchange(request=request, version=version, token="1:1", client_id="c", client_host="/c", sent_at=EPOCH)


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture
async def copy(network: MemoryNetwork, nursery: trio.Nursery) -> Copy:
    """Groups g and h, equal on both sides, with verification running."""
    copy = Copy(g=STABLE, h=STABLE)
    network.brokers[BROKER] = copy.broker
    windows = VerificationWindows(copy, copy, copy, copy.samples, copy.reply)
    verifier = Verifier(copy, windows, copy.samples, copy, copy.traffic, copy.lacks, copy.reloaded.append)
    nursery.start_soon(Supervisor().keep_running, Task.VERIFICATION, verifier.run, str(copy.address))
    return copy


async def test_equal_answers_are_counted(autojump_clock: MockClock, copy: Copy, network: MemoryNetwork) -> None:
    """Answers that equal the broker's count as agreed, and all comparisons use one connection."""
    for version in (0, VERSION):
        copy.answered("g", "h", version=version)
    copy.answered(listed=True)
    await trio.sleep(1)
    assert copy.outcomes() == {Verification.AGREED: 2}
    assert copy.outcomes(LIST) == {Verification.AGREED: 1}
    assert [version for _, version in copy.broker.asked] == [0, VERSION, VERSION]
    assert len(network.attempts) == 1
    assert copy.manager.calls == []


async def test_difference_is_logged_once(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A difference distrusts its group and is logged once with both sides."""
    copy.broker_states["h"] = EMPTY
    for _ in range(3):
        copy.answered("g", "h")
    await trio.sleep(5 * CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.DIFFERENT: 3}
    assert copy.manager.distrusted == {"h"}
    assert copy.traffic.distrusted_groups == 1
    assert copy.manager.calls == [("distrust", "h")]
    assert lines == [
        {
            "event": "an answer differs from the broker's",
            "log_level": "warning",
            "broker": "broker:9092",
            "api": "DescribeGroups",
            "group": "h",
            "ours": {"group_state": STABLE},
            "theirs": {"group_state": EMPTY},
        }
    ]


async def test_list_difference_belongs_to_its_groups(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A difference in a list distrusts exactly the groups that differ."""
    del copy.broker_states["g"]
    copy.broker_states["i"] = EMPTY
    copy.answered(listed=True)
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    assert copy.outcomes(LIST) == {Verification.DIFFERENT: 1}
    assert copy.manager.distrusted == {"g", "i"}
    assert sorted((line["api"], line["group"]) for line in lines) == [("ListGroups", "g"), ("ListGroups", "i")]


async def test_late_copy_is_inconclusive(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A copy that catches up within the window counts as inconclusive and distrusts no group."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    assert copy.outcomes() == {}
    copy.manager.states["g"] = EMPTY
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.calls == lines == []


async def test_changing_group_is_compared_once_more(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A group that changes during the window is compared once more before a verdict."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.broker_states["g"] = "PreparingRebalance"
    copy.manager.change("g", "PreparingRebalance")
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {}
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.calls == lines == []


async def test_only_differing_group_is_distrusted(autojump_clock: MockClock, copy: Copy) -> None:
    """Only the group that still differs at the end of the window is distrusted."""
    copy.broker_states |= {"g": EMPTY, "h": EMPTY}
    copy.answered("g", "h")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.manager.states["g"] = EMPTY
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.DIFFERENT: 1}
    assert copy.manager.distrusted == {"h"}


async def test_group_is_trusted_after_two_agreements(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A distrusted group is trusted again after two agreements, which is logged. Only that group is requested."""
    copy.broker_states["h"] = EMPTY
    copy.answered("g", "h")
    await trio.sleep(20)
    assert copy.manager.distrusted == {"h"}
    copy.manager.states["h"] = EMPTY
    copy.broker.asked.clear()
    await trio.sleep(60)
    assert copy.manager.distrusted == set()
    assert copy.traffic.distrusted_groups == 0
    assert len(copy.broker.asked) == 2
    requested = {request.groups for request, _ in copy.broker.asked}  # type: ignore[attr-defined]
    assert requested == {("h",)}, "only the distrusted group must be requested"
    assert [line["event"] for line in lines] == [
        "an answer differs from the broker's",
        "answers agree with the broker's again",
    ]
    await trio.sleep(FOREVER)
    assert len(copy.broker.asked) == 2


async def test_group_can_be_distrusted_again(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A group that is trusted again can differ and be distrusted again."""
    for state in (EMPTY, STABLE) * 2:
        copy.broker_states["g"] = state
        copy.answered("g")
        await trio.sleep(60)
    assert [what for what, _ in copy.manager.calls] == ["distrust", "trust"] * 2
    assert len(lines) == 4


async def test_one_agreement_is_not_enough(autojump_clock: MockClock, copy: Copy) -> None:
    """One agreement followed by a difference does not restore trust."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.manager.states["g"] = EMPTY
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)  # The first comparison agrees.
    copy.manager.states["g"] = STABLE
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)  # The second one does not.
    copy.manager.states["g"] = EMPTY
    await trio.sleep(2 * FIRST_PAUSE + CATCH_UP_SECONDS)
    assert copy.manager.distrusted == {"g"}
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)
    assert copy.manager.distrusted == set()


async def test_unanswerable_question_ends_distrust(autojump_clock: MockClock, copy: Copy) -> None:
    """A question that the copy cannot answer any more ends the distrust after several tries and a reload."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    assert copy.manager.distrusted == {"g"}
    copy.speechless = True
    await trio.sleep(2 ** (MAX_INCONCLUSIVE - 1) * FIRST_PAUSE)
    assert copy.manager.distrusted == {"g"}
    await trio.sleep(2**MAX_INCONCLUSIVE * FIRST_PAUSE)
    assert (copy.manager.distrusted, copy.reloaded) == (set(), ["g"])
    assert copy.traffic.distrusted_groups == 0


async def test_intermittent_difference_stays_distrusted(autojump_clock: MockClock, copy: Copy) -> None:
    """A group that differs again between inconclusive comparisons stays distrusted."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    looks = 0

    def describe(request: DescribeGroupsRequest, version: int) -> Any:
        nonlocal looks
        looks += 1
        copy.speechless = bool(looks % MAX_INCONCLUSIVE)
        return copy._describe(request, version)

    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.broker.answers[DescribeGroupsRequest] = describe
    await trio.sleep(FOREVER)
    assert looks > 4 * MAX_INCONCLUSIVE
    assert copy.manager.distrusted == {"g"}


async def test_comparisons_repeat_with_backoff(autojump_clock: MockClock, copy: Copy) -> None:
    """A distrusted group is compared again with growing pauses up to a maximum."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    looked: list[float] = []

    def describe(request: DescribeGroupsRequest, version: int) -> Any:
        looked.append(trio.current_time())
        return copy._describe(request, version)

    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.broker.answers[DescribeGroupsRequest] = describe
    await trio.sleep(FOREVER)
    pauses = [after - before - CATCH_UP_SECONDS for before, after in pairwise(looked)]
    assert pauses[:4] == pytest.approx([2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE, 16 * FIRST_PAUSE])
    assert max(pauses) == pytest.approx(LONGEST_PAUSE)


async def test_reset_copy_is_distrusted_again(autojump_clock: MockClock, copy: Copy) -> None:
    """A copy that was reset and still differs is distrusted again."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.manager.distrusted.clear()
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)
    assert copy.manager.distrusted == {"g"}


async def test_both_differing_apis_must_agree(autojump_clock: MockClock, copy: Copy) -> None:
    """If a group differs in two APIs, both must agree before it is trusted again."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    copy.answered(listed=True)
    await trio.sleep(3 * CATCH_UP_SECONDS)
    assert copy.traffic.distrusted_groups == 1
    copy.manager.states["g"] = EMPTY
    copy.broker.answers[ListGroupsRequest] = ListGroupsResponse(error_code=0, groups=())
    await trio.sleep(FOREVER)
    assert copy.manager.distrusted == {"g"}
    copy.broker.answers[ListGroupsRequest] = copy._list
    await trio.sleep(FOREVER)
    assert copy.manager.distrusted == set()
    assert copy.traffic.distrusted_groups == 0


async def test_refused_group_is_skipped(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A group that the broker refuses to the sidecar is skipped without distrust."""
    refused = copy._reply_of(copy.broker_states, DescribeGroupsRequest(groups=("g",)))
    assert isinstance(refused, DescribeGroupsResponse)
    [group] = refused.groups
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    unseen = DescribedGroup(
        error_code=code, group_id=group.group_id, group_state="", protocol_type="", protocol_data="", members=()
    )
    copy.broker.answers[DescribeGroupsRequest] = DescribeGroupsResponse(groups=(unseen,))
    copy.answered("g")
    await trio.sleep(10)
    assert copy.outcomes() == {Verification.SKIPPED: 1}
    assert copy.manager.calls == lines == []


async def test_hidden_groups_are_not_missing(autojump_clock: MockClock, copy: Copy) -> None:
    """If the broker may have an authorizer, a group missing in its list counts as skipped."""
    copy.may_have_authorizer = True
    del copy.broker_states["g"]
    copy.answered(listed=True)
    await trio.sleep(10)
    assert copy.outcomes(LIST) == {Verification.SKIPPED: 1}


@pytest.mark.parametrize(("true_hosts", "outcome"), [(True, Verification.AGREED), (False, Verification.DIFFERENT)])
async def test_client_hosts_compared_if_as_broker(
    autojump_clock: MockClock, copy: Copy, true_hosts: bool, outcome: Verification
) -> None:
    """Client hosts are compared only if the copy reports them as the broker sees them."""
    copy.true_hosts = true_hosts
    ours, theirs = (
        DescribeGroupsResponse(
            groups=(
                DescribedGroup(
                    error_code=0,
                    group_id="g",
                    group_state=STABLE,
                    protocol_type="",
                    protocol_data="",
                    members=(
                        DescribedGroupMember(
                            member_id="m", client_id="c", client_host=host, member_metadata=b"", member_assignment=b""
                        ),
                    ),
                ),
            )
        )
        for host in ("/10.0.0.7", "/127.0.0.1")
    )
    copy.broker.answers[DescribeGroupsRequest] = theirs
    copy.samples.sample_answer(exchange(DescribeGroupsRequest(groups=("g",))), encode_reply_rest(ours, VERSION))
    await trio.sleep(CATCH_UP_SECONDS + 1)
    assert copy.outcomes() == {outcome: 1}


async def test_unsupported_version_is_skipped(autojump_clock: MockClock, copy: Copy) -> None:
    """An answer in a version that the broker lacks is skipped without a request."""
    copy.broker.versions[DescribeGroupsRequest] = (0, VERSION - 1)
    copy.answered("g")
    copy.samples.sample_answer(
        exchange(OffsetFetchRequest(group_id="g")), encode_reply_rest(OffsetFetchResponse(), VERSION)
    )
    await trio.sleep(10)
    assert copy.outcomes() == {Verification.SKIPPED: 1}
    assert copy.outcomes(FETCH) == {Verification.SKIPPED: 1}
    assert copy.broker.asked == []


async def test_unanswerable_copy_is_inconclusive(autojump_clock: MockClock, copy: Copy) -> None:
    """A comparison is inconclusive if the copy can no longer answer the question."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.speechless = True
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.calls == []


async def test_unstable_copy_is_inconclusive(autojump_clock: MockClock, copy: Copy) -> None:
    """A comparison is inconclusive if the copy would now leave the question to the broker."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.lacking = FallbackReason.UNSTABLE
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.calls == []


async def test_copy_that_lags_at_first_is_inconclusive(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """A window that begins while the copy lags behind gives no verdict, even if the copy has caught up at its end.

    The copy then skips to the newest value (seed 12 of the simulation).
    """
    copy.broker_states["g"] = EMPTY
    copy.lacking = FallbackReason.STALE
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.lacking = None
    await trio.sleep(2 * CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.calls == lines == []


async def test_offset_recheck_omits_member(autojump_clock: MockClock, copy: Copy) -> None:
    """A later check of offsets asks for the differing group alone, without member id and epoch."""

    def offset(number: int) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=number, metadata="", error_code=0)
        topic = OffsetFetchResponseTopic(name="t", partitions=(partition,))
        return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,)),))

    copy.broker.answers[OffsetFetchRequest] = offset(2)
    copy.offsets = offset(1)
    member = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=5, topics=None)
    other = OffsetFetchRequestGroup(group_id="other", topics=())
    question = exchange(OffsetFetchRequest(groups=(member, other), require_stable=True), 9)
    copy.samples.sample_answer(question, encode_reply_rest(offset(1), 9))
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE + 1)
    assert copy.manager.distrusted == {"g"}
    *first, additional = copy.broker.requests(OffsetFetchRequest)
    assert first == [question.request] * 2
    nobody = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert additional == OffsetFetchRequest(groups=(nobody,), require_stable=True)


async def test_top_level_error_is_inconclusive(autojump_clock: MockClock, copy: Copy) -> None:
    """A top-level error of the broker makes the comparison inconclusive."""
    copy.broker.answers[ListGroupsRequest] = ListGroupsResponse(error_code=15, groups=())
    copy.manager.states.clear()
    copy.answered(listed=True)
    await trio.sleep(10)
    assert copy.outcomes(LIST) == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.calls == []


async def test_hangup_loses_samples(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    """While the broker closes the connection, samples are lost and one warning is logged."""
    copy.broker.answers[DescribeGroupsRequest] = HangUp()
    for _ in range(3):
        copy.answered("g")
    await trio.sleep(10)
    assert copy.outcomes() == {Verification.LOST: 3}
    reason = "broker:9092 closed the connection at DescribeGroups: it may require SASL"
    assert lines == [
        {
            "event": "answers are not verified",
            "log_level": "warning",
            "broker": "broker:9092",
            "reason": reason,
            "setting": "own_connection.sasl",
        }
    ]
    copy.broker.answers[DescribeGroupsRequest] = copy._describe
    copy.answered("g")
    await trio.sleep(20)
    assert copy.outcomes() == {Verification.LOST: 3, Verification.AGREED: 1}


async def test_comparison_resumes_after_reconnect(
    autojump_clock: MockClock, copy: Copy, network: MemoryNetwork
) -> None:
    """A distrusted group is compared again after the broker was unreachable."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    del network.brokers[BROKER]
    await copy.broker.hang_up()
    await trio.sleep(LONGEST_PAUSE)
    network.brokers[BROKER] = copy.broker
    copy.manager.states["g"] = EMPTY
    await trio.sleep(FOREVER)
    assert copy.manager.distrusted == set()


async def test_internal_error_is_logged_and_survived(
    autojump_clock: MockClock, copy: Copy, lines: list[Any], monkeypatch: Any
) -> None:
    """An internal error loses one sample and is logged. Verification then continues."""
    with monkeypatch.context() as broken:
        broken.setattr(copy.manager, "changes_of", None)
        copy.broker_states["g"] = EMPTY
        copy.answered("g")
        await trio.sleep(10)
    assert copy.outcomes() == {Verification.LOST: 1}
    assert [(line["event"], line["log_level"]) for line in lines] == [("a background task failed", "error")]
    copy.answered("h")
    await trio.sleep(20)
    assert copy.outcomes() == {Verification.LOST: 1, Verification.AGREED: 1}


async def test_idle_connection_is_closed(autojump_clock: MockClock, copy: Copy, network: MemoryNetwork) -> None:
    """The connection is closed after an idle time and opened again for the next sample."""
    copy.answered("g")
    await trio.sleep(IDLE_SECONDS - 1)
    copy.answered("g")
    await trio.sleep(1)
    assert len(network.attempts) == 1
    await trio.sleep(IDLE_SECONDS)
    with pytest.raises(trio.ClosedResourceError):
        await copy.broker.streams[0].receive_some()
    copy.answered("g")
    await trio.sleep(1)
    assert len(network.attempts) == 2
    assert copy.outcomes() == {Verification.AGREED: 3}


async def test_large_answers_are_compared_in_thread(
    autojump_clock: MockClock, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large answers are compared in a thread."""
    threads: list[Any] = []
    run_sync = trio.to_thread.run_sync

    async def noted(job: Any) -> Any:
        threads.append(job)
        return await run_sync(job)

    monkeypatch.setattr(trio.to_thread, "run_sync", noted)
    names = [f"group {number:064}" for number in range(MAX_INLINE_BYTES // 64)]
    copy.manager.states = dict.fromkeys(names, STABLE)
    copy.broker_states = dict.fromkeys(reversed(names), STABLE)
    copy.answered(listed=True)
    await holds(lambda: bool(copy.outcomes(LIST)))
    assert copy.outcomes(LIST) == {Verification.AGREED: 1}
    assert len(threads) == 1


def test_sample_contains_sent_answer() -> None:
    """A sample contains the exact answer that the client got, and its request and version."""
    state = complete_state(answers={"exclusive": True, "authorizer": "none", "verify": 1.0})
    [line] = stable_group(state, "m")
    for version in (0, VERSION):
        reply = to_client(line.sends(DescribeGroupsRequest(groups=("g",)), version))
        sample = state.samples.receiving.receive_nowait()
        assert sample.answer == reply[8:]
        assert (sample.exchange.request, sample.exchange.version) == (DescribeGroupsRequest(groups=("g",)), version)


def test_forwarded_request_is_not_sampled() -> None:
    """A request that is forwarded to the broker is not sampled."""
    state = complete_state(answers={"exclusive": True, "authorizer": "none", "verify": 1.0})
    [line] = stable_group(state, "m")
    state.copy.manager.distrust("g")
    assert to_client(line.sends(DescribeGroupsRequest(groups=("g",)), VERSION)) == b""
    with pytest.raises(trio.WouldBlock):
        state.samples.receiving.receive_nowait()
    state.copy.manager.trust("g")


def test_configured_share_is_sampled() -> None:
    """The configured share of answers is sampled."""
    traffic = TrafficCounters()
    taken = []
    for share in (0.0, 0.3, 1.0):
        samples = SampleQueue(share, traffic)
        for _ in range(MAX_WAITING_SAMPLES):
            samples.sample_answer(exchange(ListGroupsRequest()), b"")
        taken.append(samples.receiving.statistics().current_buffer_used)
    assert taken[0] == 0
    assert 0 < taken[1] < taken[2] == MAX_WAITING_SAMPLES
    assert traffic.verifications == {}


def test_full_queue_loses_samples() -> None:
    """Samples beyond the queue's limit are counted as lost."""
    traffic = TrafficCounters()
    samples = SampleQueue(1.0, traffic)
    for _ in range(MAX_WAITING_SAMPLES + 2):
        samples.sample_answer(exchange(ListGroupsRequest()), b"")
    assert traffic.verifications == {(LIST, Verification.LOST): 2}


def test_paused_queue_loses_samples() -> None:
    """A paused queue counts samples as lost and takes them again after the pause."""
    traffic = TrafficCounters()
    samples = SampleQueue(1.0, traffic)
    samples.rest(60.0)
    samples.sample_answer(exchange(ListGroupsRequest()), b"")
    assert traffic.verifications == {(LIST, Verification.LOST): 1}
    samples.rest(0.0)
    samples.sample_answer(exchange(ListGroupsRequest()), b"")
    assert samples.receiving.statistics().current_buffer_used == 1


async def test_sampling_pauses_at_case_limit(
    autojump_clock: MockClock, copy: Copy, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is sampled while too many groups are distrusted, and only some of them are logged."""
    monkeypatch.setattr(verification_window, "MAX_INLINE_BYTES", 1 << 20)  # A thread would not use the test's clock.
    names = [f"g{number}" for number in range(MAX_CASES)]
    copy.manager.states = dict.fromkeys(names, STABLE)
    copy.broker_states = dict.fromkeys(names, EMPTY)
    copy.answered(*names)
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    assert copy.traffic.distrusted_groups == MAX_CASES
    copy.answered(names[0])
    assert copy.outcomes() == {Verification.DIFFERENT: 1, Verification.LOST: 1}
    copy.manager.states = dict.fromkeys(names, EMPTY)
    assert [(line["log_level"], line["others"]) for line in lines] == [
        ("warning", MAX_CASES - MAX_LOGGED_GROUPS)
    ] * MAX_LOGGED_GROUPS
    await trio.sleep(LONGEST_PAUSE)
    assert copy.traffic.distrusted_groups == 0
    copy.answered(names[0])
    await trio.sleep(1)
    assert copy.outcomes()[Verification.AGREED] == 1
