"""Tests the bounds of the topic names."""

from uuid import UUID

import pytest

from group_sidecar.proxy.broker import topic_names as room
from tests.proxy.dataplane.playbook import broker_state


def test_topic_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of topic names is bounded, and the names learned longest ago are dropped."""
    monkeypatch.setattr(room, "MAX_TOPIC_NAMES", 3)
    state, ids = broker_state(), [UUID(int=n) for n in range(1, 6)]
    state.topic_names.learn({ids[0]: "a", ids[1]: "b"})
    state.topic_names.learn({ids[0]: "a", ids[1]: "b", ids[2]: "c"})
    state.topic_names.learn({ids[1]: "B", ids[3]: "d", ids[4]: "e"})
    assert state.topic_names.by_id == {ids[1]: "B", ids[3]: "d", ids[4]: "e"}


def test_wanted_topic_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of wanted topic ids is bounded."""
    monkeypatch.setattr(room, "MAX_WANTED_TOPIC_IDS", 2)
    state, ids = broker_state(), [UUID(int=n) for n in range(1, 4)]
    state.topic_names.request(ids)
    assert state.topic_names.wanted == set(ids[1:])
    assert {table.name: table.entries for table in state.tables}["topic_names_wanted"] == 2
