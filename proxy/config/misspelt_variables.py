"""Finds environment variables that look like settings and are none.

`loading.load_config` refuses an unknown key after the prefix of the settings, which ends in two underscores. A name
with one underscore there may belong to another program, so it only causes a warning.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from pydantic import BaseModel

from group_sidecar.proxy.config.errors import section_of
from group_sidecar.proxy.config.model import ENVIRONMENT, Config

PREFIX = ENVIRONMENT.removesuffix("_")
OTHER_VARIABLES = frozenset(
    PREFIX + name
    for name in (
        "ADMIN",
        "ALL_SIDECARS",
        "BOOTSTRAP",
        "CA_FILE",
        "COMMAND_CONFIG",
        "OPTIMIZE",
        "PROGRAM",
        "REQUIRE_COMPILED",
        "TOKEN",
        "TOKEN_FILE",
    )
)
"""The variables of the `groups` commands, of completion, and of the image's build."""
_SERVICE_LINK = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""The variables that Kubernetes sets in each pod for a service such as `group-sidecar` (`enableServiceLinks`)."""


def unused_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the name of each variable that looks like a setting and is none, and why the sidecar does not use it."""
    variables = {_plain(name): name for name in _setting_variables(Config, ENVIRONMENT)}
    for name in environment:
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper.startswith(ENVIRONMENT) or upper in OTHER_VARIABLES:
            continue
        meant = variables.get(_plain(upper))
        if meant is None and _SERVICE_LINK.fullmatch(upper):
            continue
        similar = [meant] if meant else [variables[each] for each in get_close_matches(_plain(upper), variables, n=1)]
        yield name, f"is not used; did you mean {similar[0]}?" if similar else "is not used, because it is no setting"


def _setting_variables(section: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yields the variables of all settings. The sections of a list have none."""
    for key, field in section.model_fields.items():
        name = prefix + key.upper()
        yield name
        if (inner := section_of(field.annotation)) is not None:
            yield from _setting_variables(inner, f"{name}__")


def _plain(name: str) -> str:
    """Returns the name without its prefix and with single underscores, so that names with too few of them are found."""
    return re.sub("_+", "_", name.removeprefix(PREFIX).lstrip("_"))
