"""The record contract: the records that a sidecar writes for Spark, one JSON object per line.

The module declares the envelope and the kinds of records, with the type and the bounds of each column, and converts
records to lines and back. The module imports only the standard library, because `spark/` shares no other module with
the sidecar.

A line of version 1 is a flat object with the columns of the envelope and the columns of the record's kind. If several
kinds have the same column, its type is the same in all of them. So one schema reads every line. A line of version 2, an
array line, has up to `ARRAY_RECORDS` records of one kind. Readers ignore unknown columns. If a reader would be misled
because it ignores a change, the change needs a new version.

``python -m group_sidecar.metrics.records`` prints this contract as Markdown: docs/records.md.

The module has more than 400 lines because it has all columns of all kinds of records, with their descriptions.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, NewType, TypeVar, get_args, get_origin, get_type_hints

VERSION = 1
"""The version of a line that is one record."""

ARRAY_VERSION = 2
"""The version of a line that has many records of one kind."""

ARRAY_RECORDS = 500
"""The largest number of records in an array line."""

Timestamp = NewType("Timestamp", str)
"""A time as ISO 8601 in UTC with milliseconds, for instance ``2025-01-31T09:30:00.250Z``."""

Sample = Mapping[str, float]
"""Names of figures and their finite values."""

SQL_TYPES: Mapping[object, str] = MappingProxyType(
    {str: "STRING", int: "BIGINT", float: "DOUBLE", Timestamp: "TIMESTAMP", Sample: "MAP<STRING, DOUBLE>"}
)
"""The Python types that a column may have, each with its type in Spark SQL."""

GREATEST = 2**48
"""The largest number that a record may contain. The bound leaves room for sums in a BIGINT."""

EARLIEST = "2020-01-01T00:00:00.000Z"
"""The earliest `emitted_at` of a record. A clock that shows an earlier time has never been set."""

EARLIEST_OBSERVATION = "1969-12-31T00:00:00.000Z"
"""The earliest `observed_at` of a record. Kafka's timestamps start in 1970, and -1 means no timestamp."""

TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSX"
"""The pattern of a `Timestamp` for Java's DateTimeFormatter, with which Spark parses it."""


