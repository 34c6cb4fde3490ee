"""Lets Kafka's own classes and our codecs decode the same bytes, and returns both results in one form.

`by_kafka` runs `KafkaJudge.java`, `by_old_kafka` runs `OldKafkaJudge.java`. Each result is the decoded value or a
refusal.
"""

import dataclasses
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.schema import Struct, decode_start, encode
from tests.kafka.java import java


class Value(NamedTuple):
    """The decoded value of accepted bytes.

    Attributes:
        client_id: the client id in the request's header; empty if it is null, and for bodies.
        message: the message encoded again without unknown tagged fields; None if a string became too long
            to encode: decoding replaces each malformed byte with a character of three bytes.
        tags: the unknown tagged fields of all structs, formatted as ``tag=hex`` and sorted as text.
    """

    client_id: str
    message: bytes | None
    tags: tuple[str, ...]


class Refused(NamedTuple):
    """Bytes that were refused, and the reason."""

    reason: str


Verdict = Value | Refused


class Body(NamedTuple):
    """A message body to decode."""

    cls: type[Struct]
    version: int
    data: bytes

    def asked(self) -> str:
        """The input line for `KafkaJudge.java`."""
        return f"{self.cls.NAME} {self.version} {self.data.hex()}"

    def asked_of_schemas(self) -> str:
        """The input line for `OldKafkaJudge.java` (Kafka before 2.4)."""
        kind = "request" if self.cls.NAME.endswith("Request") else "response"
        return f"{self.cls.KEY} {self.version} {kind} {self.data.hex()}"

    def ours(self) -> Verdict:
        """The result of our codec."""
        return _ours(self, lambda: ("", self.data))


class Frame(NamedTuple):
    """A request frame (without its length) to decode."""

    cls: type[Struct]
    version: int
    data: bytes

    def asked(self) -> str:
        """The input line for `KafkaJudge.java`."""
        return f"request {self.data.hex()}"

    def ours(self) -> Verdict:
        """The result of our codec."""

        def opened() -> tuple[str, bytes]:
            header, body = decode_request_header(self.data, APIS[self.cls.KEY].flexible(self.version))
            return header.client_id or "", body

        return _ours(self, opened)


Case = Body | Frame


def _ours(case: Case, opened: Callable[[], tuple[str, bytes]]) -> Verdict:
    """The result of our codec. `opened` returns the client id and the body."""
    try:
        client_id, body = opened()
        return _value(client_id, decode_start(case.cls, case.version, body)[0], case.version)
    except DecodeError as error:
        return Refused(str(error))


def by_kafka(cases: Iterable[Case], version: str) -> list[Verdict]:
    """The result of Kafka's generated message classes (Kafka 2.4 and later) for each case."""
    return [_verdict(line) for line in _judged("KafkaJudge.java", version, (case.asked() for case in cases))]


def by_old_kafka(bodies: Iterable[Body], version: str) -> list[Verdict | None]:
    """The result of the schemas of Kafka before 2.4 for each body; None if that Kafka lacks the API version."""
    lines = _judged("OldKafkaJudge.java", version, (body.asked_of_schemas() for body in bodies))
    return [None if line == "unknown" else _verdict(line if " " in line else f"' {line} '") for line in lines]


def _judged(judge: str, version: str, questions: Iterable[str]) -> list[str]:
    command = [*java(version), str(Path(__file__).with_name(judge))]
    lines = "".join(f"{question}\n" for question in questions)
    return subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def _verdict(line: str) -> Verdict:
    if line.startswith("refused "):
        return Refused(line.removeprefix("refused "))
    client, message, tags = line.split(" ")
    written = None if message == "-" else bytes.fromhex(message[1:])
    return Value(bytes.fromhex(client[1:]).decode(), written, tuple(filter(None, tags[1:].split(","))))


def _value(client_id: str, message: Struct, version: int) -> Value:
    tags: list[str] = []
    bare = _without_tags(message, tags)
    try:
        return Value(client_id, encode(bare, version), tuple(sorted(tags)))
    except ValueError:
        return Value(client_id, None, tuple(sorted(tags)))


def _without_tags(value: Any, tags: list[str]) -> Any:
    """A copy of the value without unknown tagged fields. Appends those fields to `tags`."""
    if isinstance(value, tuple):
        return tuple(_without_tags(item, tags) for item in value)
    if not isinstance(value, Struct):
        return value
    tags += [f"{tag}={raw.hex()}" for tag, raw in value.unknown_tags]
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)} | {"unknown_tags": ()}
    return type(value)(**{name: _without_tags(inner, tags) for name, inner in fields.items()})
