"""Tests of the codecs room. The tests must not need a broker. They read Kafka's jars as files."""
