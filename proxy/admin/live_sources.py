"""Starts the admin port of a running sidecar, and provides its data.

The admin port reads the copies of all brokers as one source.
"""

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypedDict, Unpack
from uuid import UUID

import trio

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.metrics.collector import LastReload, ScrapeSources
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.group_snapshot import GroupSnapshot, most_complete_view, with_drift
from group_sidecar.proxy.admin.app import admin_app
from group_sidecar.proxy.admin.http_server import serve_admin
from group_sidecar.proxy.admin.sources import AdminSources, LogStatuses, Readiness, SidecarFigures, Unreachable
from group_sidecar.proxy.admin.tls import admin_context
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.listeners.ports import ListenError
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.scrape import Scraper
from group_sidecar.proxy.runtime.supervision import FailingTask, Supervisor
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError


class PassedOn(TypedDict):
    """The arguments of `live_sources` that become fields of `AdminSources` unchanged."""

    group_snapshot: Callable[[], Awaitable[GroupSnapshot]]
    coordinator: Callable[[str], Node | None]
    topic_names: Callable[[set[UUID]], Mapping[UUID, str]]
    readiness: Callable[[], Readiness]
    probed: Callable[[], Mapping[str, bool]]
    unusable_listeners: Callable[[], Sequence[str]]
    log_statuses: Callable[[], LogStatuses]
    failing_tasks: Callable[[], Sequence[FailingTask]]
    unreachable: Callable[[], Sequence[Unreachable]]
    reload: Callable[[], Awaitable[ReloadOutcome]]
    epoch: Callable[[], float]
    recorder: FlightRecorder


def live_sources(
    config: Config,
    collected: ScrapeSources,
    *,
    scraper: Scraper,
    managers: Callable[[], Collection[GroupMetadataManager]],
    current_config: Callable[[], Config],
    drift: Callable[[], float] = float,
    **passed_on: Unpack[PassedOn],
) -> AdminSources:
    """Returns the data sources of the admin port.

    `config`: the settings at the start. `current_config`: returns the settings in force, also after reloads.
    `collected`: the sources of the metrics. `managers`: returns the group metadata manager of each broker's copy.
    `drift`: returns how many seconds the system's clock is ahead of the copies' clock. `AdminSources` explains the
    other arguments.
    """
    epoch = passed_on["epoch"]
    started_at = epoch()

    def find_group(group_id: str) -> GroupView | None:
        view = most_complete_view(managers(), group_id, epoch() - drift())
        return None if view is None else with_drift(view, drift())

    return AdminSources(
        metrics=scraper.exposition,
        config=current_config,
        find_group=find_group,
        max_members=collected.max_members,
        log_ends=lambda: [manager.log_ends for manager in managers()],
        figures=lambda: _figures(config, collected, scraper, started_at),
        counters=collected.admin_counters,
        **passed_on,
    )


def _figures(config: Config, collected: ScrapeSources, scraper: Scraper, started_at: float) -> SidecarFigures:
    never_reloaded = LastReload(successful=True, succeeded_at=started_at)
    return SidecarFigures(
        sidecar_id=config.sidecar_id,
        mode=config.mode,
        started_at=started_at,
        connections=collected.traffic.client_connections,
        held_bytes=collected.held_bytes(),
        series_suppressed=scraper.suppressed,
        last_reload=collected.last_reload() if collected.last_reload else never_reloaded,
        answers=collected.traffic.answers,
        fallbacks=collected.traffic.fallbacks,
        outlets=collected.outlets,
    )


async def start_admin(
    tasks: trio.Nursery,
    config: Config,
    sources: AdminSources,
    listener: socket.socket,
    supervisor: Supervisor | None = None,
) -> Address:
    """Serves the admin port in `tasks` on a listening socket. Returns the port's address.

    A later failure of the admin port does not cancel `tasks`.

    Raises:
        ListenError: the certificate is unusable.
    """
    access = config.admin_access
    try:
        tls = admin_context(access) if access.certificate_file else None
    except UnusableFileError as error:
        raise ListenError(f"admin_access.{error}") from None
    app = admin_app(sources, access, config.admin.host if config.admin else "")
    return Address(*await tasks.start(serve_admin, app, listener, tls, supervisor))