@dataclass(frozen=True, slots=True)
class Note:
    """The meaning of a column, and the smallest value that the column may have."""

    text: str
    minimum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The columns that every record has."""

    version: Annotated[int, Note("Version of the contract that the line follows.", 1)]
    kind: Annotated[str, Note("Kind of the record. It determines the other columns.")]
    sidecar: Annotated[str, Note("Id of the sidecar.")]
    boot: Annotated[str, Note("Id of one start of the sidecar: a UUID as 32 hexadecimal digits.")]
    seq: Annotated[
        int, Note("Number of the record in its boot, from 1. A record whose number is missing was dropped or lost.", 1)
    ]
    observed_at: Annotated[
        Timestamp,
        Note("When the sidecar observed the reported fact. In a snapshot, this is often before emitted_at."),
    ]
    emitted_at: Annotated[Timestamp, Note("When the record was made.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayEnvelope:
    """The columns that every array line has, besides `columns`."""

    version: Annotated[int, Note("Version of the contract that the line follows.", 1)]
    kind: Annotated[str, Note("Kind of all records of the line: group, commit or log_end.")]
    sidecar: Annotated[str, Note("Id of the sidecar.")]
    boot: Annotated[str, Note("One start of that sidecar: a UUID as 32 hexadecimal digits.")]
    seq: Annotated[int, Note("Number of the first record. The next record has the next number, and so on.", 1)]
    count: Annotated[int, Note("Number of records, which is the length of each array in `columns`.", 1)]
    emitted_at: Annotated[Timestamp, Note("When the records were made.")]


class Body:
    """Base of the kinds of records: the columns of a record besides the envelope."""

    __slots__ = ()
    KIND: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Body):
    """The sidecar is alive. Each snapshot begins with this record."""

    KIND = "heartbeat"
    sample: Annotated[Sample, Note("The values of the sidecar's Prometheus metrics, by name.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Body):
    """The state of a group. Part of each snapshot."""

    KIND = "group"
    group: Annotated[str, Note("Group id.")]
    protocol: Annotated[str, Note("classic, consumer, share or streams, as in Kafka's group-count metric.")]
    state: Annotated[str, Note("State, spelled as in DescribeGroups and ConsumerGroupDescribe.")]
    protocol_type: Annotated[str, Note("Kind of the members: consumer, connect, ...; empty if not known.")]
    assignor: Annotated[str, Note("The protocol that all members support, or the broker's assignor; empty if none.")]
    generation: Annotated[int, Note("Generation, or group epoch; 0 or -1 before the first one.", -1)]
    members: Annotated[int, Note("Number of members.", 0)]
    max_size: Annotated[int | None, Note("The maximum number of members of this group; null if there is no limit.", 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Body):
    """The committed offset of one partition of a group. Part of each snapshot."""

    KIND = "commit"
    group: Annotated[str, Note("Group id.")]
    topic: Annotated[str, Note("Topic.")]
    partition: Annotated[int, Note("Partition.", 0)]
    offset: Annotated[int, Note("Committed offset: that of the next message to consume.", 0)]
    leader_epoch: Annotated[int, Note("Leader epoch committed with the offset; -1 if none.", -1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd(Body):
    """The log end offset of a partition. Part of each snapshot."""

    KIND = "log_end"
    topic: Annotated[str, Note("Topic.")]
    partition: Annotated[int, Note("Partition.", 0)]
    offset: Annotated[int, Note("High watermark: the offset after the last message that consumers can read.", 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(Body):
    """A generation of a group was completed."""

    KIND = "rebalance"
    group: Annotated[str, Note("Group id.")]
    generation: Annotated[int, Note("Generation, or group epoch; 0 or -1 before the first one.", -1)]
    reason: Annotated[str, Note("The cause of the rebalance: join, leave, metadata, expired or unknown.")]
    cause: Annotated[
        str | None,
        Note(
            "The cause in more detail, for instance new_member or topic_metadata. docs/operations.md "
            "lists the causes. Null in records of older sidecars."
        ),
    ]
    duration_seconds: Annotated[
        float,
        Note(
            "Seconds from the first join to the first SyncGroup reply of the generation. For a KIP-848 group, from "
            "the new epoch until each member owns its target assignment.",
            0,
        ),
    ]
    members: Annotated[int, Note("Number of members.", 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Body):
    """A policy's decision about a request, or about a member of a group over its limit. The record's kind shows whether
    the policy was enforced.
    """

    group: Annotated[str, Note("Group id.")]
    policy: Annotated[str, Note("Name of the policy.")]
    error_code: Annotated[int, Note("Kafka's error code of the refusal.")]
    client_id: Annotated[str, Note("The client id.")]
    client_host: Annotated[str, Note("The client's address, as Kafka prints it.")]
    principal: Annotated[str | None, Note("The client's user, as Kafka writes it; null if it is not known.")]
    size: Annotated[int, Note("The number that the policy counted, for instance the members of the group.", 0)]
    limit: Annotated[int, Note("The maximum that the policy allows.", 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Verdict):
    """A policy refused a request, or the sidecar removed a member of a group over its limit."""

    KIND = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Verdict):
    """A policy in audit mode only recorded what it would refuse or remove in enforce mode."""

    KIND = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Body):
    """A member joined a group or left it."""

    KIND = "member"
    group: Annotated[str, Note("Group id.")]
    member_id: Annotated[str, Note("Member id.")]
    instance_id: Annotated[str | None, Note("group.instance.id; null for a dynamic member, or if it is not known.")]
    client_id: Annotated[str, Note("The client id.")]
    client_host: Annotated[str, Note("The client's address, as Kafka prints it.")]
    principal: Annotated[str | None, Note("The client's user, as Kafka writes it; null if it is not known.")]
    change: Annotated[
        str,
        Note(
            "joined; left; expired: its session most likely expired; dropped: the broker continued without it; "
            "removed: by the sidecar, for a policy; kicked: by an admin; fenced: another client took over its "
            "group.instance.id."
        ),
    ]


BODIES: tuple[type[Body], ...] = (Heartbeat, Group, Commit, LogEnd, Rebalance, Refusal, Audit, Member)
ARRAY_BODIES: tuple[type[Body], ...] = (Group, Commit, LogEnd)
"""The kinds of records that an array line may have."""
Part = TypeVar("Part", Envelope, Body)
KINDS: Mapping[str, type[Body]] = MappingProxyType({body.KIND: body for body in BODIES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the contract. `sql_type`: the column's type in Spark's DDL."""

    name: str
    sql_type: str
    nullable: bool
    note: Note


