"""The versions that Kafka 4 has removed, compared with kafka-python's older classes."""

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.schema import Struct, decode, encode
from tests.codecs import kafka_python
from tests.codecs.declarations import CASES, case_id, limited_to
from tests.codecs.kafka_schemas import KafkaSchemas
from tests.codecs.strategies import per_message, structs
from tests.codecs.test_kafka_schemas import OLDER

DROPPED = [
    (cls, version)
    for cls, version in CASES
    if version in OLDER.get(cls.NAME.removesuffix("Request").removesuffix("Response"), ())
]


def test_dropped_versions_are_complete(kafka_schemas: KafkaSchemas) -> None:
    """The dropped versions are exactly those that Kafka's schemas no longer describe."""
    assert [(cls, version) for cls, version in CASES if version not in kafka_schemas.versions(cls.NAME)] == DROPPED


def as_lists(value: Any) -> Any:
    """Returns kafka-python's value with lists instead of tuples. kafka-python decodes a struct as a tuple."""
    return [as_lists(item) for item in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize(("cls", "version"), DROPPED, ids=case_id)
@per_message
@given(st.data())
def test_dropped_versions_match_kafka_python(cls: type[Struct], version: int, data: st.DataObject) -> None:
    """kafka-python writes and reads the same bytes in versions that Kafka 4 has dropped."""
    message = limited_to(data.draw(structs(cls)), version)
    body = encode(message, version)
    assert kafka_python.encode(message, version) == body
    theirs = kafka_python.schema(cls.NAME, version).decode(BytesIO(body))
    assert as_lists(theirs) == kafka_python.as_lists(message, version)
    assert decode(cls, version, body) == message
