"""Measures how long single steps hold the event loop with very many groups and offsets.

    python -m benchmarks.worst_cases [--groups 100000] [--offsets 1000000]

`whole_steps` measures the whole handling of a message, for messages whose cost depends on their content and not on the
number of groups.

A step is a part of the work for a client request, or a turn of a background job. Other clients get a turn only between
two steps. The steps run in this process, on one thread. The times are CPU times, so other processes do not count.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from itertools import islice
from time import thread_time
from typing import Any, NamedTuple

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.coordinator.model.events import AnyEvent, GroupsListed, NotCoordinatorReplied, OffsetsStored
from group_sidecar.coordinator.model.views import CommittedOffset
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.authorization_cache import required_rights
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.config.model import DEFAULT_LISTENER, Config
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.undecoded_writes import UndecodedWrite
from group_sidecar.proxy.runtime.addresses import Address

GOAL_MS = 5.0
PARTITIONS = 50
"""Partitions of `__consumer_offsets`."""


class Step(NamedTuple):
    """A step to time. `rounds`: the number of runs; the longest counts. `before`: called untimed before each run."""

    name: str
    do: Callable[[], Any]
    rounds: int = 5
    before: Callable[[], Any] = lambda: None


class BrokerWithManyGroups:
    """The copy of a broker with very many groups, and actions of clients on it."""

    def __init__(self, groups: int, offsets: int) -> None:
        self.names = [f"group-{number:07}" for number in range(groups)]
        answers = {"exclusive": True, "authorizer": "none"}
        limits = {"groups": groups + 1_000, "offsets": offsets * 2}
        config = Config.model_validate(
            {"listen": "127.0.0.1:1", "upstream": "broker:9092", "answers": answers, "limits": limits}
        )
        self.state = BrokerState(
            Address("broker", 9092), config, TrafficCounters(), lambda fact: None, clock_offset=0.0
        )
        self.manager = self.state.copy.manager
        self.observer = Observer(
            self.state.copy,
            self.state.accesses[DEFAULT_LISTENER],
            self.state.topic_names,
            self.state.traffic,
            config.limits,
        )
        self.now = 1000.0
        self.manager.set_existing_groups(())
        per_group = max(1, offsets // groups)
        committed = {("topic", partition): CommittedOffset(1, 1, "", self.now) for partition in range(per_group)}
        for name in self.names:
            self.apply(OffsetsStored(group_id=name, sent_at=self.now, offsets=committed))
        run_to_end(self.manager.update_listing(self.now))

    def apply(self, *events: AnyEvent) -> None:
        """Applies events to the copy."""
        self.manager.apply(events, self.now)

    def make_list(self, request: ListGroupsRequest, version: int = 4) -> None:
        """Handles a ListGroups request: checks whether the sidecar may answer it, and builds the reply if so."""
        if self.manager.listing_fallback_reason(self.now, version) is None:
            self.manager.listing(self.now).reply(request, version)

    def undecodable_write(self) -> None:
        """Handles a request whose group cannot be decoded, and the loss of its reply."""
        self.observer.note_undecoded_write(ApiKey.DELETE_GROUPS, None).lost(0)

    def topics_deleted(self) -> None:
        UndecodedWrite(self.state.copy, ApiKey.DELETE_TOPICS).lost(0)

    def gone(self) -> None:
        """Handles the loss of a connection with very many pending requests."""
        for pending in [self.observer.note_undecoded_write(ApiKey.DELETE_GROUPS, None) for _ in range(1000)]:
            pending.lost(0)
        self.observer.gone(Origin("127.0.0.1"))

    def touch_all(self) -> None:
        """Marks all groups as changed."""
        self.manager._cache.changed.update(self.names)

    def exchange(self, request: Struct, version: int) -> Exchange:
        """Returns a request as an exchange."""
        return Exchange(request=request, version=version, token="1:1", client_id="", client_host="", sent_at=self.now)

    def listed(self) -> GroupsListed:
        return GroupsListed(groups=frozenset(self.names), sent_at=self.now, as_of=self.manager.note_count)

    def settle(self) -> None:
        """Applies a list of the broker's groups, and encodes the groups that have changed.

        The list ends doubts about which groups exist. Groups that an undecoded write made incomplete stay incomplete,
        because only a description by the broker would complete them.
        """
        self.now += 100
        self.apply(self.listed())
        run_to_end(self.manager.update_listing(self.now))

    def steps(self) -> Iterator[Step]:
        """Yields all timed steps."""
        request, states = ListGroupsRequest(), ListGroupsRequest(states_filter=("Empty", "Dead"))
        listing = ListGroupsResponse(
            error_code=0, groups=tuple(ListedGroup(group_id=name, protocol_type="consumer") for name in self.names)
        )
        body = encode(listing, 4)
        yield Step("ListGroups, the first in one of the four forms", lambda: self.make_list(request), 1)
        yield Step("ListGroups, nothing changed", lambda: self.make_list(request))
        yield Step("ListGroups with a filter", lambda: self.make_list(states))
        yield Step("ListGroups, all groups changed", lambda: self.make_list(request), before=self.touch_all)
        yield Step("request whose group cannot be read, and its reply", self.undecodable_write)
        yield Step(
            "look at a group that such a request made incomplete", lambda: self.manager.view(self.names[0], self.now)
        )
        yield Step("ListGroups while such a request makes all groups incomplete", lambda: self.make_list(request))
        yield Step("connection closed with 1,000 such requests unanswered", self.gone)
        yield Step("DeleteTopics, and its reply", self.topics_deleted)
        yield Step("ListGroups reply of the broker: apply", lambda: self.apply(self.listed()))
        yield Step("ListGroups reply of the broker: decode", lambda: decode(ListGroupsResponse, 4, body), 2)
        yield Step("NOT_COORDINATOR", lambda: self.apply(NotCoordinatorReplied(group_id="elsewhere", sent_at=self.now)))
        yield Step("ApiVersions of a client that connects", lambda: self.manager.keep_empty_groups(True))
        yield Step(
            "rights needed for ListGroups",
            lambda: list(required_rights(self.exchange(request, 4), self.manager, self.now)),
        )
        yield Step("background: a turn of looking for doubt", longest(self.manager.groups_to_describe))
        yield Step("background: a turn of finding expired sessions", longest(lambda: self.manager.sweep(self.now)))
        yield Step(
            "background: a turn of encoding the list of groups",
            longest(lambda: self.manager.update_listing(self.now)),
            before=self.touch_all,
        )


def run_to_end(turns: Iterator[Any]) -> None:
    """Runs an iterator to its end."""
    for _ in turns:
        pass


def longest(begin: Callable[[], Iterator[Any]]) -> Callable[[], float]:
    """Returns a function that runs an iterator to its end and returns the seconds of the longest turn."""

    def run() -> float:
        turns, most = begin(), 0.0
        while True:
            began = thread_time()
            done = not list(islice(turns, 1))
            most = max(most, thread_time() - began)
            if done:
                return most

    return run


def timed(step: Step) -> float:
    """Returns the maximum milliseconds of a step."""
    most = 0.0
    for _ in range(step.rounds):
        step.before()
        gc.collect()
        began = thread_time()
        took = step.do()
        most = max(most, took if isinstance(took, float) else thread_time() - began)
    return most * 1000


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    options = parser.parse_args()
    broker = BrokerWithManyGroups(options.groups, options.offsets)
    gc.disable()
    print(f"{options.groups:,} groups, {options.offsets:,} offsets\n\n| step | ms at most | within {GOAL_MS:g} ms |")
    print("| --- | ---: | --- |")
    for step in broker.steps():
        took = timed(step)
        print(f"| {step.name} | {took:,.2f} | {'yes' if took <= GOAL_MS else 'no'} |", flush=True)
        broker.settle()


if __name__ == "__main__":
    main()
