"""The reasons of errors of the operating system."""

import errno
import os

import pytest

from group_sidecar.proxy.runtime.os_errors import reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), "connection refused"),
        (OSError("Bad descriptor"), "bad descriptor"),
    ],
)
def test_reason_is_in_lower_case(error: OSError, reason: str) -> None:
    """The reason is the system's text, or the error's own text if the system supplies none."""
    assert reason_of(error) == reason
