"""Settings that change while the sidecar runs.

Owns: which keys may change, what has changed, that one reload comes after another, how the last one went. Must not
know: where settings come from, who asks for a reload, what it takes to put them into force.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import trio
from pydantic import BaseModel

from group_sidecar.metrics.collector import LastReload
from group_sidecar.proxy.config import Config, ConfigError
from group_sidecar.proxy.logs import log

CHANGEABLE = "policies."
"""How the keys begin that may change. All else has been built into what is running."""
UNSET = object()
"""The value of a key that is not there."""


class Outcome(NamedTuple):
    """What came of a reload.

    Attributes:
        applied: whether the settings that were read are in force; otherwise the old ones are.
        lines: what has changed, or why nothing has: one line for each key.
    """

    applied: bool
    lines: list[str]


class Reloading:
    """Reads the settings again when asked to, and puts them into force.

    Args:
        config: those in force.
        read: gives those to come, and may block; None where there is no file to read.
        enact: puts settings into force that differ in `policies` alone.

    Attributes:
        last: how the last reading went, that at the start among them.
    """

    def __init__(self, config: Config, read: Callable[[], Config] | None, enact: Callable[[Config], None]) -> None:
        self._config = config
        self._read = read
        self._enact = enact
        self._turn = trio.Lock()
        self.last = LastReload(successful=True, succeeded_at=time.time())

    async def reload(self) -> Outcome:
        """Reads the settings and puts them into force, or leaves all as it is; the log says which."""
        if self._read is None:
            reason = "there is no file to read: the sidecar was started without --config"
            log.warning("settings not reloaded", cause=reason)
            return Outcome(False, [reason])
        async with self._turn:
            try:
                # Whoever stops the sidecar does not wait for a file system that hangs.
                changed = self._apply(await trio.to_thread.run_sync(self._read, abandon_on_cancel=True))
            except ConfigError as error:
                log.error("settings not reloaded, the old ones stay in force", faults=error.lines)
                return self._failed(error.lines)
            except Exception as error:  # noqa: BLE001  Clients must not suffer from it.
                log.exception("settings not reloaded, the old ones stay in force")
                return self._failed([f"{type(error).__name__}: {error}"])
            log.info("settings reloaded", changed=changed)
            return Outcome(True, changed)

    def _apply(self, config: Config) -> list[str]:
        changes = list(_changes(self._config, config))
        if fixed := [key for key, _, _ in changes if not key.startswith(CHANGEABLE)]:
            raise ConfigError([f"{key}: cannot change while it runs; restart to change it" for key in fixed])
        self._enact(config)
        self._config = config
        self.last = LastReload(successful=True, succeeded_at=time.time())
        return [f"{key}: {_spelled(old)} -> {_spelled(new)}" for key, old, new in changes]

    def _failed(self, lines: list[str]) -> Outcome:
        self.last = self.last._replace(successful=False)
        return Outcome(False, lines)


def _changes(old: Config, new: Config) -> Iterator[tuple[str, Any, Any]]:
    """Key, old value and new value of all that differ and that somebody has set."""
    before, after = dict(_values(old)), dict(_values(new))
    for key in dict.fromkeys([*before, *after]):
        was, was_set = before.get(key, (UNSET, False))
        now, now_set = after.get(key, (UNSET, False))
        if was != now and (was_set or now_set):
            yield key, was, now


def _values(section: BaseModel, above: str = "", listed: bool = False) -> Iterator[tuple[str, tuple[Any, bool]]]:
    """The keys of all plain values, and whether they have been set.

    Null is as good as unset; but for the sections of a list, where what is unset is as elsewhere.
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


def _spelled(value: Any) -> str:
    return "unset" if value is UNSET else json.dumps(value, ensure_ascii=False, default=str)
