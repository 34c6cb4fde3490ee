"""The surface of `group-sidecar groups`: its tables and its JSON, from sidecars' admin ports and from brokers."""

from datetime import UTC, datetime, timedelta
from typing import Any

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from tests.proxy.commandline.admin_ports import AdminPort, group, listening
from tests.proxy.commandline.groups_shell import NEW_MEMBER, classic_group, classic_member, listed, new_group, shells
from tests.surfaces.program import program
from tests.surfaces.texts import steady

Json = dict[str, Any]
_MEMBER: Json = {
    "member_id": "m-1",
    "instance_id": "i-1",
    "client_id": "app",
    "client_host": "/10.0.0.7",
    "since": "2026-11-21T13:00:00.000Z",
    "assignment": {"t": [0, 1]},
    "assignment_bytes": 20,
}
_OFFSET: Json = {
    "topic": "t",
    "partition": 0,
    "current_offset": 5,
    "log_end_offset": 9,
    "lag": 4,
    "metadata": "said",
    "committed_at": "2026-11-21T13:00:00.000Z",
    **{name: _MEMBER[name] for name in ("member_id", "client_id", "client_host")},
}
_WHO: Json = {name: _MEMBER[name] for name in ("member_id", "instance_id", "client_id", "client_host")}


def groups_output() -> str:
    """Returns the output of every command in each format. Times and ports are replaced by zeros."""
    log_end_at = _text(datetime.now(UTC) + timedelta(minutes=1))  # The age of an older log end is shown.
    port = AdminPort(
        [group("g"), group("h", protocol="consumer", members_known=False, lag=None, lacking="cold")],
        details={"g": {"leader": "m-1", "coordinator": {"id": 1, "host": "b", "port": 9092}, "member_list": [_MEMBER]}},
        offsets={"g": [{**_OFFSET, "log_end_at": log_end_at}]},
        timelines={"g": _timeline()},
        forgotten={"forgotten": {"changes": None, "commits": None, "refusals": "2026-11-21T13:00:00.000Z"}},
        unreachable=[],
    )
    gone = AdminPort(
        [group("g")], unreachable=[{"broker": "b:1", "since": "2026-11-21T13:00:00.000Z", "reason": "silent"}]
    )
    parts = []
    with listening(port, gone):
        for argv in _ARGUMENTS:
            parts += [_shown(*argv, "--sidecar", port.address), _shown(*argv, "--sidecar", port.address, "--json")]
        parts += [_shown("list", "--sidecar", port.address, "--state", "stable", "--type", "CLASSIC")]
        parts += [_shown("list", "--sidecar", port.address, "--state", "Empty")]
        parts += [_shown("describe", "absent", "--sidecar", port.address, *flags) for flags in ((), ("--json",))]
        parts += [_shown("list", "--sidecar", gone.address, *flags) for flags in ((), ("--json",))]
        port.failing = (500, b"{}")
        parts.append(_shown("list", "--sidecar", port.address))
        port.failing, port.token = None, "secret"
        parts.append(_shown("list", "--sidecar", port.address))
    return "\n".join([*parts, *_of_brokers()])


_ARGUMENTS = (
    ("list",),
    ("list", "--verbose", "--utc"),
    ("describe", "g", "--utc"),
    ("members", "g"),
    ("offsets", "g"),
    ("timeline", "g", "--utc"),
    ("why", "g", "--utc"),
    ("top", "--once", "--utc"),
)


def _of_brokers() -> list[str]:
    """Returns the output of the commands that can ask brokers. Brokers know less than sidecars."""
    answers = {
        ListGroupsRequest: listed(("g", "classic", "Stable", "consumer"), ("h", "consumer", "Empty", "consumer"))
    }
    parts = []
    with shells() as start:
        for described in (classic_group(classic_member()), new_group(NEW_MEMBER)):
            shell = start({**answers, **described})
            for argv in (("list",), ("describe", "g"), ("members", "g")):
                for flags in ((), ("--json",)):
                    parts.append(_shown(*argv, "--bootstrap", str(shell.addresses[0]), *flags))
    return parts


def _shown(*argv: str) -> str:
    done = program("groups", *argv)
    return steady(done.text(" ".join(argv)))


def _text(moment: datetime) -> str:
    """Returns a moment as the admin port writes it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timeline() -> list[Json]:
    """Returns one event of each kind, within the last minute."""
    began = datetime.now(UTC) - timedelta(seconds=30)

    def event(what: str, **more: Any) -> Json:
        return {"at": _text(began), "what": what, **more}

    cause = {"reason": "join", "cause": "new_member", "by": _WHO, "said": "hello"}
    verdict = {"policy": "group_max_size", "error_code": 81, "error": "GROUP_MAX_SIZE_REACHED", "size": 3, "limit": 3}
    client = {"client_id": "app", "client_host": "/10.0.0.7"}
    run = {"count": 2, "first_at": event("")["at"]}
    not_committed = [{"error_code": 25, "error": "UNKNOWN_MEMBER_ID", "partitions": 2}]
    completed = {"generation": 4, "protocol": "range", "members": 2, "duration_seconds": 1.5, "joined": 1, "gone": 0}
    return [
        event("member_joined", **_WHO, said=""),
        event("rebalance_started", **cause),
        event("rebalance_completed", **cause, **completed, slowest={**_WHO, "seconds": 0.5}, moved_partitions=2),
        event("member_gone", **_WHO, how="expired", said=""),
        event("coordinator_moved"),
        event("offsets_committed", accepted=1, refused=not_committed, by=_WHO, **run),
        event("client_refused", **verdict, **client, **run, enforced=True),
        event("client_audited", **verdict, **client, **run, enforced=False),
    ]
