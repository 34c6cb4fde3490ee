"""Several Kafka nodes as one cluster. Topics that must survive the loss of a node are replicated to all nodes."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.releases import NEWEST
from tests.kafka.wire import ask

_NAMES = tuple(f"any {number}" for number in range(100))
"""Group names. Each partition of the offsets topic stores at least one of these groups."""


@contextmanager
def kafka_cluster(
    folder: Path, nodes: int = 3, properties: Mapping[str, str] | None = None, version: str = NEWEST
) -> Iterator[tuple[KafkaBroker, ...]]:
    """Runs nodes 1 to `nodes` for the length of a with statement. Node 1 is the controller and must stay alive.

    Args:
        folder: an empty folder for all nodes.
        nodes: the number of nodes, at least two.
        properties: broker properties that override the defaults, for each node.
        version: as in `KafkaBroker`. Requires Kafka 3.5.
    """
    shared = {
        "offsets.topic.replication.factor": str(nodes),
        "default.replication.factor": str(nodes),
        "transaction.state.log.replication.factor": str(nodes),
        **(properties or {}),
    }
    first = KafkaBroker(folder / "1", version=version, properties=shared)
    others = [
        KafkaBroker(folder / str(node), version=version, properties={**shared, "node.id": str(node)}, joins=first)
        for node in range(2, nodes + 1)
    ]
    with ExitStack() as stack, ThreadPoolExecutor() as together:
        stack.enter_context(first)
        list(together.map(stack.enter_context, others))
        wait_for_coordinators((first, *others))
        yield (first, *others)


def wait_for_coordinators(brokers: tuple[KafkaBroker, ...]) -> None:
    """Waits until every group has a coordinator: the offsets topic is created, has leaders, and is loaded."""
    question = DescribeGroupsRequest(groups=_NAMES)

    def there() -> bool:
        ask(brokers[0].direct, FindCoordinatorRequest(key="any"), 0)  # The first such request creates the topic.
        known = {
            group.group_id
            for broker in brokers
            for group in ask(broker.direct, question, 0).groups
            if group.error_code == 0
        }
        return known == set(_NAMES)

    until(there, "every group has a coordinator")
