"""Malformed strings that are too long to be encoded again. They do not bypass a policy.

Each malformed byte is decoded as U+FFFD, as in Kafka. The encoding of U+FFFD has three bytes.
"""

from typing import Any

import pytest

from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.commands import Close
from tests.proxy.dataplane.playbook import Line, broker_state, complete_state, framed, to_upstream

MALFORMED = b"\xff" * 20_000
"""Kafka decodes this as 20,000 characters. Their encoding has 60,000 bytes, more than the maximum of 32,767."""


def string(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def head(key: int, version: int, client: bytes) -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + string(client)


def commit(*, client: bytes = b"c", group: bytes = b"g", member: bytes = b"", topic: bytes = b"t") -> bytes:
    """Returns a commit of two partitions. The first has metadata of 100 bytes, the second has none."""
    partitions = b"\0\0\0\2" + bytes(12) + string(b"x" * 100) + b"\0\0\0\1" + bytes(8) + string(b"")
    body = string(group) + b"\xff" * 4 + string(member) + b"\xff" * 8 + b"\0\0\0\1" + string(topic) + partitions
    return framed(head(OffsetCommitRequest.KEY, 2, client) + body)


def join(*, client: bytes = b"c", group: bytes = b"g", member: bytes = b"") -> bytes:
    protocols = b"\0\0\0\1" + string(b"range") + bytes(4)
    body = string(group) + b"\0\0\xff\xff" * 2 + string(member) + string(b"consumer") + protocols
    return framed(head(JoinGroupRequest.KEY, 3, client) + body)


every_field = pytest.mark.parametrize("field", ["client", "group", "member", "topic"])


@every_field
def test_commit_with_malformed_string_is_closed(field: str) -> None:
    """A commit above the metadata limit that cannot be re-encoded closes its connection."""
    state = complete_state(policies={"offset_metadata_max_bytes": {"limit": 3}})
    commands = Line(state).client(commit(**{field: MALFORMED}))
    reason = CloseReason.MALFORMED_REQUEST if field == "client" else CloseReason.REQUEST_TOO_LONG
    assert commands == [Close(reason)]


@every_field
def test_commit_passes_in_audit_mode(field: str) -> None:
    state = complete_state(policies={"offset_metadata_max_bytes": {"limit": 3, "mode": "audit"}})
    frame = commit(**{field: MALFORMED})
    assert to_upstream(Line(state).client(frame)) == frame


@pytest.mark.parametrize("field", ["client", "group", "member"])
@pytest.mark.parametrize("make", [complete_state, broker_state])
def test_malformed_join_is_not_forwarded(field: str, make: Any) -> None:
    """A join above the limit with a malformed string is not forwarded, and a malformed group or member id closes the
    connection.
    """
    state = make(answers={"authorizer": "none"}, policies={"group_max_size": {"limit": 1}})
    group = MALFORMED if field == "group" else b"g"
    Line(state).client(join(group=group))
    frame = join(**{field: MALFORMED})
    line = Line(state)
    commands = line.client(frame)
    assert frame not in to_upstream(commands)
    if field != "client":  # No policy judges a long body that only the slow layout can decode.
        assert commands == [Close(CloseReason.REQUEST_TOO_LONG)]
