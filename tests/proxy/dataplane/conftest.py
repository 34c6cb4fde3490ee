"""The ways of forwarding that tests of whole connections run with."""

from collections.abc import Iterator

import pytest

from group_sidecar.proxy.dataplane import connections

WAYS = [False, True] if connections.FAST_PATH else [False]


@pytest.fixture(scope="module", params=WAYS, ids=["compiled" if way else "plain" for way in WAYS])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs each test with and without the compiled fast path of small frames."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            patch.setattr(connections, "FAST_PATH", None)
        yield
