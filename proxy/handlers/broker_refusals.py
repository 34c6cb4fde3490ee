"""Counts the requests that the broker itself refuses by the same rules as the policies.

The refusals are found in the broker's replies, so this module does not count refusals by the sidecar.
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
    """Counts a broker's refusals by the rule of each existing policy, whether the policy is in force or not."""

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
        """Counts the refusals in a reply of the broker: one for each policy, however many partitions have the error."""
        if api_key not in self._rules:
            return
        path, policies = self._rules[api_key]
        errors = _errors(reply, path)
        for policy in policies:
            if policy.broker_error in errors:
                self._traffic.broker_rejected(policy.name, policy.broker_error)


def _error_path(cls: type[Struct]) -> tuple[str, ...]:
    """Returns the names of the nested arrays that lead to the errors; empty if the message itself has an error.

    Raises:
        ValueError: the message has no error field.
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
