"""Groups of every kind and state. They keep their states while tests ask questions about them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.conformance.librdkafka import consume, consumer, create_topic, poll_until, produce, settled
from tests.conformance.routes import Run
from tests.kafka.dialect import Client, Dialect
from tests.kafka.group_members import ClassicMember

SETTLED = ("stable", "static", "empty", "simple")
"""Classic groups without a rebalance."""
UNSETTLED = ("completing", "preparing", "new")
"""Classic groups in a rebalance, and a group of the new protocol."""
GROUPS = (*SETTLED, *UNSETTLED)
PARTITIONS = 4


def held(run: Run, group: str) -> ClassicMember:
    """Returns a classic member of the topic ``topic`` that acts only on request, so that its group keeps its state."""
    way = Client(run.route.plain, Dialect.of(run.route.plain), run.name("raw"))
    return ClassicMember(way, run.name(group), run.name("topic"))


@contextmanager
def population(run: Run, groups: Sequence[str] = GROUPS) -> Iterator[None]:
    """Creates the run's groups of these kinds, each held in its state, with the topics ``topic`` and ``other``."""
    with ExitStack() as stack:
        create_topic(run, "topic", PARTITIONS)
        create_topic(run, "other")
        produce(run, "topic", [str(number) for number in range(20)])
        for group in groups:
            _MAKERS[group](run, stack)
        yield


def _members(run: Run, stack: ExitStack, group: str, *settings: dict[str, Any]) -> None:
    """Creates a group with one consumer for each of the settings. The first consumer commits an offset."""
    members: list[Consumer] = []
    for number, own in enumerate(settings):
        client_id = run.name(f"{group}-{number}")
        members.append(stack.enter_context(consumer(run, group, ["topic"], client_id=client_id, **own)))
    poll_until(members, settled(members, PARTITIONS), f"{group} to settle")
    place = TopicPartition(run.name("topic"), 1, 2, metadata="a note")
    members[0].commit(offsets=[place], asynchronous=False)


def _stable(run: Run, stack: ExitStack) -> None:
    _members(run, stack, "stable", {}, {})


def _static(run: Run, stack: ExitStack) -> None:
    _members(run, stack, "static", *({"group_instance_id": run.name(f"instance-{number}")} for number in range(2)))


def _new(run: Run, stack: ExitStack) -> None:
    _members(run, stack, "new", {"group_protocol": "consumer"}, {"group_protocol": "consumer"})


def _empty(run: Run, stack: ExitStack) -> None:
    consume(run, "empty", ["topic"], 20)


def _simple(run: Run, stack: ExitStack) -> None:
    """Commits without a member. The broker keeps such a group as a group without a protocol."""
    with consumer(run, "simple", []) as client:
        client.commit(offsets=[TopicPartition(run.name("topic"), 0, 1)], asynchronous=False)


def _completing(run: Run, stack: ExitStack) -> None:
    """The leader has joined and never syncs."""
    stack.enter_context(held(run, "completing")).join()


def _preparing(run: Run, stack: ExitStack) -> None:
    """One member's join is parked until the other member joins again, which it never does."""
    first = stack.enter_context(held(run, "preparing"))
    first.join()
    first.sync()
    stack.enter_context(held(run, "preparing")).send_join()


_MAKERS: dict[str, Callable[[Run, ExitStack], None]] = {
    "stable": _stable,
    "static": _static,
    "empty": _empty,
    "simple": _simple,
    "completing": _completing,
    "preparing": _preparing,
    "new": _new,
}
