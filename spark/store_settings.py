"""The settings that a store was made with: the file store.json."""

import json
from dataclasses import dataclass

from group_sidecar.spark.filesystem import Folders

_FILE = "store.json"
_LAYOUT = 1
"""The layout of the store's folders that this version reads and writes."""


class StoreError(Exception):
    """The store cannot be used as requested. The text explains why, in one line."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The settings of a store, which cannot change.

    Attributes:
        format: the format of the tables.
        window: the width of windows in Spark's notation.
    """

    format: str
    window: str


def read_settings(folders: Folders) -> StoreSettings | None:
    """Returns the settings of a store; None if there is no store. Changes nothing.

    Raises:
        StoreError: a newer version of the job made the store, or the file with the settings is damaged.
        FolderError: the file system does not respond.
    """
    text = folders.read(_FILE)
    if text is None:
        return None
    file = f"{folders.root}/{_FILE}"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(file, "it is no JSON") from None
    if not isinstance(found, dict):
        raise _damaged(file, "it is no JSON object")
    if (layout := found.pop("layout", None)) != _LAYOUT:
        if type(layout) is int and layout > _LAYOUT:
            raise _newer(file, f"has layout {layout}")
        raise _damaged(file, f"it has no layout {_LAYOUT}")
    settings = {name: found.pop(name, None) for name in ("format", "window")}
    if found:
        raise _newer(file, f"has the unknown setting {min(found)}")
    for name, value in settings.items():
        if not isinstance(value, str):
            raise _damaged(file, f"it has no {name}")
    return StoreSettings(**settings)


def write_settings(folders: Folders, settings: StoreSettings) -> None:
    """Writes the settings of a store that does not exist yet.

    Raises:
        FolderError: the file cannot be written.
    """
    made = {"layout": _LAYOUT, "format": settings.format, "window": settings.window}
    folders.write_new_file(_FILE, json.dumps(made) + "\n")


def _newer(file: str, reason: str) -> StoreError:
    return StoreError(f"{file} {reason}, so a newer version of the job made this store: upgrade the job")


def _damaged(file: str, reason: str) -> StoreError:
    return StoreError(f"{file} is damaged, because {reason}: restore it, or make a new store from the journals")
