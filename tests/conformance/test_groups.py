"""Groups of librdkafka clients: joins, leaves, static members, and the new protocol."""

from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.conformance.librdkafka import (
    assigned,
    committed,
    consumer,
    create_topic,
    poll_until,
    produce,
    settled,
)
from tests.conformance.routes import Routes, Run
from tests.kafka.processes import GIVE_UP_SECONDS

PARTITIONS = 6
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "roundrobin": {"partition_assignment_strategy": "roundrobin"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "new": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalances_share_partitions_evenly(routes: Routes, protocol: str) -> None:
    """Joins and leaves share all partitions evenly, directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", PARTITIONS)
        shares = []
        with ExitStack() as stack:
            members: list[Consumer] = []
            for _ in range(3):
                members.append(stack.enter_context(consumer(run, "group", ["topic"], **PROTOCOLS[protocol])))
                shares.append(_shares_once_settled(members))
            members.pop(0).close()
            shares.append(_shares_once_settled(members))
        return shares

    assert routes.compare(scenario) == [[6], [3, 3], [2, 2, 2], [3, 3]]


def _shares_once_settled(members: list[Consumer]) -> list[int]:
    poll_until(members, settled(members, PARTITIONS), f"{len(members)} members to settle")
    return [len(share) for share in assigned(members)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalance_loses_and_repeats_nothing(routes: Routes, protocol: str) -> None:
    """No message is lost or read twice over a rebalance."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", PARTITIONS)
        with ExitStack() as stack:

            def member() -> Consumer:
                return stack.enter_context(consumer(run, "group", ["topic"], **PROTOCOLS[protocol]))

            members = [member()]
            produce(run, "topic", [f"first {number}" for number in range(60)])
            messages = poll_until(members, lambda seen: len(seen) >= 60, "the first messages")
            members[0].commit(asynchronous=False)
            members.append(member())
            poll_until(members, settled(members, PARTITIONS), "two members to settle")
            produce(run, "topic", [f"second {number}" for number in range(60)])
            messages += poll_until(members, lambda seen: len(seen) >= 60, "the second messages")
            for each in members:
                each.commit(asynchronous=False)
        return sorted((message.value() or b"").decode() for message in messages), committed(
            run, "group", "topic", PARTITIONS
        )

    values, offsets = routes.compare(scenario)
    assert values == sorted(f"{which} {number}" for which in ("first", "second") for number in range(60))
    assert offsets == [20] * PARTITIONS


@pytest.mark.parametrize("protocol", ["range", "new"])
def test_static_restart_causes_no_rebalance(routes: Routes, protocol: str) -> None:
    """A static member that restarts causes no rebalance and keeps its partitions."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", PARTITIONS)
        rebalances: list[str] = []
        with ExitStack() as stack:

            def member(instance: str) -> Consumer:
                settings = {**PROTOCOLS[protocol], "group_instance_id": run.name(instance)}
                noted = rebalances if instance == "stays" else None
                return stack.enter_context(consumer(run, "group", ["topic"], rebalances=noted, **settings))

            stays, goes = member("stays"), member("goes")
            poll_until([stays, goes], settled([stays, goes], PARTITIONS), "both members to settle")
            before = [assigned([each]) for each in (stays, goes)]
            rebalances.clear()
            goes.close()
            returns = member("goes")
            poll_until([stays, returns], settled([stays, returns], PARTITIONS), "the member that came back")
            after = [assigned([each]) for each in (stays, returns)]
            return before == after, list(rebalances)

    same, rebalances = routes.compare(scenario)
    assert same
    assert rebalances == []


def test_same_instance_id_fences_first_client(routes: Routes) -> None:
    """A second client with the same instance id fences the first client."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", PARTITIONS)
        instance = run.name("instance")
        with consumer(run, "group", ["topic"], group_instance_id=instance) as first:
            poll_until([first], settled([first], PARTITIONS), "the first to settle")
            with consumer(run, "group", ["topic"], group_instance_id=instance) as second:
                poll_until([second], settled([second], PARTITIONS), "the second to settle")
                return _error_of(first)

    assert "Static consumer fenced by other consumer with same group.instance.id" in routes.compare(scenario)


def _error_of(client: Consumer) -> str:
    """Returns the error that the client reports instead of messages."""
    message = client.poll(GIVE_UP_SECONDS)
    assert message is not None, "no error was reported"
    error = message.error()
    assert error is not None, "the client returned a message instead of an error"
    return error.str()


def test_pattern_finds_later_topics(routes: Routes) -> None:
    """A subscribed pattern finds topics that are created later."""

    def scenario(run: Run) -> Any:
        create_topic(run, "first")
        with consumer(run, "group", [f"^{run.prefix}-.*"], topic_metadata_refresh_interval_ms=300) as client:
            poll_until([client], settled([client], 1), "the first topic")
            create_topic(run, "second")
            poll_until([client], settled([client], 2), "the second topic")
            return assigned([client])

    assert routes.compare(scenario) == [[("run-first", 0), ("run-second", 0)]]
