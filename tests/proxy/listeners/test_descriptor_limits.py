"""The number of connections that the descriptor limit allows."""

import resource

import pytest
from structlog.testing import capture_logs

from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.listeners.descriptor_limits import OTHER_DESCRIPTORS, allowed_connections

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "soft", "hard", "raised", "allowed", "warned"),
    [
        (Limits(), 1024, 20_000, 20_000, (20_000 - OTHER_DESCRIPTORS) // 2, False),
        (Limits(connections=10_000), 1024, 20_000, 20_000, (20_000 - OTHER_DESCRIPTORS) // 2, True),
        (Limits(connections=9_000), 1024, 20_000, 18_000 + OTHER_DESCRIPTORS, 9_000, False),
        (Limits(), 1024, 1_048_576, 20_000 + OTHER_DESCRIPTORS, 10_000, False),
        (Limits(), 1024, INFINITY, 20_000 + OTHER_DESCRIPTORS, 10_000, False),
        (Limits(), 1_048_576, 1_048_576, None, 10_000, False),
        (Limits(), INFINITY, INFINITY, None, 10_000, False),
        (Limits(), 64, 128, 128, 1, False),
    ],
)
def test_connections_fit_descriptor_limit(
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    soft: int,
    hard: int,
    raised: int | None,
    allowed: int,
    warned: bool,
) -> None:
    """The soft descriptor limit is raised as needed. A warning appears only if an explicit limit does not fit."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    with capture_logs() as lines:
        assert allowed_connections(limits) == allowed
    assert given == ([] if raised is None else [(raised, hard)])
    assert [line["log_level"] for line in lines] == ["warning"] * warned
