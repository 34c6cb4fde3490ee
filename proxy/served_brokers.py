"""The brokers that the sidecar serves, and the background tasks of each broker.

`sidecar` decides which client connection belongs to which broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import trio

from group_sidecar.coordinator.answer_requirements import fallback_reason
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.admin.sources import LogStatuses, Unreachable
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.probe import ProbeTrigger, probe_forever
from group_sidecar.proxy.broker.reconcile import reconcile_forever
from group_sidecar.proxy.broker.shrink import shrink_forever
from group_sidecar.proxy.broker.verification import verify_forever
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from group_sidecar.proxy.offsets_log.tail import OffsetsTail
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.supervision import Supervisor


@dataclass(frozen=True, slots=True)
class ServedBroker:
    """One broker with its parts. `tail` is None if the sidecar does not read ``__consumer_offsets``."""

    copy: BrokerState
    dispatcher: BrokerDispatcher
    tail: OffsetsTail | None
    probe_trigger: ProbeTrigger

    @classmethod
    def create(cls, copy: BrokerState, config: Config) -> "ServedBroker":
        """Creates the parts around a copy. `start` runs them."""
        return cls(copy, BrokerDispatcher(copy), OffsetsTail(copy) if config.offsets_log.read else None, ProbeTrigger())

    def start(self, tasks: trio.Nursery, supervisor: Supervisor) -> None:
        """Starts the background tasks."""
        copy, tail = self.copy, self.tail
        tasks.start_soon(probe_forever, copy, supervisor, self.probe_trigger)
        tasks.start_soon(reconcile_forever, copy, supervisor)
        tasks.start_soon(shrink_forever, copy, supervisor)
        if copy.config.answers.verify:
            tasks.start_soon(
                verify_forever,
                copy,
                ReplyBuilder(copy).build_uncached,
                lambda request, version, at: fallback_reason(request, version, copy.manager, at),
                tail.reload_group if tail else lambda group: copy.forget_group_state(group, trio.current_time()),
                supervisor,
            )
        if tail:
            tasks.start_soon(tail.run, supervisor)


class ServedBrokers:
    """The known brokers by upstream address. In a gateway, one broker may have two addresses."""

    def __init__(self) -> None:
        self._by_address: dict[Address, ServedBroker] = {}

    def __contains__(self, address: Address) -> bool:
        return address in self._by_address

    def __iter__(self) -> Iterator[ServedBroker]:
        """Yields each broker once."""
        return iter({id(broker): broker for broker in self._by_address.values()}.values())

    def get(self, address: Address) -> ServedBroker | None:
        """Returns the broker at an address, or None if the address is unknown."""
        return self._by_address.get(address)

    def put(self, address: Address, broker: ServedBroker) -> None:
        """Registers a broker under an address."""
        self._by_address[address] = broker

    def copies(self) -> list[BrokerState]:
        """Returns the copy of each broker."""
        return [broker.copy for broker in self]

    def managers(self) -> list[GroupMetadataManager]:
        """Returns the group manager of each broker."""
        return [broker.copy.manager for broker in self]

    def tails(self) -> list[OffsetsTail]:
        """Returns the tail of each broker whose log is read."""
        return [broker.tail for broker in self if broker.tail]

    async def committed_partitions(self) -> set[TopicPartition]:
        """Returns the partitions for which a group of any broker has committed offsets."""
        return set().union(*[await copy.own_partitions() for copy in self.copies()])

    def are_ready(self) -> bool:
        """Whether all brokers answer the sidecar."""
        return all(broker.copy.ready()[0] for broker in self)

    def count_refusing(self) -> int:
        """Returns how many reachable brokers refuse the sidecar's own connection, or deny it the right to read the
        log.
        """
        reached = (broker for broker in self if broker.copy.ready()[0])
        return sum(broker.copy.refuses_sidecar or bool(broker.tail and broker.tail.denied) for broker in reached)

    def is_reachable(self, address: Address) -> bool:
        """Whether the broker at an address answers the sidecar."""
        broker = self._by_address.get(address)
        return broker is not None and broker.copy.ready()[0]

    def unreachable(self) -> list[Unreachable]:
        """Returns the brokers that do not answer, each with the time of the first failure and the reason."""
        return [Unreachable(str(copy.address), *copy.unreachable) for copy in self.copies() if copy.unreachable]

    def log_statuses(self) -> LogStatuses:
        """Returns, by broker address, how far the broker's log was read."""
        return {str(broker.copy.address): broker.tail.status() for broker in self if broker.tail}

    def probe_now(self, address: Address) -> None:
        """Starts the next probe of a broker early; see `ProbeTrigger.fire`. Ignores an unknown address."""
        if address in self._by_address:
            self._by_address[address].probe_trigger.fire()
