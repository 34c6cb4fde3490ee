"""Writes batch_vectors.txt: record batches by Kafka's own Java classes, and what those read out of them.

Owns: how the file came about (it needs a JDK, tests do not):

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
