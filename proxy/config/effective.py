"""The settings in force as plain values, nested as in the file, without secrets."""

from typing import Any

from pydantic import BaseModel, SecretStr

from group_sidecar.proxy.config.model import Config

REDACTED = "***"
"""The text in place of a secret that is set."""


def effective_settings(config: Config) -> dict[str, Any]:
    """Returns all settings with their defaults. Keys that are not set are None.

    `own_connection.tls` has the TLS settings in force, which may come from the `upstream_tls` of the first listener.
    For a file, the value is its path.
    """
    settings = {name: _plain(getattr(config, name)) for name in Config.model_fields}
    return {**settings, "own_connection": _plain(config.own_connection_in_force)}


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return REDACTED
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if type(value) is tuple:  # An `Address` is a tuple too, but its type is not `tuple`.
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
