"""Tests that two runs on one machine do not get the same ports."""

import subprocess
import sys

from tests.as_python import ROOT
from tests.kafka.processes import GIVE_UP_SECONDS, reserve

OTHER_RUN = "from tests.kafka.processes import free_addresses; print(free_addresses(1)[0][1], flush=True); input()"


def test_port_is_reserved_until_run_ends() -> None:
    """A port that another run has reserved cannot be reserved before that run ends."""
    command = [sys.executable, "-c", OTHER_RUN]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert not reserve(port)
        other.communicate("\n", timeout=GIVE_UP_SECONDS)
    assert other.returncode == 0
    assert reserve(port)
