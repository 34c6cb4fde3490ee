"""Kafka's own classes as the judge of bytes: accepted or refused, and the value.

Owns: how `KafkaJudge.java` and `OldKafkaJudge.java` are asked, and what our codecs say in the same words. Must not
know: where the bytes come from.
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
from tests.kafka.broker import JVM_FLAGS


class Value(NamedTuple):
    """What bytes mean.

    Attributes:
        client_id: of a request's header; empty where it is null, and for bodies.
        message: the message encoded again without unknown tagged fields; None where its strings do not fit any more,
            because each malformed byte became three.
        tags: the unknown tagged fields of all structs, as texts in alphabetical order.
    """

    client_id: str
    message: bytes | None
    tags: tuple[str, ...]


class Refused(NamedTuple):
    """Bytes that mean nothing, and why."""

    reason: str


Verdict = Value | Refused


class Body(NamedTuple):
    """A body to be judged."""

    cls: type[Struct]
    version: int
    data: bytes

    def asked(self) -> str:
        """The question to Kafka."""
        return f"{self.cls.NAME} {self.version} {self.data.hex()}"

    def asked_of_schemas(self) -> str:
        """The question to a Kafka before 2.4."""
        kind = "request" if self.cls.NAME.endswith("Request") else "response"
        return f"{self.cls.KEY} {self.version} {kind} {self.data.hex()}"

    def ours(self) -> Verdict:
        """What our codec says."""
        return _ours(self, lambda: ("", self.data))


class Frame(NamedTuple):
    """A request frame (without its length) to be judged."""

    cls: type[Struct]
    version: int
    data: bytes

    def asked(self) -> str:
        """The question to Kafka."""
        return f"request {self.data.hex()}"

    def ours(self) -> Verdict:
        """What our codec says."""

        def opened() -> tuple[str, bytes]:
            header, body = decode_request_header(self.data, APIS[self.cls.KEY].flexible(self.version))
            return header.client_id or "", body

        return _ours(self, opened)


Case = Body | Frame


def _ours(case: Case, opened: Callable[[], tuple[str, bytes]]) -> Verdict:
    """What our codec says. `opened`: gives the client id and the body."""
    try:
        client_id, body = opened()
        return _value(client_id, decode_start(case.cls, case.version, body)[0], case.version)
    except DecodeError as error:
        return Refused(str(error))


def by_kafka(cases: Iterable[Case], jars: Path) -> list[Verdict]:
    """What Kafka's classes say of each case, since Kafka 2.4."""
    return [_verdict(line) for line in _judged("KafkaJudge.java", jars, (case.asked() for case in cases))]


def by_old_kafka(bodies: Iterable[Body], jars: Path) -> list[Verdict | None]:
    """What the schemas of Kafka before 2.4 say of each body; None where that Kafka has no such version."""
    lines = _judged("OldKafkaJudge.java", jars, (body.asked_of_schemas() for body in bodies))
    return [None if line == "unknown" else _verdict(line if " " in line else f"' {line} '") for line in lines]


def _judged(judge: str, jars: Path, questions: Iterable[str]) -> list[str]:
    java = ["java", *JVM_FLAGS, "-cp", str(jars / "*"), str(Path(__file__).with_name(judge))]
    lines = "".join(f"{question}\n" for question in questions)
    return subprocess.run(java, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


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
    """The same without unknown tagged fields, which are added to `tags`."""
    if isinstance(value, tuple):
        return tuple(_without_tags(item, tags) for item in value)
    if not isinstance(value, Struct):
        return value
    tags += [f"{tag}={raw.hex()}" for tag, raw in value.unknown_tags]
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)} | {"unknown_tags": ()}
    return type(value)(**{name: _without_tags(inner, tags) for name, inner in fields.items()})
