"""Verification of samples: when a difference is one, what it does, and when a group is trusted again."""

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
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import Traffic, Verification
from group_sidecar.proxy import verification_window
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import LARGEST_AT_ONCE, KafkaClient, connect
from group_sidecar.proxy.verification_window import CATCH_UP_SECONDS
from group_sidecar.proxy.verifying import (
    FIRST_PAUSE,
    IDLE_SECONDS,
    LONGEST_PAUSE,
    MOST_CASES,
    MOST_TOLD,
    MOST_UNJUDGED,
    MOST_WAITING,
    Samples,
    verify_forever,
)
from tests.proxy.fakes import holds
from tests.proxy.playbook import EPOCH, certain_copy, settled, to_client
from tests.proxy.scripted_broker import HangUp, MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
STABLE, EMPTY = "Stable", "Empty"
DESCRIBE, LIST, FETCH = 15, 16, 9
VERSION = 5
FOREVER = 100 * LONGEST_PAUSE


@dataclass
class Manager:
    """Groups by their state, and who is distrusted. The copy's side."""

    states: dict[str, str] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    distrusted: set[str] = field(default_factory=set)
    told: list[tuple[str, str, float]] = field(default_factory=list)

    def changes_of(self, group_id: str) -> tuple[int, int]:
        return self.changes.get(group_id, 0), 0

    def change(self, group_id: str, state: str) -> None:
        self.states[group_id] = state
        self.changes[group_id] = self.changes.get(group_id, 0) + 1

    def distrust(self, group_id: str, now: float) -> None:
        if group_id in self.distrusted:
            return
        self.distrusted.add(group_id)
        self.told.append(("distrust", group_id, now))

    def trust(self, group_id: str, now: float) -> None:
        self.distrusted.remove(group_id)
        self.told.append(("trust", group_id, now))


class Copy:
    """The copy of one broker, and its side of the conversation: `manager.states` against `broker_states`."""

    def __init__(self, **states: str) -> None:
        self.address = BROKER
        self.manager = Manager(dict(states))
        self.traffic = Traffic()
        self.samples = Samples(1.0, self.traffic)
        self.hides = False
        self.true_hosts = True
        self.speechless = False
        self.reloaded: list[str] = []
        self.lacking: Lacking | None = None
        self.offsets = OffsetFetchResponse()
        self.broker_states = dict(states)
        self.broker = ScriptedBroker({DescribeGroupsRequest: self._describe, ListGroupsRequest: self._list})

    def epoch(self, now: float) -> float:
        return EPOCH + now

    def connect(self, *, again: bool = False) -> AbstractAsyncContextManager[KafkaClient]:
        return connect(*self.address, timeout=5)

    def reply(self, request: Struct, version: int, at: float) -> bytes | None:
        assert at == self.epoch(trio.current_time())
        return None if self.speechless else encode_reply_rest(self._reply_of(self.manager.states, request), version)

    def lacks(self, request: Struct, version: int, at: float) -> Lacking | None:
        return self.lacking

    def answered(self, *groups: str, listed: bool = False, version: int = VERSION) -> None:
        """A client is answered, by what the copy knows."""
        request = ListGroupsRequest() if listed else DescribeGroupsRequest(groups=groups)
        rest = encode_reply_rest(self._reply_of(self.manager.states, request), version)
        self.samples.take(exchange(request, version), rest)

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
    """Groups g and h, alike on both sides, being verified."""
    copy = Copy(g=STABLE, h=STABLE)
    network.brokers[BROKER] = copy.broker
    nursery.start_soon(verify_forever, copy, copy.reply, copy.lacks, copy.reloaded.append)
    return copy


async def test_answers_that_agree_are_counted(autojump_clock: MockClock, copy: Copy, network: MemoryNetwork) -> None:
    for version in (0, VERSION):
        copy.answered("g", "h", version=version)
    copy.answered(listed=True)
    await trio.sleep(1)
    assert copy.outcomes() == {Verification.AGREED: 2}
    assert copy.outcomes(LIST) == {Verification.AGREED: 1}
    assert [version for _, version in copy.broker.asked] == [0, VERSION, VERSION]
    assert len(network.attempts) == 1
    assert copy.manager.told == []


async def test_a_difference_is_told_once_with_both_sides(
    autojump_clock: MockClock, copy: Copy, lines: list[Any]
) -> None:
    copy.broker_states["h"] = EMPTY
    for _ in range(3):
        copy.answered("g", "h")
    await trio.sleep(5 * CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.DIFFERENT: 3}
    assert copy.manager.distrusted == {"h"}
    assert copy.traffic.distrusted_groups == 1
    assert copy.manager.told == [("distrust", "h", EPOCH + CATCH_UP_SECONDS)]
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


