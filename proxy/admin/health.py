"""The endpoints that orchestrators ask: is the process alive, has it started, is it ready?

`/healthz` replies 200. The other endpoints reply 200 or 503. All bodies are JSON. A 503 has `reasons`, one sentence for
each condition that does not hold.
"""

from collections.abc import Mapping
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.admin.group_data import is_ready
from group_sidecar.proxy.admin.sources import AdminSources, Unreachable

_CONDITIONS = {
    "reachable": "does not answer the sidecar",
    "accepting": "gets no clients, because the sidecar is stopping",
    "listening": "has no port at the gateway (gateway.first_port)",
}
"""The text for each readiness condition that does not hold. The text ends a sentence about the broker."""


class Health:
    """The endpoints."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    def routes(self) -> list[BaseRoute]:
        """Returns a route for each endpoint."""
        return [
            Route("/healthz", self.healthz),
            Route("/livez", self.livez),
            Route("/readyz", self.readyz),
            Route("/startupz", self.startupz),
        ]

    async def healthz(self, _: Request) -> Response:
        """Replies 200: the event loop serves this request."""
        return JSONResponse({"status": "ok"})

    async def livez(self, _: Request) -> Response:
        """Replies 503 only if a restart of the process would help: a port is closed for good.

        The reply itself shows that the event loop runs, because one loop serves this port and all clients.
        """
        reasons = [f"the listener {name} accepts no clients any more" for name in self._sources.unusable_listeners()]
        return _reply("live", reasons)

    async def startupz(self, _: Request) -> Response:
        """Replies 503 until the first probe of the broker has ended, with or without success.

        The ports are open before this endpoint replies. The endpoint does not wait until the broker's log is loaded.
        """
        waiting = [broker for broker, probed in self._sources.probed().items() if not probed]
        return _reply("started", [f"the broker {broker} was not probed yet" for broker in waiting])

    async def readyz(self, _: Request) -> Response:
        """Replies 200 if every readiness condition of every broker holds, otherwise 503."""
        brokers, unreachable = self._sources.readiness(), self._sources.unreachable()
        ready = is_ready(brokers)
        body: dict[str, object] = {"ready": ready, "brokers": brokers}
        if not ready:
            by_broker = {each.broker: each for each in unreachable}
            body["reasons"] = [
                _sentence(broker, condition, by_broker)
                for broker, conditions in brokers.items()
                for condition, holds in conditions.items()
                if not holds
            ] or ["no broker is known"]
        if log_statuses := self._sources.log_statuses():
            body["offsets_log"] = log_statuses
        if unreachable:
            body["unreachable_since"] = {each.broker: timestamp(each.since) for each in unreachable}
        if failing_tasks := self._sources.failing_tasks():
            # Clients are still served, so a load balancer must not remove the sidecar for this reason.
            body["failing_tasks"] = [asdict(each) for each in failing_tasks]
        return JSONResponse(body, 200 if ready else 503)


def _reply(condition: str, reasons: list[str]) -> Response:
    """Returns 200 if there are no reasons against the condition."""
    body: dict[str, object] = {condition: not reasons}
    return JSONResponse({**body, "reasons": reasons} if reasons else body, 503 if reasons else 200)


def _sentence(broker: str, condition: str, unreachable: Mapping[str, Unreachable]) -> str:
    lacks = _CONDITIONS.get(condition, f"is not {condition}")
    why = f": {unreachable[broker].reason}" if condition == "reachable" and broker in unreachable else ""
    return f"the broker {broker} {lacks}{why}"
