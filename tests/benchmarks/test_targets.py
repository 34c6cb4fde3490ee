"""The names of the user's proxies, and the search for their processes."""

import os
import socket

import pytest

from benchmarks import targets
from benchmarks.targets import ExternalProxy, Target, parse_external_proxy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nginx=127.0.0.1:19101", ExternalProxy("nginx", ("127.0.0.1", 19101))),
        ("kafka-proxy 0.4.3 (Go)=localhost:1", ExternalProxy("kafka-proxy 0.4.3 (Go)", ("localhost", 1))),
        ("buffers=64k =host:65535", ExternalProxy("buffers=64k", ("host", 65535))),
    ],
)
def test_external_proxy_has_name_and_address(text: str, expected: ExternalProxy) -> None:
    """An external proxy is parsed as a name and an address."""
    assert parse_external_proxy(text) == expected


@pytest.mark.parametrize("text", ["", "nginx", "nginx=", "=h:1", "n=h", "n=:1", "n=h:", "n=h:0", "n=h:65536", "n=h:x"])
def test_invalid_external_proxy_is_refused(text: str) -> None:
    """A text that is not NAME=HOST:PORT raises ValueError."""
    with pytest.raises(ValueError, match="is not NAME=HOST:PORT"):
        parse_external_proxy(text)


def test_process_is_found_by_port() -> None:
    """listening returns the process that listens on a port, or None."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = targets.listening(port)
        assert found is not None
        assert found.pid == os.getpid()
    assert targets.listening(port) is None


def test_unseen_process_costs_nothing() -> None:
    """A target without a visible process has no CPU time and no memory."""
    unseen = Target("unseen", ("127.0.0.1", 1), None, "", "")
    assert (unseen.cpu_seconds(), unseen.resident()) == (0, 0)