async def test_a_difference_in_a_list_is_each_groups_own(
    autojump_clock: MockClock, copy: Copy, lines: list[Any]
) -> None:
    del copy.broker_states["g"]
    copy.broker_states["i"] = EMPTY
    copy.answered(listed=True)
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    assert copy.outcomes(LIST) == {Verification.DIFFERENT: 1}
    assert copy.manager.distrusted == {"g", "i"}
    assert sorted((line["api"], line["group"]) for line in lines) == [("ListGroups", "g"), ("ListGroups", "i")]


async def test_a_copy_that_catches_up_was_not_wrong(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    assert copy.outcomes() == {}
    copy.manager.states["g"] = EMPTY
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.told == lines == []


async def test_a_group_that_changes_meanwhile_is_looked_at_once_more(
    autojump_clock: MockClock, copy: Copy, lines: list[Any]
) -> None:
    """The broker's state may have been one that the copy had between two looks."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.broker_states["g"] = "PreparingRebalance"
    copy.manager.change("g", "PreparingRebalance")
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {}
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.told == lines == []


async def test_of_several_groups_only_the_wrong_one_is_distrusted(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker_states |= {"g": EMPTY, "h": EMPTY}
    copy.answered("g", "h")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.manager.states["g"] = EMPTY
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.DIFFERENT: 1}
    assert copy.manager.distrusted == {"h"}


async def test_a_group_is_trusted_again_when_both_agreed_twice(
    autojump_clock: MockClock, copy: Copy, lines: list[Any]
) -> None:
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
    assert {request.groups for request, _ in copy.broker.asked} == {("h",)}, "it asks of that group alone"  # type: ignore[attr-defined]
    assert [line["event"] for line in lines] == [
        "an answer differs from the broker's",
        "answers agree with the broker's again",
    ]
    await trio.sleep(FOREVER)
    assert len(copy.broker.asked) == 2


async def test_it_may_differ_again_after_that(autojump_clock: MockClock, copy: Copy, lines: list[Any]) -> None:
    for state in (EMPTY, STABLE) * 2:
        copy.broker_states["g"] = state
        copy.answered("g")
        await trio.sleep(60)
    assert [what for what, _, _ in copy.manager.told] == ["distrust", "trust"] * 2
    assert len(lines) == 4


async def test_one_agreement_is_not_enough(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.manager.states["g"] = EMPTY
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)  # Once they agree.
    copy.manager.states["g"] = STABLE
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)  # Once not.
    copy.manager.states["g"] = EMPTY
    await trio.sleep(2 * FIRST_PAUSE + CATCH_UP_SECONDS)
    assert copy.manager.distrusted == {"g"}
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)
    assert copy.manager.distrusted == set()


async def test_a_question_that_is_never_answered_again_does_not_keep_its_group_distrusted(
    autojump_clock: MockClock, copy: Copy
) -> None:
    """It is one about a topic that was deleted, or the sidecar's own user may not see the group any more."""
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    assert copy.manager.distrusted == {"g"}
    copy.speechless = True
    await trio.sleep(2 ** (MOST_UNJUDGED - 1) * FIRST_PAUSE)
    assert copy.manager.distrusted == {"g"}
    await trio.sleep(2**MOST_UNJUDGED * FIRST_PAUSE)
    assert (copy.manager.distrusted, copy.reloaded) == (set(), ["g"])
    assert copy.traffic.distrusted_groups == 0


async def test_a_group_that_differs_now_and_then_stays_distrusted(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    looks = 0

    def describe(request: DescribeGroupsRequest, version: int) -> Any:
        nonlocal looks
        looks += 1
        copy.speechless = bool(looks % MOST_UNJUDGED)
        return copy._describe(request, version)

    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.broker.answers[DescribeGroupsRequest] = describe
    await trio.sleep(FOREVER)
    assert looks > 4 * MOST_UNJUDGED
    assert copy.manager.distrusted == {"g"}


async def test_it_looks_again_with_growing_pauses(autojump_clock: MockClock, copy: Copy) -> None:
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


async def test_a_copy_that_began_anew_and_still_differs_is_distrusted_anew(
    autojump_clock: MockClock, copy: Copy
) -> None:
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    copy.manager.distrusted.clear()
    await trio.sleep(FIRST_PAUSE + CATCH_UP_SECONDS)
    assert copy.manager.distrusted == {"g"}


async def test_two_apis_that_differ_must_both_agree(autojump_clock: MockClock, copy: Copy) -> None:
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


async def test_what_the_broker_does_not_tell_the_sidecar_is_skipped(
    autojump_clock: MockClock, copy: Copy, lines: list[Any]
) -> None:
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
    assert copy.manager.told == lines == []


async def test_groups_that_may_be_hidden_are_not_missed(autojump_clock: MockClock, copy: Copy) -> None:
    copy.hides = True
    del copy.broker_states["g"]
    copy.answered(listed=True)
    await trio.sleep(10)
    assert copy.outcomes(LIST) == {Verification.SKIPPED: 1}


@pytest.mark.parametrize(("true_hosts", "outcome"), [(True, Verification.AGREED), (False, Verification.DIFFERENT)])
async def test_hosts_count_where_the_brokers_word_is_told(
    autojump_clock: MockClock, copy: Copy, true_hosts: bool, outcome: Verification
) -> None:
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
    copy.samples.take(exchange(DescribeGroupsRequest(groups=("g",))), encode_reply_rest(ours, VERSION))
    await trio.sleep(CATCH_UP_SECONDS + 1)
    assert copy.outcomes() == {outcome: 1}


async def test_a_version_that_the_broker_lacks_is_skipped(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker.versions[DescribeGroupsRequest] = (0, VERSION - 1)
    copy.answered("g")
    copy.samples.take(exchange(OffsetFetchRequest(group_id="g")), encode_reply_rest(OffsetFetchResponse(), VERSION))
    await trio.sleep(10)
    assert copy.outcomes() == {Verification.SKIPPED: 1}
    assert copy.outcomes(FETCH) == {Verification.SKIPPED: 1}
    assert copy.broker.asked == []


async def test_a_copy_that_can_no_longer_answer_is_not_judged(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.speechless = True
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.told == []


async def test_a_copy_that_would_not_answer_now_is_not_judged(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker_states["g"] = EMPTY
    copy.answered("g")
    await trio.sleep(CATCH_UP_SECONDS / 2)
    copy.lacking = Lacking.UNSTABLE
    await trio.sleep(CATCH_UP_SECONDS)
    assert copy.outcomes() == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.told == []


async def test_offsets_are_asked_for_again_as_nobody(autojump_clock: MockClock, copy: Copy) -> None:
    def offset(number: int) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=number, metadata="", error_code=0)
        topic = OffsetFetchResponseTopic(name="t", partitions=(partition,))
        return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,)),))

    copy.broker.answers[OffsetFetchRequest] = offset(2)
    copy.offsets = offset(1)
    member = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=5, topics=None)
    other = OffsetFetchRequestGroup(group_id="other", topics=())
    question = exchange(OffsetFetchRequest(groups=(member, other), require_stable=True), 9)
    copy.samples.take(question, encode_reply_rest(offset(1), 9))
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE + 1)
    assert copy.manager.distrusted == {"g"}
    *first, again = copy.broker.requests(OffsetFetchRequest)
    assert first == [question.request] * 2
    nobody = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert again == OffsetFetchRequest(groups=(nobody,), require_stable=True)


