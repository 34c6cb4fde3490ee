"""Creates traffic of real clients in a consumer group, so that the dashboards have data to show.

The clients produce, consume, commit and rebalance. One more client is refused, because the group is full.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conformance.librdkafka import consumer, create_topic, poll_until, produce, settled
from tests.conformance.routes import Run

GROUP, TOPIC, PARTITIONS = "billing", "orders", 4
MOST_MEMBERS = 2
_ROUND_SECONDS = 0.05


@contextmanager
def life(run: Run) -> Iterator[None]:
    """Runs the clients until the with block ends. When the block begins, the group has rebalanced and is full."""
    create_topic(run, TOPIC, PARTITIONS)
    produce(run, TOPIC, [f"order {number}" for number in range(400)])
    with ExitStack() as stack:
        members = []
        for count in range(1, MOST_MEMBERS + 1):
            members.append(stack.enter_context(consumer(run, GROUP, [TOPIC])))
            poll_until(members, settled(members, PARTITIONS), f"a group of {count}")
        refused = stack.enter_context(consumer(run, GROUP, [TOPIC]))
        with _in_background(_Crowd(run, members, refused)):
            yield


class _Crowd:
    """The group's members, the refused consumer, a producer and an admin client, which act in rounds."""

    def __init__(self, run: Run, members: list[Consumer], refused: Consumer) -> None:
        self._members, self._refused = members, refused
        self._topic = run.name(TOPIC)
        self._producer = Producer({"bootstrap.servers": run.bootstrap})
        self._admin = AdminClient({"bootstrap.servers": run.bootstrap})

    def round(self) -> None:
        """Produces a record, polls every consumer, commits, fetches an offset and lists the groups."""
        self._producer.produce(self._topic, "another one")
        self._producer.poll(0)
        self._refused.poll(0)  # Each poll returns the error of the refusal again.
        for member in self._members:
            message = member.poll(0)
            if message is not None and message.error() is None:
                member.commit(message=message)
        [partition] = self._members[0].committed([TopicPartition(self._topic, 0)])
        assert partition.error is None, partition.error
        self._admin.list_consumer_groups().result(10)

    def close(self) -> None:
        """Waits up to 10 seconds until the broker has all produced records."""
        self._producer.flush(10)


@contextmanager
def _in_background(crowd: _Crowd) -> Iterator[None]:
    over = Event()
    failures: list[Exception] = []

    def live() -> None:
        try:
            while not over.wait(_ROUND_SECONDS):
                crowd.round()
        except Exception as failure:  # noqa: BLE001 - asserted after the thread is joined
            failures.append(failure)

    thread = Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        crowd.close()
    assert not failures, failures
