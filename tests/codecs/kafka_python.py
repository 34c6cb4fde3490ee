"""Encodes messages with kafka-python's older classes. They are the oracle for versions that Kafka 4.4.0 no longer has.

None of these versions is flexible, so kafka-python represents a message as nested lists of field values.
"""

import warnings
from typing import Any

from group_sidecar.codecs.schema import Struct
from tests.codecs.declarations import present

with warnings.catch_warnings():
    # kafka-python 3.0 reads its resources by functions that Python 3.11 has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.old import admin, commit, fetch, list_offsets, produce


def schema(message: str, version: int) -> Any:
    """Returns kafka-python's schema of a message in a version."""
    name = f"{message}_v{version}"
    holding = next(module for module in (admin, commit, fetch, list_offsets, produce) if hasattr(module, name))
    return getattr(holding, name).SCHEMA


def as_lists(value: Any, version: int) -> Any:
    """Returns a struct as the list of its fields' values in a version."""
    if isinstance(value, Struct):
        return [as_lists(getattr(value, name), version) for name in present(type(value), version)]
    if isinstance(value, tuple):
        return [as_lists(item, version) for item in value]
    return value


def encode(message: Struct, version: int) -> bytes:
    """Returns the message body as kafka-python encodes it."""
    body: bytes = schema(type(message).__name__, version).encode(as_lists(message, version))
    return body