def _column(name: str, hint: object) -> Column:
    declared, note = get_args(hint)
    variants = get_args(declared) if get_origin(declared) is UnionType else (declared,)
    (plain,) = (variant for variant in variants if variant is not NoneType)
    return Column(name=name, sql_type=SQL_TYPES[plain], nullable=NoneType in variants, note=note)


def _columns(cls: type) -> tuple[Column, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_column(field.name, hints[field.name]) for field in fields(cls))


AnyPart = type[Envelope | ArrayEnvelope | Body]
"""The class of an envelope, or of a kind of record."""
_PARTS: tuple[AnyPart, ...] = (Envelope, ArrayEnvelope, *BODIES)
_COLUMNS = {cls: _columns(cls) for cls in _PARTS}


def columns(cls: AnyPart) -> tuple[Column, ...]:
    """Returns the columns of an envelope or of a kind of record, in the order in which they are written."""
    return _COLUMNS[cls]


_OBSERVED_AT = next(column for column in _COLUMNS[Envelope] if column.name == "observed_at")


def array_columns(body: type[Body]) -> tuple[Column, ...]:
    """Returns the columns that are arrays in an array line of this kind, in the order in which they are written."""
    return (_OBSERVED_AT, *columns(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A fact, or a part of a snapshot, as written for Spark."""

    envelope: Envelope
    body: Body

    @property
    def count(self) -> int:
        """The number of records of the line, which is 1."""
        return 1

    @property
    def emitted_at(self) -> Timestamp:
        """When the record was made."""
        return self.envelope.emitted_at

    def halves(self) -> "tuple[Record, ...]":
        """Returns no lines, because a single record cannot be halved."""
        return ()

    def to_line(self) -> bytes:
        """Returns the record as one line of JSON in UTF-8, with its line end. Never raises if all types are right."""
        cells = {
            column.name: getattr(part, column.name)
            for part in (self.envelope, self.body)
            for column in columns(type(part))
        }
        text = json.dumps(cells, ensure_ascii=False, separators=(",", ":"), default=dict)
        # A lone surrogate is written as its JSON escape.
        return text.encode("utf-8", "backslashreplace") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Record":
        """Returns the record of a line. The types of the values are not checked.

        Raises:
            ValueError: the line is not a JSON object, has another version or an unknown kind, or lacks a column that
                may not be null.
        """
        try:
            cells = json.loads(line)
        except RecursionError as error:
            raise ValueError("a line that is nested too deeply") from error
        if not isinstance(cells, dict) or cells.get("version") != VERSION:
            raise ValueError(f"not a record of version {VERSION} of the contract")
        kind = cells.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"no such kind of record: {kind!r}")
        return cls(envelope=_part(Envelope, cells), body=_part(KINDS[kind], cells))


def _part(cls: type[Part], cells: Mapping[str, Any]) -> Part:
    missing = [column.name for column in columns(cls) if column.name not in cells and not column.nullable]
    if missing:
        raise ValueError(f"a record lacks {', '.join(missing)}")
    given: dict[str, Any] = {column.name: cells.get(column.name) for column in columns(cls)}
    return cls(**given)


def timestamp(seconds: float) -> Timestamp:
    """Returns seconds since the epoch as a `Timestamp`, truncated to milliseconds."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return Timestamp(moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


_INTRODUCTION = f"""\
# The records that a sidecar writes

Generated by `python -m group_sidecar.metrics.records`; do not edit.

A line is one JSON object in UTF-8. The column `version` is the version of the contract that the line follows. A line of
version {VERSION} is one record. Its object is flat: it has the columns of the envelope and the columns of the record's
kind. A line of version {ARRAY_VERSION} has many records: see [Array lines](#array-lines). Readers ignore columns that
they do not know.

Types are those of Spark. A TIMESTAMP is a string, ISO 8601 in UTC with milliseconds: `{timestamp(0)}`.
Every record has all columns of its kind. Only columns with "or null" in their type may be null. Records of older
sidecars lack columns that were added later. Readers set these columns to null. "Minimum" is the smallest value that a
column may have. No number is greater than 2^48.
No `emitted_at` is before {EARLIEST}, and no `observed_at` before {EARLIEST_OBSERVATION}.

`sidecar`, `boot` and `seq` together identify one record. Two records with the same three values are the same record.

The kinds `heartbeat`, `group`, `commit` and `log_end` are a snapshot of the current state. A sidecar writes a snapshot
every `journal.interval_seconds`, whether or not anything has changed. All its records have the same `emitted_at`. The
other kinds are events. Each event is written once, when it happens.

[records.schema.json](records.schema.json) has the same contract as a JSON Schema, for one line
(`python -m group_sidecar.metrics.records_schema` writes it).

In a topic, each line is a message. The message's value is the line without the line end. Its key is the sidecar's id,
and its timestamp is `emitted_at`. All lines of one boot are in one partition and in order, as long as the leader of the
partition does not change.
"""

_ARRAY_LINES = f"""\
## Array lines

A sidecar with `journal.contract_version: {ARRAY_VERSION}` writes the kinds {{kinds}} on array lines.
An array line has up to {ARRAY_RECORDS} records of one kind. The line's envelope has the columns that its records share.
`columns` is an object with one array for each column of the kind, and one for `observed_at`. The first values of all
arrays are the first record, the second values are the second record, and so on. In the array of a column that may be
null, values may be null. Such an array may also be null or missing. The sidecar writes records of other kinds, and
records that may be invalid, on lines of version {VERSION}. So a journal has lines of both versions.

An array line stands for the same records as `count` lines of version {VERSION}. `seq` is the number of the first
record, and each following record has the next number. If one record is invalid, the whole line is invalid.

This array line has two records. It is folded here:

```json
{{example}}
```

An array line has `columns` and this envelope:
"""
_EXAMPLE = """\
{"version":2,"kind":"log_end","sidecar":"broker-1","boot":"0123456789abcdef0123456789abcdef","seq":7,"count":2,
"emitted_at":"2025-01-31T09:30:01.000Z","columns":{"observed_at":["2025-01-31T09:30:00.250Z",
"2025-01-31T09:30:00.250Z"],"topic":["orders","orders"],"partition":[0,1],"offset":[50,61]}}"""


def contract_markdown() -> str:
    """Returns the contract as Markdown, the content of docs/records.md."""
    return "\n".join(_paragraphs()) + "\n"


def _paragraphs() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Envelope"
    yield from _table(Envelope)
    for body in BODIES:
        yield ""
        yield f"## {body.KIND}"
        yield ""
        yield (body.__doc__ or "").strip()
        yield from _table(body)
    yield ""
    kinds = " and ".join((", ".join(f"`{body.KIND}`" for body in ARRAY_BODIES[:-1]), f"`{ARRAY_BODIES[-1].KIND}`"))
    yield _ARRAY_LINES.format(kinds=kinds, example=_EXAMPLE).rstrip()
    yield from _table(ArrayEnvelope)


def _table(cls: AnyPart) -> Iterator[str]:
    yield ""
    yield "| column | type | minimum | meaning |"
    yield "|---|---|---|---|"
    for column in columns(cls):
        sql_type = column.sql_type + (" or null" if column.nullable else "")
        minimum = "" if column.note.minimum is None else str(column.note.minimum)
        yield f"| `{column.name}` | {sql_type} | {minimum} | {column.note.text} |"


if __name__ == "__main__":
    sys.stdout.write(contract_markdown())
