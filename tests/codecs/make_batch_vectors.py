"""Writes batch_vectors.txt: record batches that Kafka's own Java classes encoded, and the values that they decode.

The script needs a JDK. The tests that read the file do not:

    python -m tests.codecs.make_batch_vectors
"""

import subprocess
import sys
from pathlib import Path

from tests.codecs.batch_vectors import FILE
from tests.codecs.make_vectors import VERSION
from tests.kafka.maven import kafka_jars


def main() -> int:
    """Writes the file."""
    java = ["java", "-cp", str(kafka_jars(VERSION) / "*"), str(Path(__file__).with_name("BatchVectors.java"))]
    ended = subprocess.run(java, stdout=subprocess.PIPE, check=True)
    FILE.write_bytes(ended.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
