"""Tests the reload of settings: which may change, what is reported, and that reloads run one after another."""

import threading
from typing import Any

import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from group_sidecar.proxy.config.loading import ConfigError
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.reload import ConfigReloader, ReloadOutcome
from tests.proxy.fakes import holds

LEAST: dict[str, Any] = {"listen": "127.0.0.1:9092", "upstream": "broker:9092"}


def settings(**further: Any) -> Config:
    """Returns settings as they are in a file."""
    return Config.model_validate({**LEAST, **further})


def limits(**fields: Any) -> Config:
    """Returns settings with a policy."""
    return settings(policies={"group_max_size": fields})


class File:
    """A source of settings. `found`: the settings, or the error of reading them."""

    def __init__(self, found: Config | Exception) -> None:
        self.found = found
        self.enacted: list[Config] = []

    def read(self) -> Config:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def reloading(before: Config, after: Config | Exception) -> tuple[ConfigReloader, File]:
    """Returns a sidecar's settings, and the file that they are read from again."""
    file = File(after)
    return ConfigReloader(before, file.read, file.enacted.append), file


GMS = "policies.group_max_size"


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (limits(limit=5), limits(limit=5), []),
        (limits(limit=5), limits(limit=5, error_code=77, mode="enforce"), []),
        (limits(limit=5), limits(limit=5, consumer_max_size=None), []),
        (limits(limit=5), limits(limit=3), [f"{GMS}.limit: 5 -> 3"]),
        (limits(limit=5), limits(limit=5, mode="audit"), [f'{GMS}.mode: "enforce" -> "audit"']),
        (settings(), limits(limit=5), [f"{GMS}.limit: unset -> 5"]),
        (limits(limit=5, error_code=81), settings(), [f"{GMS}.limit: 5 -> unset", f"{GMS}.error_code: 81 -> unset"]),
        (limits(limit=5), settings(policies={"group_max_size": None}), [f"{GMS}.limit: 5 -> unset"]),
        (
            limits(limit=5),
            limits(limit=5, overrides=[{"group": "grün", "limit": 1}]),
            [f'{GMS}.overrides.0.group: unset -> "grün"', f"{GMS}.overrides.0.limit: unset -> 1"],
        ),
        (
            limits(limit=5, overrides=[{"group": "g", "limit": 1}, {"pattern": "a.*", "consumer_max_size": 2}]),
            limits(limit=5, overrides=[{"group": "g", "limit": 2}]),
            [
                f"{GMS}.overrides.0.limit: 1 -> 2",
                f'{GMS}.overrides.1.pattern: "a.*" -> unset',
                f"{GMS}.overrides.1.consumer_max_size: 2 -> unset",
            ],
        ),
        (  # A key that an override does not set has the general value; null means no limit.
            limits(limit=5, overrides=[{"group": "g", "consumer_max_size": 2}]),
            limits(limit=5, overrides=[{"group": "g", "consumer_max_size": 2, "limit": None}]),
            [f"{GMS}.overrides.0.limit: unset -> null"],
        ),
        (
            settings(),
            settings(policies={"offset_metadata_max_bytes": {"limit": 4096}}),
            ["policies.offset_metadata_max_bytes.limit: unset -> 4096"],
        ),
    ],
)
async def test_changed_policies_are_applied(before: Config, after: Config, changed: list[str]) -> None:
    """A reload applies changed policies, and reports and logs each changed key."""
    reloads, file = reloading(before, after)
    with structlog.testing.capture_logs() as logged:
        assert await reloads.reload() == ReloadOutcome(True, changed)
    assert file.enacted == [after]
    assert logged == [{"event": "settings reloaded", "log_level": "info", "changed": changed}]
    assert await reloads.reload() == ReloadOutcome(True, [])


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        # The default of `sidecar_id` changes too, but it was not set explicitly.
        (settings(), settings(listen="127.0.0.1:9093"), ["listen"]),
        (settings(sidecar_id="a"), settings(sidecar_id="b"), ["sidecar_id"]),
        (settings(), settings(limits={"groups": 5}), ["limits.groups"]),
        (settings(), settings(journal={"folder": "here"}), ["journal.folder"]),
        (settings(journal={"folder": "here"}), settings(), ["journal.folder"]),
        (settings(), settings(admin="a:1", answers={"apis": ["ListGroups"]}), ["admin", "answers.apis"]),
        (
            settings(own_connection={"sasl": {"mechanism": "PLAIN", "username": "u", "password": "old-secret"}}),
            settings(own_connection={"sasl": {"mechanism": "PLAIN", "username": "u", "password": "new-secret"}}),
            ["own_connection.sasl.password"],
        ),
    ],
)
async def test_other_keys_cannot_change(before: Config, after: Config, keys: list[str]) -> None:
    """A reload that changes any other key fails with a line for each such key and applies nothing."""
    reloads, file = reloading(before, after.model_copy(update={"policies": limits(limit=1).policies}))
    with structlog.testing.capture_logs() as logged:
        outcome = await reloads.reload()
    lines = [f"{key}: cannot change in a running sidecar; restart it, or send it SIGUSR2" for key in keys]
    assert outcome == ReloadOutcome(False, lines)
    assert file.enacted == []
    [line] = logged
    assert (line["log_level"], line["faults"]) == ("error", lines)
    assert "secret" not in str(logged)


