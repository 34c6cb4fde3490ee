"""Fixtures of the codec tests, and the Hypothesis profile HYPOTHESIS_PROFILE=deep, which tries more examples."""

import os

import pytest
from hypothesis import settings

from tests.codecs.kafka_schemas import KafkaSchemas
from tests.kafka.maven import kafka_jars

KAFKA = "4.4.0"

settings.register_profile("deep", settings(), max_examples=2000)
if "HYPOTHESIS_PROFILE" in os.environ:
    settings.load_profile(os.environ["HYPOTHESIS_PROFILE"])


@pytest.fixture(scope="session")
def kafka_schemas() -> KafkaSchemas:
    """The JSON schemas in the kafka-clients jar of Kafka 4.4.0."""
    return KafkaSchemas(kafka_jars(KAFKA) / f"kafka-clients-{KAFKA}.jar")
