"""Turns validation errors into one line for each invalid setting.

A line contains the source of the setting, the path of its key, and the reason.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Settings = dict[str, Any]
_Path = tuple[int | str, ...]

_REASONS = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
    "model_type": "must be a mapping of keys",
    "model_attributes_type": "must be a mapping of keys",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "finite_number": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a path",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
    "invalid_key": "unknown key",
}
"""The reason for each of pydantic's error types. An error of any other type keeps the message of pydantic."""


def error_lines(error: ValidationError, model: type[BaseModel], sources: Mapping[str, Settings]) -> list[str]:
    """Returns a line for each invalid or missing setting.

    Args:
        error: the error that pydantic raised.
        model: the model that was validated.
        sources: settings by the name of their source, in order of precedence. A setting that no source contains counts
            as missing in the last source. An empty name is left out of the line.
    """
    faults = [fault for fault in error.errors() if fault["type"] != "default_factory_not_called"]
    return [_line(fault, model, sources) for fault in faults]


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Returns the section in a field's type: the type itself, an optional section or the item of a list.

    Returns None for a plain value.
    """
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _line(fault: ErrorDetails, model: type[BaseModel], sources: Mapping[str, Settings]) -> str:
    path, reason = fault["loc"], _reason(fault, model)
    source = next((name for name, settings in sources.items() if _holds(settings, path)), [*sources][-1])
    return ": ".join(part for part in (source, ".".join(map(str, path)), reason) if part)


def _holds(settings: Any, path: _Path) -> bool:
    for key in path:
        try:
            settings = settings[key]
        except (KeyError, IndexError, TypeError):  # The key does not exist, or its parent is a plain value.
            return False
    return bool(path)


def _reason(fault: ErrorDetails, model: type[BaseModel]) -> str:
    if fault["type"] != "extra_forbidden":
        reason = _REASONS.get(fault["type"])
        return reason.format_map(fault.get("ctx", {})) if reason else fault["msg"]
    key, section = str(fault["loc"][-1]), _section_at(fault["loc"][:-1], model)
    fields = section.model_fields if section else {}
    meant = get_close_matches(key, list(fields), n=1) or [
        f"{name}{'[]' if get_origin(field.annotation) is tuple else ''}.{key}"
        for name, field in fields.items()
        if (inner := section_of(field.annotation)) and key in inner.model_fields
    ]
    return f"unknown key; did you mean {' or '.join(meant)}?" if meant else "unknown key"


def _section_at(path: _Path, root: type[BaseModel]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    for key in path:
        if model and isinstance(key, str):  # A number is an index into a list of sections of one type.
            model = section_of(model.model_fields[key].annotation)
    return model
