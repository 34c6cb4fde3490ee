"""The surface of `check-config`: its output and its exit status, for valid files and for each single fault.

Host names are not really resolved, and all addresses count as addresses of this machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from group_sidecar.proxy.checks import addresses, offline
from tests.surfaces.good_settings import FULL, LEAST
from tests.surfaces.program import program
from tests.surfaces.texts import empty_folder, steady
from tests.surfaces.unusable_settings import ELSEWHERE, NUMBERS, UNUSABLE, UNUSABLE_LISTENERS, write_files
from tests.surfaces.wrong_settings import BYTES, FLAGS, TARGET_VARIABLES, TEXTS, UNUSED_VARIABLES, WRONG

FILE = "sidecar.yaml"


def check_config() -> str:
    """Returns all outputs. They contain no paths of this machine, because the working directory is an empty folder."""
    parts = []
    with empty_folder() as folder, _made_up_network():
        (folder / "folder").mkdir()
        write_files(folder)
        parts += [_checked("the least", LEAST), _checked("every section", FULL)]
        parts.append(_checked("a gateway", {**LEAST, "mode": "gateway"}))
        parts += [_checked(_flow(settings), {**LEAST, **settings}) for settings in WRONG]
        parts += [_read(repr(text[:60]), text.encode()) for text in TEXTS]
        parts += [_read(repr(content), content) for content in BYTES]
        parts += [_asked(file, "check-config", file) for file in ("absent.yaml", "folder", f"{FILE}/below")]
        Path(FILE).write_text(yaml.safe_dump(LEAST))
        parts += [
            _asked(str(variables), "check-config", FILE, variables=variables)
            for variables in (*TARGET_VARIABLES, *UNUSED_VARIABLES)
        ]
        parts += [_asked(" ".join(flags), *flags) for flags in FLAGS]
        parts += [steady(_checked(_flow(settings), {**LEAST, **settings})) for settings in UNUSABLE]
        parts += [steady(_checked(_flow(settings), settings)) for settings in UNUSABLE_LISTENERS]
    return "\n".join(parts)


@contextmanager
def _made_up_network() -> Iterator[None]:
    """Gives each host name an address, except `nowhere`."""

    def resolve(hosts: Iterable[str]) -> addresses.Resolutions:
        found = {host: addresses.Resolution((NUMBERS.get(host, host),)) for host in hosts}
        return {**found, "nowhere": addresses.Resolution(reason="name or service not known")}

    with (
        patch.object(offline, "resolve", resolve),
        patch.object(addresses, "is_own_address", lambda number: number != ELSEWHERE),
        patch.object(addresses, "first_open_port", lambda: 1024),
    ):
        yield


def _checked(heading: str, settings: Mapping[str, Any]) -> str:
    """Checks settings. The heading may leave out the required settings."""
    return _read(heading, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).encode())


def _read(heading: str, content: bytes) -> str:
    Path(FILE).write_bytes(content)
    return _asked(heading, "check-config", FILE)


def _asked(heading: str, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
    return program(*arguments, variables=variables).text(heading)


def _flow(settings: Mapping[str, Any]) -> str:
    """Returns settings in one line of at most 160 characters."""
    line = yaml.safe_dump(settings, default_flow_style=True, width=10_000, sort_keys=False).strip()
    return line if len(line) <= 160 else f"{line[:160]}..."
