"""How proxies of somebody else are named, and how their process is found."""

import os
import socket

import pytest

from benchmarks import targets
from benchmarks.targets import Further, Target, further


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nginx=127.0.0.1:19101", Further("nginx", ("127.0.0.1", 19101))),
        ("kafka-proxy 0.4.3 (Go)=localhost:1", Further("kafka-proxy 0.4.3 (Go)", ("localhost", 1))),
        ("buffers=64k =host:65535", Further("buffers=64k", ("host", 65535))),
    ],
)
def test_a_further_proxy_is_a_name_and_an_address(text: str, expected: Further) -> None:
    assert further(text) == expected


@pytest.mark.parametrize("text", ["", "nginx", "nginx=", "=h:1", "n=h", "n=:1", "n=h:", "n=h:0", "n=h:65536", "n=h:x"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not NAME=HOST:PORT"):
        further(text)


def test_a_process_is_found_by_the_port_on_which_it_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = targets.listening(port)
        assert found is not None
        assert found.pid == os.getpid()
    assert targets.listening(port) is None


def test_a_process_that_is_not_seen_costs_nothing() -> None:
    unseen = Target("unseen", ("127.0.0.1", 1), None, "", "")
    assert (unseen.cpu_seconds(), unseen.resident()) == (0, 0)
