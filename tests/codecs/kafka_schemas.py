"""Reads Kafka's JSON message schemas from the kafka-clients jar, for one version of a message at a time.

The format is described in clients/src/main/resources/common/message/README.md in Kafka's sources. The module does not
use our own declarations, because tests compare the two.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

NO_VERSIONS = range(0)
NEVER = 0x8000
"""One more than the last version that an int16 can hold; the end of an open range."""


def version_range(text: str) -> range:
    """Parses `3+`, `2-5`, `7` or `none` as a range."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), NEVER)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@dataclass(frozen=True)
class Field:
    """A field in one version of a message.

    Attributes:
        type: Kafka's name of the type, as written in the schema: `int32`, `[]string`, or a struct's name.
        fields: the fields of the struct, in schema order; empty for wire types.
    """

    name: str
    type: str
    nullable: bool
    tag: int | None
    fields: "tuple[Field, ...]"


@dataclass(frozen=True)
class Default:
    """A field's default value in a schema.

    Attributes:
        path: the names of the enclosing fields and the field's own name, joined with full stops.
        text: the default as written (a JSON scalar), or None if the schema has none.
        written: whether the schema has a default for the field.
        everywhere: whether the field exists in every version of the enclosing struct.
    """

    path: str
    type: str
    text: Any
    written: bool
    everywhere: bool


class KafkaSchemas:
    """The schemas inside one kafka-clients jar."""

    def __init__(self, jar: Path) -> None:
        self.jar = jar

    @cached_property
    def _all(self) -> dict[str, dict[str, Any]]:
        schemas = {}
        with zipfile.ZipFile(self.jar) as jar:
            for name in jar.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$|\s//\s.*$", "", jar.read(name).decode(), flags=re.M)
                    schema, _ = json.JSONDecoder().raw_decode(text.strip())  # A schema in 2.8 has a surplus bracket.
                    schemas[schema["name"]] = schema
        return schemas

    def api_keys(self) -> dict[int, str]:
        """The name of every API by key: its request's name without `Request`."""
        requests = (schema for schema in self._all.values() if schema["type"] == "request")
        return {schema["apiKey"]: schema["name"].removesuffix("Request") for schema in requests}

    def has(self, message: str) -> bool:
        """Whether this release of Kafka has a message."""
        return message in self._all

    def key(self, message: str) -> int:
        """The API key of a message."""
        key: int = self._all[message]["apiKey"]
        return key

    def versions(self, message: str) -> range:
        """The versions of a message that this release of Kafka supports."""
        return version_range(self._all[message]["validVersions"])

    def listeners(self, message: str) -> tuple[str, ...]:
        """The types of node that accept a request, such as ``broker`` and ``controller``."""
        return tuple(self._all[message].get("listeners", ()))

    def flexible(self, message: str) -> range:
        """The flexible versions of a message (`flexibleVersions`)."""
        return version_range(self._all[message]["flexibleVersions"])

    def fields(self, message: str, version: int) -> tuple[Field, ...]:
        """The fields of a message in a version, in schema order, including nested fields."""
        schema = self._all[message]
        return tuple(_fields(schema["fields"], _common(schema), version))

    def defaults(self, message: str) -> Iterator[Default]:
        """The default of each field of a message, including nested fields."""
        schema = self._all[message]
        return _defaults(schema["fields"], _common(schema), "", self.versions(message))


def _common(schema: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}


def _inner(field: dict[str, Any], common: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    inner: list[dict[str, Any]] = field.get("fields") or common.get(field["type"].removeprefix("[]"), [])
    return inner


def _fields(fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]], version: int) -> Iterator[Field]:
    for field in fields:
        if version in version_range(field["versions"]):
            yield Field(
                name=field["name"],
                type=field["type"],
                nullable=version in version_range(field.get("nullableVersions", "none")),
                tag=field["tag"] if version in version_range(field.get("taggedVersions", "none")) else None,
                fields=tuple(_fields(_inner(field, common), common, version)),
            )


def _defaults(
    fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]], path: str, around: range
) -> Iterator[Default]:
    for field in fields:
        here = version_range(field["versions"])
        both = range(max(here.start, around.start), min(here.stop, around.stop))
        where = f"{path}{field['name']}"
        yield Default(where, field["type"], field.get("default"), "default" in field, both == around)
        yield from _defaults(_inner(field, common), common, f"{where}.", both)
