"""Tests which versions and habits follow from what the broker offers."""

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.proxy.broker.broker_state import BrokerState
from tests.proxy.dataplane.playbook import broker_state

LIST, DESCRIBE = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS
ALL_APIS: dict[int, tuple[int, int]] = dict.fromkeys(ApiKey, (0, 5))
NO_LISTING = {key: versions for key, versions in ALL_APIS.items() if key != LIST}


def test_missing_api_is_recognized() -> None:
    """An API counts as missing while the broker's versions lack it."""
    state = broker_state()
    state.versions.learn(NO_LISTING)
    assert (state.versions.lacks_api(LIST), state.versions.lacks_api(DESCRIBE)) == (True, False)
    state.versions.learn(ALL_APIS)
    assert not state.versions.lacks_api(LIST)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [(KAFKA_0_9, (False, True)), ({**KAFKA_0_9, 1: (0, 3)}, (True, True)), (ALL_APIS, (True, True))],
)
def test_kafka_0_9_omits_empty_groups(versions: dict[int, tuple[int, int]], expected: tuple[bool, bool]) -> None:
    """Kafka 0.9 omits empty groups in DescribeGroups version 0. Later versions and brokers include them."""
    state = broker_state(answers={"authorizer": "none"})
    state.versions.learn(versions)
    assert (
        state.versions.includes_empty_groups(DESCRIBE, 0),
        state.versions.includes_empty_groups(DESCRIBE, 5),
    ) == expected


def habits(state: BrokerState) -> tuple[str | None, bool | None]:
    return state.copy.manager.default_assignor, state.copy.manager.sends_error_messages


def test_changed_versions_clear_habits() -> None:
    """A changed set of versions clears what was learned about the broker's habits."""
    state = broker_state()
    state.versions.learn({3: (0, 12)})
    state.copy.manager.default_assignor, state.copy.manager.sends_error_messages = "uniform", True
    state.versions.learn({3: (0, 12)})
    assert habits(state) == ("uniform", True)
    state.versions.learn({3: (0, 13)})
    assert habits(state) == (None, None)