async def test_an_error_of_the_whole_is_not_judged(autojump_clock: MockClock, copy: Copy) -> None:
    copy.broker.answers[ListGroupsRequest] = ListGroupsResponse(error_code=15, groups=())
    copy.manager.states.clear()
    copy.answered(listed=True)
    await trio.sleep(10)
    assert copy.outcomes(LIST) == {Verification.INCONCLUSIVE: 1}
    assert copy.manager.told == []


async def test_a_broker_that_does_not_answer_costs_the_sample(
    autojump_clock: MockClock, copy: Copy, lines: list[Any]
) -> None:
    copy.broker.answers[DescribeGroupsRequest] = HangUp()
    for _ in range(3):
        copy.answered("g")
    await trio.sleep(10)
    assert copy.outcomes() == {Verification.LOST: 3}
    reason = "broker:9092 closed the connection at DescribeGroups: it may want SASL"
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


async def test_a_group_is_looked_at_again_though_the_broker_was_gone(
    autojump_clock: MockClock, copy: Copy, network: MemoryNetwork
) -> None:
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


async def test_a_fault_of_our_own_is_logged_and_borne(
    autojump_clock: MockClock, copy: Copy, lines: list[Any], monkeypatch: Any
) -> None:
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


async def test_the_connection_is_closed_when_there_is_nothing_to_ask(
    autojump_clock: MockClock, copy: Copy, network: MemoryNetwork
) -> None:
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


