"""A layout: reads and writes one struct in one version, field by field, with the library construct.

The layout is the reference. `group_sidecar.codecs.generated_code` generates faster functions from the layout, and
`group_sidecar.codecs.schema` uses these functions first. If a generated function fails, the layout reads or writes the
message again. The layout's error contains the path of the field.
"""

import dataclasses
from collections.abc import Mapping
from io import BytesIO
from operator import itemgetter
from typing import Any

from construct import Construct, ConstructError

from group_sidecar.codecs.primitives import WireError, read_exact, read_tag_count, read_uvarint, write_uvarint

_TAG = itemgetter(0)


class Layout(Construct):  # type: ignore[misc]
    """Converts bytes to an instance of `cls`, and an instance to bytes.

    Attributes:
        title: struct and version, for instance ``HeartbeatRequest_v4``.
        cls: the immutable dataclass. A field that is neither in `plain` nor in `tagged` has its default.
        flexible: whether tagged fields follow the other fields (KIP-482).
        plain: the fields that are always written, in wire order.
        tagged: the fields that are written only if they differ from their default, by tag.
    """

    def __init__(
        self,
        title: str,
        cls: Any,
        flexible: bool,
        plain: Mapping[str, Construct],
        tagged: Mapping[int, tuple[str, Construct]],
    ) -> None:
        super().__init__()
        self.title = title
        self.cls = cls
        self.flexible = flexible
        self.plain = plain
        self.tagged = tagged
        self.defaults = {field.name: field.default for field in dataclasses.fields(cls)}

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, construct in self.plain.items():
                values[name] = construct._parse(stream, None, "")
            if self.flexible:
                name = "tagged fields"
                values.update(self._parse_tags(stream))
        except ConstructError as error:
            raise _located(error, name) from error
        return self.cls(**values)

    def _parse_tags(self, stream: BytesIO) -> dict[str, Any]:
        """Reads tagged fields as Kafka's generated readers do.

        Kafka's readers accept tags in any order and more than once, and the last value counts. Kafka's readers ignore
        the announced size of a known field. If only other versions declare a tag, this method treats the tag as
        unknown, but Kafka refuses the message.
        """
        values: dict[str, Any] = {}
        unknown: list[tuple[int, bytes]] = []
        for _ in range(read_tag_count(stream)):
            tag, size = read_uvarint(stream), read_uvarint(stream)
            known = self.tagged.get(tag)
            if known is not None:
                values[known[0]] = _parse_tag(*known, stream)
            else:
                unknown.append((tag, read_exact(stream, size)))
        if unknown:
            values["unknown_tags"] = tuple(sorted(unknown, key=_TAG))
        return values

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:
        name = ""
        try:
            for name, construct in self.plain.items():
                construct._build(getattr(obj, name), stream, None, "")
            if self.flexible:
                name = "tagged fields"
                stream.write(self.tags(obj))
        except (ConstructError, OverflowError) as error:
            raise _located(error, name) from error
        return obj

    def tags(self, obj: Any) -> bytes:
        """Returns the encoded tagged fields of `obj`, declared and unknown, in the order of their tags."""
        tags = list(obj.unknown_tags)
        for tag, (name, construct) in self.tagged.items():
            value = getattr(obj, name)
            if value != self.defaults[name]:
                tags.append((tag, _build_tag(name, construct, value)))
        stream = BytesIO()
        write_uvarint(stream, len(tags))
        for tag, raw in sorted(tags, key=_TAG):  # A repeated tag keeps its order, because its last value counts.
            write_uvarint(stream, tag)
            write_uvarint(stream, len(raw))
            stream.write(raw)
        return stream.getvalue()

    def fill_tags(self, data: bytes, at: int, target: Any) -> int:
        """Sets the fields of `target` from the tagged fields at a position, and returns where the tagged fields end."""
        stream = BytesIO(data)
        stream.seek(at)
        for name, value in self._parse_tags(stream).items():
            setattr(target, name, value)
        return stream.tell()


def _parse_tag(name: str, construct: Construct, stream: BytesIO) -> Any:
    try:
        return construct._parse(stream, None, "")
    except ConstructError as error:
        raise _located(error, name) from error


def _build_tag(name: str, construct: Construct, value: Any) -> bytes:
    stream = BytesIO()
    try:
        construct._build(value, stream, None, "")
    except (ConstructError, OverflowError) as error:
        raise _located(error, name) from error
    return stream.getvalue()


def _located(error: Exception, name: str) -> WireError:
    """Returns the error with `name` prepended to its path."""
    inner = getattr(error, "where", "")
    located = WireError(getattr(error, "reason", None) or str(error).strip().splitlines()[-1])
    located.reason = located.args[0]
    located.where = f"{name}.{inner}" if inner else name
    return located
