"""Limits change while the sidecar runs in front of a real broker. Some of the settings files are invalid."""

import json
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, succeeded
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import free_addresses
from tests.kafka.sidecar_process import SidecarProcess

REBALANCE_IN_PROGRESS, GROUP_MAX_SIZE_REACHED = 27, 77
LIMIT = "policies.group_max_size.limit"


def limited(limit: int, **further: Any) -> dict[str, Any]:
    """Returns settings with a limit."""
    return {"policies": {"group_max_size": {"limit": limit, **further}}}


def reloads(sidecar: SidecarProcess) -> list[dict[str, Any]]:
    """Returns the log lines about reloads."""
    return [line for line in json_lines(sidecar.process.log) if "reload" in line["event"]]


def by_signal(sidecar: SidecarProcess) -> dict[str, Any]:
    """Reloads the file with SIGHUP. Returns the log line."""
    before = len(reloads(sidecar))
    sidecar.process.running.send_signal(signal.SIGHUP)
    sidecar.process.wait_until(lambda: len(reloads(sidecar)) > before)
    return reloads(sidecar)[-1]


def by_post(sidecar: SidecarProcess) -> dict[str, Any]:
    """Reloads the file with a POST request, whose reply has to agree with the log line. Returns the log line."""
    status, body = sidecar.get("/-/reload", "POST")
    reply, line = json.loads(body), reloads(sidecar)[-1]
    assert (status, reply) in (
        (200, {"changed": line.get("changed")}),
        (400, {"error": "not reloaded", "lines": line.get("faults")}),
    )
    return line


ways = pytest.mark.parametrize("reload", [by_signal, by_post])


class Two:
    """A member that stays in its group, and a client that tries to join. Both keep their connections."""

    def __init__(self, first: ClassicMember, second: ClassicMember) -> None:
        self._first, self._second = first, second
        first.join()
        first.sync()

    def second_is_let_in(self) -> None:
        """The second client joins, completes a generation with the first, and leaves."""
        self._second.send_join()
        self._rebalanced()
        self._first.send_join()
        for member in (self._first, self._second):
            succeeded(member.receive_join())
            member.send_sync()
        for member in (self._first, self._second):
            succeeded(member.receive_sync())
        assert len(self._first.others) == 2
        self._second.leave()
        self._rebalanced()
        self._first.join()
        self._first.sync()

    def second_is_refused(self) -> None:
        """The second client's join is refused, and the first member is not affected."""
        self._second.send_join()
        assert self._second.receive_join().error_code == GROUP_MAX_SIZE_REACHED
        assert self._first.heartbeat() == 0

    def _rebalanced(self) -> None:
        until(lambda: self._first.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")


@contextmanager
def before(broker: KafkaBroker, folder: Path, settings: dict[str, Any]) -> Iterator[tuple[SidecarProcess, Two]]:
    """Runs a sidecar with these settings, and two clients that connect only through it."""
    broker.wait_for_coordinator()
    [listen] = free_addresses(1)
    with SidecarProcess(folder, listen=listen, upstream=broker.client, settings=settings) as sidecar:
        client, group = Client(listen, Dialect.of(listen)), f"reload-{secrets.token_hex(5)}"
        with (
            ClassicMember(client, group, "topic") as first,
            # A static member, whose first join counts at once: the broker does not issue an id first.
            ClassicMember(client, group, "topic", instance_id="second") as second,
        ):
            yield sidecar, Two(first, second)


@ways
def test_limit_reload_affects_open_connections(
    broker: KafkaBroker, tmp_path: Path, reload: Callable[[SidecarProcess], dict[str, Any]]
) -> None:
    """A reloaded limit applies at once to open connections."""
    with before(broker, tmp_path, limited(2)) as (sidecar, two):
        two.second_is_let_in()
        sidecar.write(limited(1))
        two.second_is_let_in()  # The file has not been reloaded yet.
        assert reload(sidecar)["changed"] == [f"{LIMIT}: 2 -> 1"]
        two.second_is_refused()
        assert sidecar.metric("group_sidecar_group_max_size") == 1
        sidecar.write(limited(1, mode="audit"))
        assert reload(sidecar)["changed"] == ['policies.group_max_size.mode: "enforce" -> "audit"']
        two.second_is_let_in()
        sidecar.write(limited(1, overrides=[{"pattern": "reload-.*", "limit": 2}]))
        assert reload(sidecar)["level"] == "info"
        two.second_is_let_in()
        sidecar.write({})
        assert f"{LIMIT}: 1 -> unset" in reload(sidecar)["changed"]
        two.second_is_let_in()
        assert sidecar.metric("group_sidecar_client_connections_closed_total", reason="error") == 0


@ways
def test_invalid_file_keeps_old_limit(
    broker: KafkaBroker, tmp_path: Path, reload: Callable[[SidecarProcess], dict[str, Any]]
) -> None:
    """An invalid or missing settings file keeps the old limit, and the log and metrics report the failure."""
    with before(broker, tmp_path, limited(1)) as (sidecar, two):
        two.second_is_refused()
        since = sidecar.metric("group_sidecar_config_last_reload_success_timestamp_seconds")
        for settings, faults in (
            (limited(0), [f"{sidecar.file}: {LIMIT}: must be at least 1"]),
            ({**limited(5), "upstraem": "a:1"}, [f"{sidecar.file}: upstraem: unknown key; did you mean upstream?"]),
            (
                {**limited(5), "limits": {"groups": 7}},
                ["limits.groups: cannot change in a running sidecar; restart it, or send it SIGUSR2"],
            ),
        ):
            sidecar.write(settings)
            line = reload(sidecar)
            assert (line["level"], line["faults"]) == ("error", faults)
            two.second_is_refused()
            assert sidecar.metric("group_sidecar_config_last_reload_successful") == 0
            assert sidecar.metric("group_sidecar_config_last_reload_success_timestamp_seconds") == since
        sidecar.file.write_text("listen: [")
        assert "is not YAML in line 1, column 10" in reload(sidecar)["faults"][0]
        sidecar.file.unlink()
        assert reload(sidecar)["faults"] == [f"{sidecar.file}: no such file or directory"]
        two.second_is_refused()
        sidecar.write(limited(2))
        assert reload(sidecar)["changed"] == [f"{LIMIT}: 1 -> 2"]
        two.second_is_let_in()
        assert sidecar.metric("group_sidecar_config_last_reload_successful") == 1
        assert sidecar.metric("group_sidecar_config_last_reload_success_timestamp_seconds") > since
