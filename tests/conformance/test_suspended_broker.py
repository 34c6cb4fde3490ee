"""A broker is suspended for longer than the session timeout of a group, and the controller elects it again."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cause_scenarios import Scene
from tests.conformance.librdkafka import consumer, create_topic, poll_until, settled
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar_process import SidecarProcess

SESSION_MS = 6000
SUSPENDED_SECONDS = 12
"""Longer than `SESSION_MS` and than `broker.session.timeout.ms` (9 seconds), after which a broker loses its leaders."""


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long
def test_group_is_lost_while_broker_is_suspended(tmp_path: Path) -> None:
    """The clients come back as new members. The cause is their expired sessions, not the move of the coordinator."""
    with KafkaBroker(tmp_path / "broker") as broker:
        broker.wait_for_coordinator()
        with SidecarProcess(tmp_path / "sidecar", listen=broker.sidecar, upstream=broker.client) as sidecar:
            sidecar.wait_for_log()
            scene = Scene(broker, sidecar)
            create_topic(scene.run, "topic", 2)
            settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300}
            with (
                consumer(scene.run, "group", ["topic"], client_id="first", **settings) as first,
                consumer(scene.run, "group", ["topic"], client_id="second", **settings) as second,
            ):
                poll_until([first, second], settled([first, second], 2), "one partition each")
                with suspended(broker.pid):
                    time.sleep(SUSPENDED_SECONDS)
                before = len(scene.events("rebalance_completed"))
                poll_until(
                    [first, second],
                    lambda _: len(scene.events("rebalance_completed")) > before,
                    "the clients have come back",
                )
                back = scene.events("rebalance_completed")[before]
            assert (back["cause"], back["reason"]) == ("session_expired", "expired")
            assert "expired" in {gone["how"] for gone in scene.events("member_gone")}
