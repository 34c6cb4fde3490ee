"""The model of the settings in the JSON under /api/v1/. The model is made from the declarations of the settings."""

from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import Field, create_model

from group_sidecar.proxy.admin.timeline_models import Answer
from group_sidecar.proxy.config.errors import section_of
from group_sidecar.proxy.config.model import Config as Settings

_DESCRIPTION = """\
The settings in force, nested as in the file, with all defaults. Keys that are not set are null, and secrets that are \
set are `***`. `own_connection.tls` is the TLS that is used, also if it is that of a listener."""


def _json_type(annotation: Any) -> Any:
    """Returns the type of a setting in JSON. Addresses are text, and the keys of a section are not described."""
    if section_of(annotation):
        section = dict[str, Any]
        if get_origin(annotation) is tuple:
            return list[section]
        return section | None if NoneType in get_args(annotation) else section
    return annotation if annotation in (bool, str) or get_origin(annotation) is Literal else str | None


_fields: dict[str, Any] = {
    name: (_json_type(field.annotation), Field(description=f"`{name}` in the configuration."))
    for name, field in Settings.model_fields.items()
}
Config = create_model("Config", __base__=Answer, __doc__=_DESCRIPTION, **_fields)
