"""What the broker itself refuses by the same rules as the policies.

Owns: finding such errors in replies, and counting the requests that got one. Must not know: any one policy, and what
the sidecar refuses: that never comes from the broker.
"""

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.schema import Array, Struct, field_specs
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.all_policies import POLICIES


class BrokerRefusals:
    """Counts a broker's refusals by the rule of each policy there is, in force or not."""

    def __init__(self, traffic: TrafficCounters) -> None:
        self._traffic = traffic
        for policy in POLICIES:
            traffic.expect_broker_rejections(policy.name, policy.broker_error)
        keys = {key for policy in POLICIES for key in policy.judged_apis}
        self._rules = {
            key: (_error_path(APIS[key].response), tuple(policy for policy in POLICIES if key in policy.judged_apis))
            for key in keys
        }

    def count(self, api_key: int, reply: Struct) -> None:
        """Looks for refusals in a reply as the broker sent it: one counts, however many partitions it is said of."""
        if api_key not in self._rules:
            return
        path, policies = self._rules[api_key]
        errors = _errors(reply, path)
        for policy in policies:
            if policy.broker_error in errors:
                self._traffic.broker_rejected(policy.name, policy.broker_error)


def _error_path(cls: type[Struct]) -> tuple[str, ...]:
    """The arrays inside each other that lead to the errors; none where a message has one as a whole.

    Raises:
        ValueError: there is no error in it.
    """
    declared = field_specs(cls)
    if "error_code" in declared:
        return ()
    for name, spec in declared.items():
        if isinstance(spec.kind, Array) and isinstance(spec.kind.of, type):
            return name, *_error_path(spec.kind.of)
    raise ValueError(f"{cls.__name__} has no error")


def _errors(reply: Struct, path: tuple[str, ...]) -> set[int]:
    parts: Iterable[Any] = (reply,)
    for name in path:
        parts = chain.from_iterable(map(attrgetter(name), parts))
    return {part.error_code for part in parts}
