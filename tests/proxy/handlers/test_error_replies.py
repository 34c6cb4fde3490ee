"""Tests the reply to a refused client in each API, and its throttle time."""

import dataclasses

import pytest

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.proxy.handlers.error_replies import (
    BACKOFF_RESET_SECONDS,
    LONGEST_WAIT_MS,
    MAX_GROUPS_PER_CONNECTION,
    ThrottleBackoff,
    error_reply,
)


def request_of(key: int) -> object:
    """Returns a request of an API without values in its fields. The tests use only its class."""
    request = APIS[key].request
    assert request is not None
    return object.__new__(request)


def vars_of(reply: Struct) -> dict[str, object]:
    """Returns the values of a reply by field."""
    return dataclasses.asdict(reply)


@pytest.mark.parametrize("key", [*APIS])
def test_error_reply_encodes_in_every_version(key: int) -> None:
    """A reply version with a top-level error code contains the refusal's error, and other versions raise ValueError."""
    response = APIS[key].response
    for version in response.VERSIONS:
        try:
            reply = error_reply(request_of(key), version, 77, "full", 5)  # type: ignore[arg-type]
        except ValueError:
            field = APIS[key].response.__dataclass_fields__.get("error_code")
            assert field is None or version not in range(field.metadata["spec"].since, field.metadata["spec"].until + 1)
            continue
        assert vars_of(decode(response, version, encode(reply, version)))["error_code"] == 77


def test_error_reply_null_protocol_name() -> None:
    """The error reply has an empty protocol name where null is not allowed, and null in later versions."""
    join = JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=())
    for version, name in ((6, ""), (7, None)):
        reply = error_reply(join, version, 81, "not said", 100)
        assert reply == JoinGroupResponse(
            throttle_time_ms=100, error_code=81, protocol_name=name, leader="", member_id=""
        )


def test_error_reply_of_other_apis() -> None:
    """Error replies of Heartbeat and SyncGroup contain the error code and default values."""
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert error_reply(heartbeat, 3, 27, None, 0) == HeartbeatResponse(error_code=27)
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=())
    assert error_reply(sync, 3, 27, None, 0) == SyncGroupResponse(error_code=27, assignment=b"")


def test_error_reply_without_error_field_raises() -> None:
    """An API version without a top-level error code raises ValueError."""
    commit = OffsetCommitRequest(group_id="g", topics=())
    with pytest.raises(ValueError, match="OffsetCommitResponse v8 has no error of its own"):
        error_reply(commit, 8, 12, None, 0)


def test_backoff_grows_with_refusals() -> None:
    """Repeated refusals of one connection and group get longer waits up to LONGEST_WAIT_MS; other pairs start at 0."""
    patience = ThrottleBackoff()
    waits = [patience.refused(1, "g", now=float(at)) for at in range(14)]
    assert waits[:4] == [0, 100, 200, 400]
    assert waits[-1] == waits[-2] == LONGEST_WAIT_MS
    assert patience.refused(1, "h", now=14.0) == patience.refused(2, "g", now=14.0) == 0


def test_backoff_resets() -> None:
    """The backoff resets after a long pause, after an explicit reset, and when the connection ends."""
    patience = ThrottleBackoff()
    for _ in range(3):
        patience.refused(1, "g", now=0.0)
    assert patience.refused(1, "g", now=BACKOFF_RESET_SECONDS + 0.1) == 400
    assert patience.refused(1, "g", now=3 * BACKOFF_RESET_SECONDS) == 0
    patience.refused(1, "g", now=3 * BACKOFF_RESET_SECONDS)
    patience.reset(1, "g")
    assert patience.refused(1, "g", now=3 * BACKOFF_RESET_SECONDS) == 0
    patience.refused(1, "g", now=3 * BACKOFF_RESET_SECONDS)
    patience.gone(1)
    assert patience.refused(1, "g", now=3 * BACKOFF_RESET_SECONDS) == 0


def test_backoff_evicts_oldest_refused_group() -> None:
    """A connection keeps the backoff of its most recently refused groups and evicts the oldest group."""
    patience = ThrottleBackoff()
    others = [f"other-{number}" for number in range(MAX_GROUPS_PER_CONNECTION - 1)]
    patience.refused(1, "forgotten", now=0.0)
    for group in ("kept", *others[:-1], "kept", others[-1]):
        patience.refused(1, group, now=0.0)
    patience.refused(1, "one more", now=0.0)
    assert patience.refused(1, "kept", now=0.0) == 200
    assert patience.refused(1, "forgotten", now=0.0) == 0
