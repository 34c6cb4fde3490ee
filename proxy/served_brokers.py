"""The brokers that the sidecar stands before, and what runs for each.

Owns: `ServedBroker`: the parts of one broker, and which of them run in the background; `ServedBrokers`: which brokers
there are, and how all of them stand. It does not know how any part works, nor which connection belongs to which broker
(`sidecar`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import trio

from group_sidecar.coordinator.answerable import lacking
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import TopicPartition
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.admin.sources import Standings, Unreachable
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.probe import Impulse, probe_forever
from group_sidecar.proxy.replying import Replying
from group_sidecar.proxy.settling import settle_forever
from group_sidecar.proxy.shrinking import shrink_forever
from group_sidecar.proxy.supervision import Supervisor
from group_sidecar.proxy.tail import OffsetsTail
from group_sidecar.proxy.verifying import verify_forever


@dataclass(frozen=True, slots=True)
class ServedBroker:
    """One broker. `tail` is None where the log is not read."""

    copy: BrokerCopy
    desk: BrokerDesk
    tail: OffsetsTail | None
    impulse: Impulse

    @classmethod
    def of(cls, copy: BrokerCopy, config: Config) -> "ServedBroker":
        """The parts around a copy. Nothing runs yet."""
        return cls(copy, BrokerDesk(copy), OffsetsTail(copy) if config.offsets_log.read else None, Impulse())

    def start(self, tasks: trio.Nursery, supervisor: Supervisor) -> None:
        """Starts the background parts."""
        copy, tail = self.copy, self.tail
        tasks.start_soon(probe_forever, copy, supervisor, self.impulse)
        tasks.start_soon(settle_forever, copy, supervisor)
        tasks.start_soon(shrink_forever, copy, supervisor)
        if copy.config.answers.verify:
            tasks.start_soon(
                verify_forever,
                copy,
                Replying(copy).anew,
                lambda request, version, at: lacking(request, version, copy.manager, at),
                tail.read_again if tail else lambda group: copy.relearn(group, trio.current_time()),
                supervisor,
            )
        if tail:
            tasks.start_soon(tail.run, supervisor)


class ServedBrokers:
    """The brokers that are known, by their upstream addresses. A gateway may have one under two of them."""

    def __init__(self) -> None:
        self._by_address: dict[Address, ServedBroker] = {}

    def __contains__(self, address: Address) -> bool:
        return address in self._by_address

    def __iter__(self) -> Iterator[ServedBroker]:
        """Each broker once."""
        return iter({id(broker): broker for broker in self._by_address.values()}.values())

    def get(self, address: Address) -> ServedBroker | None:
        """The broker at an address; None where there is none yet."""
        return self._by_address.get(address)

    def put(self, address: Address, broker: ServedBroker) -> None:
        """A broker is reached at this address."""
        self._by_address[address] = broker

    def copies(self) -> list[BrokerCopy]:
        """The copy of each."""
        return [broker.copy for broker in self]

    def managers(self) -> list[GroupMetadataManager]:
        """The groups of each."""
        return [broker.copy.manager for broker in self]

    def tails(self) -> list[OffsetsTail]:
        """The tail of each log that is read."""
        return [broker.tail for broker in self if broker.tail]

    async def committed_partitions(self) -> set[TopicPartition]:
        """The partitions that any of them has committed offsets of."""
        return set().union(*[await copy.own_partitions() for copy in self.copies()])

    def are_ready(self) -> bool:
        """Whether all of them answer the sidecar."""
        return all(broker.copy.ready()[0] for broker in self)

    def refusing(self) -> int:
        """How many of them are reached and refuse the sidecar's own connection, or the right to read the log."""
        reached = (broker for broker in self if broker.copy.ready()[0])
        return sum(broker.copy.refuses or bool(broker.tail and broker.tail.denied) for broker in reached)

    def is_reachable(self, address: Address) -> bool:
        """Whether the broker at an address answers the sidecar."""
        broker = self._by_address.get(address)
        return broker is not None and broker.copy.ready()[0]

    def unreachable(self) -> list[Unreachable]:
        """Those that do not answer, since when, and why."""
        return [Unreachable(str(copy.address), *copy.unreachable) for copy in self.copies() if copy.unreachable]

    def standings(self) -> Standings:
        """How far each log was read."""
        return {str(broker.copy.address): broker.tail.standing() for broker in self if broker.tail}

    def look_at_once(self, address: Address) -> None:
        """Has the prober of the broker at an address ask without waiting, if there is one."""
        if address in self._by_address:
            self._by_address[address].impulse.give()
