"""Changes settings while the sidecar runs.

`ConfigReloader` finds the keys that have changed, and checks whether they may change. `ConfigReloader` also runs one
reload at a time, and keeps the result of the last reload.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import trio
from pydantic import BaseModel

from group_sidecar.metrics.collector import LastReload
from group_sidecar.proxy.config.loading import ConfigError
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.logging import log

RELOADABLE_PREFIX = "policies."
"""The prefix of the keys that may change. Running parts keep the values of all other keys from the start."""
UNSET = object()
"""The value of a key that is not set."""


class ReloadOutcome(NamedTuple):
    """The result of a reload.

    Attributes:
        applied: whether the new settings are in force. Otherwise the old settings are in force.
        lines: one line for each changed key, or the reasons why the new settings are not in force.
    """

    applied: bool
    lines: list[str]


class ConfigReloader:
    """Reads the settings again on request, and puts them into force.

    Args:
        config: the settings in force.
        read: returns the new settings, and may block. `read` is None if there is no file to read.
        apply_policies: puts settings into force that differ only in `policies`.

    Attributes:
        last: the result of the last reload. Before the first reload, the result of the start.
    """

    def __init__(
        self, config: Config, read: Callable[[], Config] | None, apply_policies: Callable[[Config], None]
    ) -> None:
        self._config = config
        self._read = read
        self._apply_policies = apply_policies
        self._lock = trio.Lock()
        self.last = LastReload(successful=True, succeeded_at=time.time())

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self._config

    async def reload(self) -> ReloadOutcome:
        """Reads the settings and puts them into force, or keeps the old settings. Logs the result."""
        if self._read is None:
            reason = "there is no file to read: the sidecar was started without --config"
            log.warning("settings not reloaded", cause=reason)
            return ReloadOutcome(False, [reason])
        async with self._lock:
            try:
                # `read` runs in a thread, so that the sidecar can stop even if the file system hangs.
                changed = self._apply(await trio.to_thread.run_sync(self._read, abandon_on_cancel=True))
            except ConfigError as error:
                log.error("settings not reloaded, the old ones stay in force", faults=error.lines)
                return self._failed(error.lines)
            except Exception as error:  # noqa: BLE001  A failed reload must not affect clients.
                log.exception("settings not reloaded, the old ones stay in force")
                return self._failed([f"{type(error).__name__}: {error}"])
            log.info("settings reloaded", changed=changed)
            return ReloadOutcome(True, changed)

    def _apply(self, config: Config) -> list[str]:
        changes = list(_changes(self._config, config))
        if fixed := [key for key, _, _ in changes if not key.startswith(RELOADABLE_PREFIX)]:
            raise ConfigError(
                [f"{key}: cannot change in a running sidecar; restart it, or send it SIGUSR2" for key in fixed]
            )
        self._apply_policies(config)
        self._config = config
        self.last = LastReload(successful=True, succeeded_at=time.time())
        return [f"{key}: {_format_value(old)} -> {_format_value(new)}" for key, old, new in changes]

    def _failed(self, lines: list[str]) -> ReloadOutcome:
        self.last = self.last._replace(successful=False)
        return ReloadOutcome(False, lines)


def _changes(old: Config, new: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yields key, old value and new value of each changed setting that is explicit in the old or new settings."""
    before, after = dict(_values(old)), dict(_values(new))
    for key in dict.fromkeys([*before, *after]):
        was, was_set = before.get(key, (UNSET, False))
        now, now_set = after.get(key, (UNSET, False))
        if was != now and (was_set or now_set):
            yield key, was, now


def _values(section: BaseModel, above: str = "", listed: bool = False) -> Iterator[tuple[str, tuple[Any, bool]]]:
    """Yields the key and value of each plain setting, and whether it was set explicitly.

    Null counts as unset. But in a section of a list an explicit null counts as a value. For instance, `limit: null` in
    an override means no limit, and without the key the limit of the policy applies.
    """
    for name in type(section).model_fields:
        value, key, is_set = getattr(section, name), above + name, name in section.model_fields_set
        if isinstance(value, BaseModel):
            yield from _values(value, f"{key}.")
        elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
            for index, item in enumerate(value):
                yield from _values(item, f"{key}.{index}.", listed=True)
        else:
            yield key, (UNSET if value is None and not (listed and is_set) else value, is_set)


def _format_value(value: Any) -> str:
    return "unset" if value is UNSET else json.dumps(value, ensure_ascii=False, default=str)
