"""Unauthorized clients cannot keep others out of a limited group, with the broker's limit or with the sidecar's limit.

The broker authorizes a join before it counts members. So joins of unauthorized clients do not count for the broker's
`group.max.size`. The sidecar's limit must accept the same joins, and no generation may exceed it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, ResourcePatternType

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from tests.conformance.authorized_broker import (
    ADMIN,
    ALLOW,
    GROUP,
    READ,
    administrator,
    authorizing,
    connected,
    done,
    joining,
    password,
    prepare,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

LIMIT = 5
ATTACKERS = LIMIT + 1
JOINS = 30
IN_FLIGHT = 20
TIMEOUT_MS = 30_000
FULL, DENIED = ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_AUTHORIZATION_FAILED
RIGHTFUL, REFUSED = "alice", "nobody"


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Address]]:
    """The addresses of a broker with a limit, and of a sidecar with this limit before a broker without one."""
    folder = tmp_path_factory.mktemp("attack")
    with ExitStack() as stack:
        limited = started(stack, folder / "limited", {"group.max.size": str(LIMIT)})
        free = started(stack, folder / "free", {})
        settings = {
            "answers": {"exclusive": True},
            "own_connection": {"sasl": {"mechanism": "PLAIN", "username": ADMIN, "password": password(ADMIN)}},
            "policies": {"group_max_size": {"limit": LIMIT, "error_code": int(FULL)}},
        }
        sidecar = SidecarProcess(
            folder / "sidecar", listen=free.sasl_sidecar, upstream=free.sasl_client, settings=settings
        )
        sidecar = stack.enter_context(sidecar)
        sidecar.process.wait_until(lambda: sidecar.get("/readyz")[0] == 200)
        yield {"broker": limited.sasl_direct, "sidecar": free.sasl_sidecar}


def started(stack: ExitStack, folder: Path, properties: dict[str, str]) -> KafkaBroker:
    broker = stack.enter_context(KafkaBroker(folder, properties={**authorizing(), **properties}, sasl=True))
    prepare(broker)
    may_read = AclBinding(GROUP, "limited", ResourcePatternType.PREFIXED, f"User:{RIGHTFUL}", "*", READ, ALLOW)
    admin = administrator(broker.sasl_direct)  # The reference keeps the client until its answer arrives.
    done(admin.create_acls([may_read]))
    return broker


# Attacks. Each is repeated.


def refused(stack: ExitStack, at: Address, group: str) -> None:
    """Sends joins of an unauthorized user. Some are always in flight."""
    wire = connected(stack, at, REFUSED)
    for _ in range(5):
        sent = [wire.send_request(joining(group, TIMEOUT_MS), 3) for _ in range(IN_FLIGHT)]
        codes = {wire.receive_reply(joining(group, TIMEOUT_MS), 3, each).error_code for each in sent}
        assert codes == {DENIED}


def cut(stack: ExitStack, at: Address, group: str) -> None:
    """Sends joins of an unauthorized user. The connection ends while they are in flight."""
    wire = connected(stack, at, REFUSED)
    for _ in range(IN_FLIGHT):
        wire.send_request(joining(group, TIMEOUT_MS), 3)


def unauthenticated(stack: ExitStack, at: Address, group: str) -> None:
    """Sends a join before authentication, for which the broker closes the connection."""
    wire = stack.enter_context(Wire(at))
    wire.send_request(joining(group, TIMEOUT_MS), 3)
    assert wire.closed()


Attack = Callable[[ExitStack, Address, str], None]
ATTACKS: tuple[Attack, ...] = (refused, cut, unauthenticated)


@contextmanager
def under(attack: Attack, at: Address, group: str) -> Iterator[None]:
    """Runs an attack on several connections at once until the block ends."""
    over, begun, failures = Event(), [Event() for _ in range(ATTACKERS)], list[BaseException]()

    def attacker(begins: Event) -> None:
        while not over.is_set():
            try:
                with ExitStack() as stack, suppress(ConnectionError):
                    attack(stack, at, group)
            except BaseException as error:  # noqa: BLE001  The error is raised when the test ends.
                failures.append(error)
                return
            finally:
                begins.set()

    threads = [Thread(target=attacker, args=(each,)) for each in begun]
    for thread in threads:
        thread.start()
    try:
        for each in begun:
            each.wait()
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def codes_of_joins(at: Address, group: str) -> list[int]:
    """An authorized user repeatedly joins an empty group and leaves it. Returns the error codes of the joins."""
    codes = []
    with ExitStack() as stack:
        wire = connected(stack, at, RIGHTFUL)
        for _ in range(JOINS):
            joined: Any = wire.ask(joining(group, TIMEOUT_MS), 3)
            codes.append(joined.error_code)
            if not joined.error_code:
                wire.ask(LeaveGroupRequest(group_id=group, member_id=joined.member_id), 2)
    return codes


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("way", ["broker", "sidecar"])
def test_unauthorized_joins_do_not_block(ways: dict[str, Address], way: str, attack: Attack) -> None:
    """Joins of clients without rights do not keep a rightful client out of a limited group."""
    group = f"limited {attack.__name__}"
    with under(attack, ways[way], group):
        codes = codes_of_joins(ways[way], group)
    assert codes == [0] * JOINS


@pytest.mark.parametrize("way", ["broker", "sidecar"])
def test_simultaneous_joins_stay_within_limit(ways: dict[str, Address], way: str) -> None:
    """Simultaneous rightful joins on fresh connections stay within the limit."""
    group = "limited at once"
    with ExitStack() as stack:
        keeper = connected(stack, ways[way], RIGHTFUL)
        assert keeper.ask(joining(group, TIMEOUT_MS), 3).error_code == 0  # It parks later joins.
        wires = [connected(stack, ways[way], RIGHTFUL) for _ in range(3 * LIMIT)]
        sent = {wire: wire.send_request(joining(group, TIMEOUT_MS), 3) for wire in wires}
        for _ in range(2 * LIMIT):  # The joins of the others wait for the keeper.
            wire = next(wire for wire in cycle(sent) if wire.readable(0.01))
            assert wire.receive_reply(joining(group, TIMEOUT_MS), 3, sent.pop(wire)).error_code == FULL
        members = keeper.ask(DescribeGroupsRequest(groups=(group,)), 5).groups[0].members
        assert len(members) <= 1 + LIMIT, "only the keeper may exceed the limit, because it has not joined again"
