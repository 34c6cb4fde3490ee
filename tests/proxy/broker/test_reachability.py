"""Tests whether the broker counts as reachable."""

from group_sidecar.proxy.broker.reachability import Reachability


def test_ready_while_broker_answers() -> None:
    """A broker is ready while probes succeed, and reports the reason otherwise."""
    broker = Reachability()
    ready = [broker.ready()]
    broker.probe_succeeded()
    ready.append(broker.ready())
    broker.probe_failed("closed the connection", 0.0)
    ready.append(broker.ready())
    assert ready == [(False, "not asked yet"), (True, "reachable"), (False, "closed the connection")]


def test_refusing_broker_stays_ready() -> None:
    """A broker that refuses the sidecar stays ready for its clients until a probe succeeds or fails."""
    broker = Reachability()
    for ends in (broker.probe_succeeded, lambda: broker.probe_failed("closed the connection", 0.0)):
        broker.probe_refused()
        assert (broker.refuses_sidecar, broker.ready(), broker.unreachable) == (
            True,
            (True, "reachable"),
            None,
        )
        ends()
        assert not broker.refuses_sidecar
