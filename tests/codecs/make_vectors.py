"""Writes vectors.txt: samples of every message in every version, encoded by Kafka's own Java classes.

Run the script when a message or a version is added. The script needs a JDK. The tests that read the file do not:

    python -m tests.codecs.make_vectors

kafka-python's older classes encode the versions that Kafka 4.4.0 no longer supports.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from group_sidecar.codecs.schema import Struct
from tests.codecs import kafka_python
from tests.codecs.declarations import CASES, full_sample, limited_to, null_sample, present
from tests.codecs.kafka_schemas import KafkaSchemas
from tests.codecs.vectors import FILE
from tests.kafka.maven import kafka_jars

VERSION = "4.4.0"


def as_json(value: Any, version: int) -> Any:
    """A value in the form that Kafka's JSON converters read, with only the fields of a version."""
    if isinstance(value, Struct):
        fields = present(type(value), version)
        return {camel_case(name): as_json(getattr(value, name), version) for name in fields}
    if isinstance(value, tuple):
        return [as_json(item, version) for item in value]
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def camel_case(name: str) -> str:
    """A field's name in Kafka's JSON: `throttleTimeMs` for `throttle_time_ms`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def samples() -> Iterator[tuple[str, Struct, int]]:
    """Yields the kind, the message and the version of each sample, limited to what the version can encode."""
    for cls, version in CASES:
        for kind, make in (("full", full_sample), ("null", null_sample)):
            yield kind, limited_to(make(cls), version), version


def encoded_by_kafka(messages: list[tuple[Struct, int]], jars: Path) -> list[bytes]:
    """The messages' bodies, encoded by Kafka's own classes."""
    lines = "".join(f"{type(m).__name__} {v} {json.dumps(as_json(m, v))}\n" for m, v in messages)
    java = ["java", "-cp", str(jars / "*"), str(Path(__file__).with_name("KafkaVectors.java"))]
    ended = subprocess.run(java, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [bytes.fromhex(line) for line in ended.stdout.splitlines()]


def main() -> int:
    """Writes the file."""
    jars = kafka_jars(VERSION)
    schemas = KafkaSchemas(jars / f"kafka-clients-{VERSION}.jar")
    cases = list(samples())
    spoken = [version in schemas.versions(type(message).__name__) for _, message, version in cases]
    by_kafka = iter(encoded_by_kafka([case[1:] for case, known in zip(cases, spoken, strict=True) if known], jars))
    with FILE.open("w") as file:
        for (kind, message, version), known in zip(cases, spoken, strict=True):
            body = next(by_kafka) if known else kafka_python.encode(message, version)
            file.write(f"{type(message).__name__} {version} {kind} {body.hex()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