async def test_large_answers_are_compared_in_a_thread(
    autojump_clock: MockClock, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[Any] = []
    run_sync = trio.to_thread.run_sync

    async def noted(job: Any) -> Any:
        threads.append(job)
        return await run_sync(job)

    monkeypatch.setattr(trio.to_thread, "run_sync", noted)
    names = [f"group {number:064}" for number in range(LARGEST_AT_ONCE // 64)]
    copy.manager.states = dict.fromkeys(names, STABLE)
    copy.broker_states = dict.fromkeys(reversed(names), STABLE)
    copy.answered(listed=True)
    await holds(lambda: bool(copy.outcomes(LIST)))
    assert copy.outcomes(LIST) == {Verification.AGREED: 1}
    assert len(threads) == 1


def test_what_a_client_is_told_is_taken_as_it_was_told() -> None:
    copy = certain_copy(answers={"exclusive": True, "authorizer": "none", "verify": 1.0})
    [line] = settled(copy, "m")
    for version in (0, VERSION):
        told = to_client(line.says(DescribeGroupsRequest(groups=("g",)), version))
        sample = copy.samples.receiving.receive_nowait()
        assert sample.answer == told[8:]
        assert (sample.exchange.request, sample.exchange.version) == (DescribeGroupsRequest(groups=("g",)), version)


def test_what_is_left_to_the_broker_is_not_taken() -> None:
    copy = certain_copy(answers={"exclusive": True, "authorizer": "none", "verify": 1.0})
    [line] = settled(copy, "m")
    copy.manager.distrust("g", EPOCH)
    assert to_client(line.says(DescribeGroupsRequest(groups=("g",)), VERSION)) == b""
    with pytest.raises(trio.WouldBlock):
        copy.samples.receiving.receive_nowait()
    copy.manager.trust("g", EPOCH)


def test_a_share_of_all_is_taken() -> None:
    traffic = Traffic()
    taken = []
    for share in (0.0, 0.3, 1.0):
        samples = Samples(share, traffic)
        for _ in range(MOST_WAITING):
            samples.take(exchange(ListGroupsRequest()), b"")
        taken.append(samples.receiving.statistics().current_buffer_used)
    assert taken[0] == 0
    assert 0 < taken[1] < taken[2] == MOST_WAITING
    assert traffic.verifications == {}


def test_what_does_not_fit_is_lost_and_counted() -> None:
    traffic = Traffic()
    samples = Samples(1.0, traffic)
    for _ in range(MOST_WAITING + 2):
        samples.take(exchange(ListGroupsRequest()), b"")
    assert traffic.verifications == {(LIST, Verification.LOST): 2}


def test_while_it_rests_none_is_taken() -> None:
    traffic = Traffic()
    samples = Samples(1.0, traffic)
    samples.rest(60.0)
    samples.take(exchange(ListGroupsRequest()), b"")
    assert traffic.verifications == {(LIST, Verification.LOST): 1}
    samples.rest(0.0)
    samples.take(exchange(ListGroupsRequest()), b"")
    assert samples.receiving.statistics().current_buffer_used == 1


async def test_no_more_is_looked_for_while_too_much_differs(
    autojump_clock: MockClock, copy: Copy, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification_window, "LARGEST_AT_ONCE", 1 << 20)  # A thread would not have the test's clock.
    names = [f"g{number}" for number in range(MOST_CASES)]
    copy.manager.states = dict.fromkeys(names, STABLE)
    copy.broker_states = dict.fromkeys(names, EMPTY)
    copy.answered(*names)
    await trio.sleep(CATCH_UP_SECONDS + FIRST_PAUSE / 2)
    assert copy.traffic.distrusted_groups == MOST_CASES
    copy.answered(names[0])
    assert copy.outcomes() == {Verification.DIFFERENT: 1, Verification.LOST: 1}
    copy.manager.states = dict.fromkeys(names, EMPTY)
    assert [(line["log_level"], line["others"]) for line in lines] == [("warning", MOST_CASES - MOST_TOLD)] * MOST_TOLD
    await trio.sleep(LONGEST_PAUSE)
    assert copy.traffic.distrusted_groups == 0
    copy.answered(names[0])
    await trio.sleep(1)
    assert copy.outcomes()[Verification.AGREED] == 1
