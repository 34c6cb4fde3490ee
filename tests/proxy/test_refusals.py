"""What a refused client is told, whatever it asked, and how long it is asked to wait."""

import dataclasses

import pytest

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.proxy.refusals import FORGIVEN_SECONDS, LONGEST_WAIT_MS, MOST_GROUPS, Patience, error_reply


def asked(key: int) -> object:
    """A request of an API, of which nothing but its key counts."""
    request = APIS[key].request
    assert request is not None
    return object.__new__(request)


def vars_of(reply: Struct) -> dict[str, object]:
    """What a reply says, by field."""
    return dataclasses.asdict(reply)


@pytest.mark.parametrize("key", [*APIS])
def test_every_reply_that_has_a_place_for_an_error_says_it_and_can_be_written(key: int) -> None:
    response = APIS[key].response
    for version in response.VERSIONS:
        try:
            reply = error_reply(asked(key), version, 77, "full", 5)  # type: ignore[arg-type]
        except ValueError:
            told = APIS[key].response.__dataclass_fields__.get("error_code")
            assert told is None or version not in range(told.metadata["spec"].since, told.metadata["spec"].until + 1)
            continue
        assert vars_of(decode(response, version, encode(reply, version)))["error_code"] == 77


def test_what_is_null_where_it_may_be_is_empty_before() -> None:
    join = JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=())
    for version, name in ((6, ""), (7, None)):
        reply = error_reply(join, version, 81, "not said", 100)
        assert reply == JoinGroupResponse(
            throttle_time_ms=100, error_code=81, protocol_name=name, leader="", member_id=""
        )


def test_other_apis_need_nothing_of_their_own() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert error_reply(heartbeat, 3, 27, None, 0) == HeartbeatResponse(error_code=27)
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=())
    assert error_reply(sync, 3, 27, None, 0) == SyncGroupResponse(error_code=27, assignment=b"")


def test_an_api_whose_errors_stand_elsewhere_is_told_apart() -> None:
    commit = OffsetCommitRequest(group_id="g", topics=())
    with pytest.raises(ValueError, match="OffsetCommitResponse v8 has no error of its own"):
        error_reply(commit, 8, 12, None, 0)


def test_refusals_in_a_row_ask_for_more_and_more_patience() -> None:
    patience = Patience()
    waits = [patience.refused(1, "g", now=float(at)) for at in range(14)]
    assert waits[:4] == [0, 100, 200, 400]
    assert waits[-1] == waits[-2] == LONGEST_WAIT_MS
    assert patience.refused(1, "h", now=14.0) == patience.refused(2, "g", now=14.0) == 0


def test_it_is_forgiven_in_time_or_when_the_client_gets_in() -> None:
    patience = Patience()
    for _ in range(3):
        patience.refused(1, "g", now=0.0)
    assert patience.refused(1, "g", now=FORGIVEN_SECONDS + 0.1) == 400
    assert patience.refused(1, "g", now=3 * FORGIVEN_SECONDS) == 0
    patience.refused(1, "g", now=3 * FORGIVEN_SECONDS)
    patience.let_in(1, "g")
    assert patience.refused(1, "g", now=3 * FORGIVEN_SECONDS) == 0
    patience.refused(1, "g", now=3 * FORGIVEN_SECONDS)
    patience.gone(1)
    assert patience.refused(1, "g", now=3 * FORGIVEN_SECONDS) == 0


def test_the_groups_that_a_connection_was_refused_last_are_kept() -> None:
    patience = Patience()
    others = [f"other-{number}" for number in range(MOST_GROUPS - 1)]
    patience.refused(1, "forgotten", now=0.0)
    for group in ("kept", *others[:-1], "kept", others[-1]):
        patience.refused(1, group, now=0.0)
    patience.refused(1, "one more", now=0.0)
    assert patience.refused(1, "kept", now=0.0) == 200
    assert patience.refused(1, "forgotten", now=0.0) == 0