@pytest.mark.parametrize(
    "after", [settings(admin=None), settings(limits={"groups": 100_000}), settings(sidecar_id=settings().sidecar_id)]
)
async def test_explicit_default_is_no_change(after: Config) -> None:
    """A key that is set to its value in force does not count as a change."""
    reloads, _ = reloading(settings(), after)
    assert await reloads.reload() == ReloadOutcome(True, [])


async def test_invalid_file_keeps_old_settings() -> None:
    """An invalid file leaves the old settings in force until a reload of the corrected file succeeds."""
    reloads, file = reloading(limits(limit=5), ConfigError(["f: a: is required", "f: b: unknown key"]))
    started = reloads.last
    assert started.successful
    with structlog.testing.capture_logs() as logged:
        assert await reloads.reload() == ReloadOutcome(False, ["f: a: is required", "f: b: unknown key"])
    [line] = logged
    assert (line["log_level"], line["faults"]) == ("error", ["f: a: is required", "f: b: unknown key"])
    assert (reloads.last.successful, reloads.last.succeeded_at) == (False, started.succeeded_at)
    assert file.enacted == []
    file.found = limits(limit=6)
    assert await reloads.reload() == ReloadOutcome(True, [f"{GMS}.limit: 5 -> 6"])
    assert reloads.last.successful
    assert reloads.last.succeeded_at > started.succeeded_at


async def test_failing_reader_is_reported() -> None:
    """An unexpected error of the reader fails the reload with one line."""
    reloads, _ = reloading(settings(), RuntimeError("no idea"))
    with structlog.testing.capture_logs() as logged:
        assert await reloads.reload() == ReloadOutcome(False, ["RuntimeError: no idea"])
    assert [line["log_level"] for line in logged] == ["error"]
    assert not reloads.last.successful


async def test_reload_without_file_fails() -> None:
    """A reload without a file fails with a warning and does not count as an unsuccessful reload."""
    reloads = ConfigReloader(settings(), None, list[Config]().append)
    with structlog.testing.capture_logs() as logged:
        applied, [line] = await reloads.reload()
    assert not applied
    assert line == "there is no file to read: the sidecar was started without --config"
    assert [(each["log_level"], each["cause"]) for each in logged] == [("warning", line)]
    assert reloads.last.successful  # No settings were read that could be corrected.


class Gate:
    """A file that is read slowly: each reading waits until `open` is set."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.open = threading.Event()

    def read(self) -> Config:
        self.begun += 1
        self.open.wait(10)
        self.ended += 1
        return limits(limit=self.begun)


async def test_reloads_run_one_after_another() -> None:
    """A second reload begins only after the first one has ended."""
    gate, enacted, outcomes = Gate(), list[Config](), list[ReloadOutcome]()
    reloads = ConfigReloader(settings(), gate.read, enacted.append)

    async def reload() -> None:
        outcomes.append(await reloads.reload())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reload)
        nursery.start_soon(reload)
        await holds(lambda: gate.begun > 0)
        await wait_all_tasks_blocked(0.05)  # Without the lock, the other reload would begin now.
        assert (gate.begun, gate.ended) == (1, 0)
        gate.open.set()
    assert [outcome.lines for outcome in outcomes] == [[f"{GMS}.limit: unset -> 1"], [f"{GMS}.limit: 1 -> 2"]]
    assert len(enacted) == 2


async def test_cancelled_reload_abandons_slow_read() -> None:
    """A cancelled reload does not wait for a slow file, applies nothing and does not block a later reload."""
    gate, enacted = Gate(), list[Config]()
    reloads = ConfigReloader(settings(), gate.read, enacted.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloads.reload)
        await holds(lambda: gate.begun > 0)
        nursery.cancel_scope.cancel()
    assert (gate.begun, gate.ended) == (1, 0)
    gate.open.set()
    assert enacted == []
    assert (await reloads.reload()).applied
