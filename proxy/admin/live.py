"""What a running sidecar gives to its admin port.

Owns: how several brokers' copies are looked at as one, and the start of the port. Must not know: HTTP, what is told.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from uuid import UUID

import trio

from group_sidecar.coordinator.views import GroupView
from group_sidecar.metrics.collector import LastReload, Sources
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.survey import Survey, best, later
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.admin.app import admin_app
from group_sidecar.proxy.admin.serving import serve_admin
from group_sidecar.proxy.admin.sources import AdminSources, Numbers, Readiness, Standings, Unreachable
from group_sidecar.proxy.admin.tls import ServerTls, reason
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.questions import Node
from group_sidecar.proxy.reloading import Outcome
from group_sidecar.proxy.scraping import Scraper
from group_sidecar.proxy.server import ListenError
from group_sidecar.proxy.supervision import Failing, Supervisor


def live_sources(
    config: Config,
    collected: Sources,
    *,
    scraper: Scraper,
    surveyed: Callable[[], Awaitable[Survey]],
    copies: Callable[[], Collection[BrokerCopy]],
    readiness: Callable[[], Readiness],
    standings: Callable[[], Standings],
    failing: Callable[[], Sequence[Failing]],
    unreachable: Callable[[], Sequence[Unreachable]],
    reload: Callable[[], Awaitable[Outcome]],
    epoch: Callable[[], float],
    drift: Callable[[], float] = float,
    recorder: FlightRecorder,
) -> AdminSources:
    """Where the admin port of a sidecar looks: at what its metrics are `collected` from, at the `copies` of all
    brokers, and at what `AdminSources` names.
    """
    started_at = epoch()

    def find(group_id: str) -> GroupView | None:
        view = best([copy.manager for copy in copies()], group_id, epoch() - drift())
        return None if view is None else later(view, drift())

    def numbers() -> Numbers:
        last = (
            collected.last_reload() if collected.last_reload else LastReload(successful=True, succeeded_at=started_at)
        )
        return Numbers(
            sidecar_id=config.sidecar_id,
            mode=config.mode,
            started_at=started_at,
            connections=collected.traffic.client_connections,
            held_bytes=collected.held_bytes(),
            series_suppressed=scraper.suppressed,
            last_reload=last,
            answers=collected.traffic.answers,
            fallbacks=collected.traffic.fallbacks,
            outlets=collected.outlets,
        )

    return AdminSources(
        metrics=scraper.exposed,
        readiness=readiness,
        standings=standings,
        failing=failing,
        unreachable=unreachable,
        reload=reload,
        epoch=epoch,
        surveyed=surveyed,
        find=find,
        coordinator=lambda group_id: _coordinator(copies(), group_id),
        most_members=collected.most_members,
        log_ends=lambda: [copy.manager.log_ends for copy in copies()],
        topic_names=lambda topic_ids: _topic_names(copies(), topic_ids),
        recorder=recorder,
        numbers=numbers,
    )


async def start_admin(
    tasks: trio.Nursery, config: Config, sources: AdminSources, supervisor: Supervisor | None = None
) -> Address | None:
    """Serves the admin port in `tasks`. Gives its address; None where there is to be none.

    No failure reaches `tasks` once the port is open.

    Raises:
        ListenError: the address cannot be had, or the certificate not be used.
    """
    if config.admin is None:
        return None
    access = config.admin_access
    try:
        tls = ServerTls(access) if access.certificate_file else None
    except OSError as error:
        raise ListenError(f"admin_access: the certificate cannot be used: {reason(error)}") from None
    app = admin_app(sources, access, config.admin.host)
    try:
        return Address(*await tasks.start(serve_admin, app, *config.admin, tls, supervisor))
    except OSError as error:
        raise ListenError(f"cannot listen on {error.strerror or error}") from error


def _coordinator(copies: Iterable[BrokerCopy], group_id: str) -> Node | None:
    return next((node for copy in copies if (node := copy.coordinator(group_id)) is not None), None)


def _topic_names(copies: Iterable[BrokerCopy], topic_ids: set[UUID]) -> Mapping[UUID, str]:
    found: dict[UUID, str] = {}
    for copy in copies:
        copy.want_names(topic_ids)
        found |= {topic_id: copy.names[topic_id] for topic_id in topic_ids if topic_id in copy.names}
    return found
