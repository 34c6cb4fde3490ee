"""Tests of the codecs room. Must not need a broker; Kafka's jars are read as files."""
