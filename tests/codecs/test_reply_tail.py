"""Finds the ends of replies that are encoded from Kafka's own message definitions."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.reply_tail import TAIL_LAYOUTS, TAIL_PROGRAMS, TailSearch, find_tail
from tests.codecs.kafka_schemas import Field, KafkaSchemas
from tests.codecs.strategies import per_message
from tests.kafka.maven import kafka_jars

NEWEST_KAFKA = "4.4.0"
FIXED = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "uuid": 16}
SEEDS = 100
"""The number of random replies of each layout."""
TAIL_FIELDS = {"NodeEndpoints", "Nodes"}
schemas = KafkaSchemas(kafka_jars(NEWEST_KAFKA) / f"kafka-clients-{NEWEST_KAFKA}.jar")


def varint(value: int) -> bytes:
    """Encodes an unsigned varint."""
    if value < 128:
        return bytes((value,))
    return bytes((value & 127 | 128,)) + varint(value >> 7)


class RandomReply:
    """Encodes a reply with random content, in a flexible version."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def struct(self, fields: tuple[Field, ...]) -> bytes:
        """Encodes a struct with its tagged fields."""
        return b"".join(self.field(field) for field in fields if field.tag is None) + self.tags(fields)

    def tags(self, fields: tuple[Field, ...]) -> bytes:
        """Encodes tagged fields: some of those of the struct, and perhaps unknown ones."""
        tagged = [(f.tag, self.field(f)) for f in fields if f.tag is not None and self._random.random() < 0.5]
        tagged += [(200 + n, bytes(n)) for n in self._random.choices(range(200), k=self._random.randrange(3))]
        encoded = (varint(number) + varint(len(content)) + content for number, content in tagged)
        return varint(len(tagged)) + b"".join(encoded)

    def field(self, field: Field) -> bytes:
        """Encodes a field."""
        if field.type.startswith("[]"):
            if field.nullable and self._random.random() < 0.5:
                return b"\0"
            count = self._random.randrange(4)
            return varint(count + 1) + b"".join(self.value(field.type[2:], field.fields) for _ in range(count))
        if field.nullable and field.type in {"string", "bytes", "records"} and self._random.random() < 0.5:
            return b"\0"
        return self.value(field.type, field.fields)

    def value(self, kind: str, fields: tuple[Field, ...]) -> bytes:
        """Encodes a value."""
        if kind in FIXED:
            return self._random.choice([bytes(FIXED[kind]), b"\xff" * FIXED[kind]])
        if kind in {"string", "bytes", "records"}:
            size = self._random.choice([0, 1, 127, 300])
            return varint(size + 1) + b"\xff" * size
        return self.struct(fields)


def random_reply(random: Random, key: int, version: int) -> tuple[bytes, int]:
    """Returns a random reply without its length, and the position of its end."""
    fields = schemas.fields(f"{ApiKey(key).name.title().replace('_', '')}Response", version)
    before = tuple(field for field in fields if field.name not in TAIL_FIELDS)
    last = tuple(field for field in fields if field.name in TAIL_FIELDS)
    reply = RandomReply(random)
    head = b"\0\0\0\7" + reply.tags(()) + b"".join(reply.field(field) for field in before if field.tag is None)
    return head + reply.struct(last), len(head)


any_layout = pytest.mark.parametrize(("key", "version"), sorted(TAIL_LAYOUTS))


@any_layout
def test_end_is_found_in_pieces(key: int, version: int) -> None:
    """The search finds the end of a reply, whichever pieces the reply arrives in."""
    for seed in range(SEEDS):
        random = Random(seed)
        whole, tail = random_reply(random, key, version)
        search, at, arrived = TailSearch(TAIL_PROGRAMS[key, version], len(whole)), 0, 0
        piece = random.choice([1, 7, 200, 5_000])
        buffer = whole + b"\xff" * 9
        while not search.found:
            arrived = max(arrived, at) + piece
            at += search.skip(buffer, at, min(arrived, len(buffer)))
        assert (at, search.left) == (tail, len(whole) - tail), seed


@any_layout
def test_truncated_reply_is_refused(key: int, version: int) -> None:
    """A reply that is cut off before its end is refused, even if other bytes follow."""
    for seed in range(SEEDS):
        random = Random(seed)
        whole, tail = random_reply(random, key, version)
        cut = random.randint(0, tail)
        with pytest.raises(DecodeError):
            find_tail(TAIL_PROGRAMS[key, version], whole[:cut])
        search = TailSearch(TAIL_PROGRAMS[key, version], cut)
        with pytest.raises(DecodeError):
            search.skip(whole + bytes(9), 0, len(whole) + 9)


@any_layout
@per_message
@given(body=st.binary(max_size=300))
def test_any_bytes_end_the_search(key: int, version: int, body: bytes) -> None:
    """For any bytes, the search finds an end or raises DecodeError."""
    try:
        at = find_tail(TAIL_PROGRAMS[key, version], body)
    except DecodeError:
        return
    assert at < len(body)


def test_too_large_numbers_are_refused() -> None:
    """A varint of six bytes is refused. A count of four billion entries is refused where the reply ends."""
    program = TAIL_PROGRAMS[ApiKey.FETCH, 16]
    start = b"\0\0\0\7" + b"\0" + bytes(10)
    with pytest.raises(DecodeError, match="five bytes"):
        find_tail(program, start + b"\xff" * 6 + bytes(50))
    with pytest.raises(DecodeError, match="ends before"):
        find_tail(program, start + b"\xff\xff\xff\xff\x0f" + bytes(5000))


def test_layouts_match_kafka() -> None:
    """The table has each version of each reply in which Kafka 4.4 has addresses after all other fields."""
    expected = {
        (schemas.key(f"{name}Request"), version): True
        for name in ("Fetch", "ShareFetch", "ShareAcknowledge", "DescribeQuorum")
        for version in range(schemas.versions(f"{name}Response").stop)
        if any(field.name in TAIL_FIELDS for field in schemas.fields(f"{name}Response", version))
    }
    assert dict.fromkeys(TAIL_LAYOUTS, True) == expected
