"""Groups exceed a limit that is set later. The sidecar removes members until each group fits. The rest continue."""

import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.proxy.broker.shrink import GROUPS_A_SECOND
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import MINUTES, ClassicMember, succeeded
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import free_addresses
from tests.kafka.sidecar_process import SidecarProcess

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, REFUSED = 25, 27, 77
_INITIAL = 5
_DESCRIBE_UNTIL = 5  # v6 describes missing groups in another form.


@dataclass
class Stage:
    """A broker without limits, and the name of a group."""

    broker: KafkaBroker
    folder: Path
    group: str

    def __post_init__(self) -> None:
        self.dialect = Dialect.of(self.broker.direct)
        self.direct = Client(self.broker.direct, self.dialect)

    def described(self, group: str = "") -> DescribedGroup:
        """Returns the broker's own description of a group."""
        reply = self.direct.ask(DescribeGroupsRequest(groups=(group or self.group,)), _DESCRIBE_UNTIL)
        [description] = reply.groups
        assert isinstance(description, DescribedGroup)
        return description

    @contextmanager
    def gathered(
        self, size: int, group: str = "", instances: Sequence[str | None] = ()
    ) -> Iterator[list[ClassicMember]]:
        """Runs a Stable group of `size` members, which connect directly to the broker."""
        group = group or self.group
        with ExitStack() as stack:
            members = [
                stack.enter_context(ClassicMember(self.direct, group, "topic", instance_id=instance))
                for instance in instances or [None] * size
            ]
            members[0].join()
            members[0].sync()
            for member in members[1:]:
                member.send_join()
            until(lambda: len(self.described(group).members) == size, "all members have joined")
            members[0].send_join()
            complete(members)
            yield members

    @contextmanager
    def sidecar(self, limit: int, *, exclusive: bool = False, mode: str = "enforce") -> Iterator[SidecarProcess]:
        """Runs a sidecar in front of the broker, with a limit for this stage's groups."""
        [listen] = free_addresses(1)
        settings = self.settings(limit, mode=mode) | {"answers": {"exclusive": exclusive}}
        with SidecarProcess(self.folder, listen=listen, upstream=self.broker.client, settings=settings) as sidecar:
            yield sidecar

    def settings(self, limit: int, mode: str = "enforce") -> dict[str, Any]:
        override = {"pattern": f"{self.group}.*", "limit": limit}
        return {"policies": {"group_max_size": {"overrides": [override], "mode": mode}}}

    def newcomer(self, address: tuple[str, int]) -> int:
        """Tries to join the group as a new client. Returns the error code."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=MINUTES,
            rebalance_timeout_ms=MINUTES,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=b""),),
        )
        return int(Client(address, self.dialect).ask(request).error_code)


def complete(members: Sequence[ClassicMember]) -> None:
    """Completes the rebalance of members that have all sent their joins."""
    for member in members:
        succeeded(member.receive_join())
    for member in members:
        member.send_sync()
    for member in members:
        succeeded(member.receive_sync())


def go_on(members: Sequence[ClassicMember]) -> None:
    """Makes the remaining members join again, as clients do in a rebalance."""
    for member in members:
        assert member.heartbeat() == REBALANCE_IN_PROGRESS
    for member in members:
        member.send_join()
    complete(members)


def lines(sidecar: SidecarProcess, event: str) -> list[dict[str, Any]]:
    """Returns the log lines of this event."""
    return [line for line in json_lines(sidecar.process.log) if line["event"] == event]


def wait_for(sidecar: SidecarProcess, event: str, count: int = 1) -> list[dict[str, Any]]:
    sidecar.process.wait_until(lambda: len(lines(sidecar, event)) >= count)
    return lines(sidecar, event)


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("1.1.1", marks=pytest.mark.long)])
def broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with KafkaBroker(folder / "broker", version=request.param) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture
def stage(broker: KafkaBroker, tmp_path: Path) -> Stage:
    return Stage(broker, tmp_path, f"g{secrets.token_hex(5)}")


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "not exclusive"])
def test_older_group_is_shrunk(stage: Stage, *, exclusive: bool) -> None:
    """A group that exceeded the limit before the sidecar started is shrunk once, keeps its leader and stabilizes."""
    with stage.gathered(_INITIAL) as members, stage.sidecar(3, exclusive=exclusive) as sidecar:
        [leader] = [member.member_id for member in members if member.leads]
        [line] = wait_for(sidecar, "group shrunk")
        assert (line["group"], line["size"], line["limit"], line["removed"]) == (stage.group, _INITIAL, 3, 2)
        left = {member.member_id for member in stage.described().members}
        assert len(left) == 3
        assert leader in left
        if exclusive:
            for member in members:
                member.reconnect(Client(sidecar.listen, stage.dialect))
        removed = [member for member in members if member.member_id not in left]
        go_on([member for member in members if member not in removed])
        assert [member.heartbeat() for member in removed] == [UNKNOWN_MEMBER_ID] * 2
        description = stage.described()
        assert (description.group_state, {member.member_id for member in description.members}) == ("Stable", left)
        assert stage.newcomer(sidecar.listen) == REFUSED
        assert sidecar.metric("group_sidecar_policy_rejections_total", policy="group_max_size") == 3
        assert len(lines(sidecar, "group shrunk")) == 1


@pytest.mark.parametrize("broker", ["4.4.0"], indirect=True)
def test_static_members_are_removed(stage: Stage) -> None:
    """Static members are removed from a group over its limit until the group fits."""
    instances = [f"instance {number}" for number in range(_INITIAL)]
    with stage.gathered(_INITIAL, instances=instances) as members, stage.sidecar(2) as sidecar:
        [line] = wait_for(sidecar, "group shrunk")
        assert line["removed"] == 3
        left = {member.group_instance_id: member.member_id for member in stage.described().members}
        assert len(left) == 2
        go_on([member for member in members if member.member_id in left.values()])
        assert stage.described().group_state == "Stable"
        assert stage.newcomer(sidecar.listen) == REFUSED


def test_audit_mode_only_reports(stage: Stage) -> None:
    """In audit mode, a group over its limit is reported and no member is removed."""
    with stage.gathered(_INITIAL) as members, stage.sidecar(3, mode="audit") as sidecar:
        [line] = wait_for(sidecar, "group over its limit")
        assert (line["group"], line["size"], line["limit"], line["surplus"]) == (stage.group, _INITIAL, 3, 2)
        assert [member.heartbeat() for member in members] == [0] * _INITIAL
        description = stage.described()
        assert (description.group_state, len(description.members)) == ("Stable", _INITIAL)
        assert sidecar.metric("group_sidecar_policy_rejections_total", policy="group_max_size") == 0


def test_lowered_limit_shrinks_group(stage: Stage) -> None:
    """Each time the limit is lowered at runtime, the group is shrunk."""
    with stage.gathered(_INITIAL) as members, stage.sidecar(_INITIAL) as sidecar:
        sidecar.wait_for_log()
        assert [member.heartbeat() for member in members] == [0] * _INITIAL
        for times, limit in enumerate((4, 2), 1):
            sidecar.write(stage.settings(limit))
            sidecar.process.running.send_signal(signal.SIGHUP)
            wait_for(sidecar, "group shrunk", times)
            left = {member.member_id for member in stage.described().members}
            assert len(left) == limit
            members[:] = [member for member in members if member.member_id in left]
            go_on(members)
        assert stage.described().group_state == "Stable"


def test_groups_are_shrunk_at_limited_rate(stage: Stage) -> None:
    """Many groups are shrunk at no more than GROUPS_A_SECOND groups per second."""
    names = [f"{stage.group} {number}" for number in range(2 * GROUPS_A_SECOND + 1)]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(stage.gathered(2, name))
        sidecar = stack.enter_context(stage.sidecar(1))
        shrunk = wait_for(sidecar, "group shrunk", len(names))
        assert sorted(line["group"] for line in shrunk) == sorted(names)
        assert {len(stage.described(name).members) for name in names} == {1}
        times = [datetime.fromisoformat(line["timestamp"]).timestamp() for line in shrunk]
        windows = zip(times, times[GROUPS_A_SECOND:], strict=False)
        assert min(later - first for first, later in windows) > 0.9
