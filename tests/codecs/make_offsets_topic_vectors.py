"""Writes offsets_topic_vectors.txt: a key of every type and samples of every value, encoded by Kafka's own classes.

Run the script when a type or a version is added. The script needs a JDK. The tests that read the file do not:

    python -m tests.codecs.make_offsets_topic_vectors

Each line contains the key type, ``key`` or the value's version, the kind of sample, and the bytes in hex, as a record
contains them. The kinds ``full`` and ``null`` are the samples of `declarations`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from group_sidecar.codecs.offsets_topic import KEYS, VALUES, GroupKey, KeyType
from group_sidecar.codecs.offsets_topic_values import (
    CLASSIC_MEMBER_METADATA_TAG,
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    classic_metadata,
)
from group_sidecar.codecs.schema import Struct, encode
from tests.codecs.declarations import full_sample, limited_to, null_sample
from tests.codecs.make_vectors import VERSION, as_json
from tests.kafka.maven import kafka_jars

FILE = Path(__file__).with_name("offsets_topic_vectors.txt")
OLDEST = (KeyType.LEGACY_OFFSET_COMMIT, KeyType.OFFSET_COMMIT, KeyType.GROUP_METADATA)
"""The key types in which Kafka names the group id `group` instead of `groupId`."""


class Case(NamedTuple):
    """A key or a value with its key type and its kind of sample. `version` is None for keys."""

    type: KeyType
    version: int | None
    kind: str
    message: Struct


def cases() -> Iterator[Case]:
    """Yields every key, and the samples of each value, limited to what each version can encode."""
    for key_type in KeyType:
        yield Case(key_type, None, "full", full_sample(KEYS.get(key_type, GroupKey)))
        if cls := VALUES.get(key_type):
            # Kafka has only version 0 of the value that belongs to the legacy key type.
            for version in [0] if key_type is KeyType.LEGACY_OFFSET_COMMIT else cls.VERSIONS:
                for kind, make in (("full", full_sample), ("null", null_sample)):
                    yield Case(key_type, version, kind, limited_to(make(cls), version))
    member = null_sample(ConsumerGroupMemberMetadataValue)
    for kind, raw in (("new", b"\0"), ("classic", b"\1" + encode(full_sample(ClassicMemberMetadata), 0))):
        tagged = replace(member, unknown_tags=((CLASSIC_MEMBER_METADATA_TAG, raw),))
        yield Case(KeyType.CONSUMER_GROUP_MEMBER_METADATA, 0, kind, tagged)


def read() -> list[tuple[KeyType, int | None, str, bytes]]:
    """All lines of the file, in the order of `cases`."""
    words = (line.split(" ") for line in FILE.read_text().splitlines())
    return [
        (KeyType(int(key_type)), None if version == "key" else int(version), kind, bytes.fromhex(data))
        for key_type, version, kind, data in words
    ]


def as_line(case: Case) -> str:
    """The input line of OffsetsTopicVectors.java for a case."""
    document = as_json(case.message, case.version or 0)
    if case.version is None and case.type in OLDEST:
        document["group"] = document.pop("groupId")
    if isinstance(case.message, ConsumerGroupMemberMetadataValue):
        document["classicMemberMetadata"] = as_json(classic_metadata(case.message), 0)
    return f"{case.type} {'key' if case.version is None else case.version} {json.dumps(document)}\n"


def main() -> int:
    """Writes the file."""
    all_cases = list(cases())
    java = ["java", "-cp", str(kafka_jars(VERSION) / "*"), str(Path(__file__).with_name("OffsetsTopicVectors.java"))]
    lines = "".join(map(as_line, all_cases))
    ended = subprocess.run(java, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    with FILE.open("w") as file:
        for case, data in zip(all_cases, ended.stdout.splitlines(), strict=True):
            version = "key" if case.version is None else case.version
            file.write(f"{case.type} {version} {case.kind} {data}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
