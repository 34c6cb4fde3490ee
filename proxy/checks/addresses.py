"""Checks the addresses of the settings: whether host names can be resolved, and whether the sidecar can listen.

The checks ask name servers, and send nothing to any other host.
"""

import errno
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from group_sidecar.proxy.checks.findings import Finding, fault, listener_key, warning
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address

RESOLVE_SECONDS = 5.0
"""The maximum number of seconds for all look-ups together."""
_CAP_NET_BIND_SERVICE = 10
"""The number of the capability to bind privileged ports (``linux/capability.h``)."""
_FIRST_OPEN_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_STATUS = Path("/proc/self/status")


class Resolution(NamedTuple):
    """The IP addresses of a host, or why the host has none."""

    addresses: tuple[str, ...] = ()
    reason: str = ""


Resolutions = Mapping[str, Resolution]
"""The result of each look-up, by host."""


def listening_addresses(config: Config) -> dict[str, Address]:
    """Returns the configured addresses on which the sidecar listens, by the path of the key."""
    found = {f"{listener_key(index, each)}.listen": each.listen for index, each in enumerate(config.listeners)}
    if config.listen is not None:
        found["listen"] = config.listen
    if config.admin is not None:
        found["admin"] = config.admin
    return found


def broker_addresses(config: Config) -> dict[str, Address]:
    """Returns the configured addresses of the broker, by the path of the key, without `gateway.bootstrap_servers`."""
    found = {f"{listener_key(index, each)}.upstream": each.upstream for index, each in enumerate(config.listeners)}
    if config.upstream is not None:
        found["upstream"] = config.upstream
    if config.own_connection.address is not None:
        found["own_connection.address"] = config.own_connection.address
    return found


def remote_hosts(config: Config) -> dict[str, str]:
    """Returns the hosts of `broker_addresses` and of the token endpoint, by the path of the key."""
    found = {key: address.host for key, address in broker_addresses(config).items()}
    sasl = config.own_connection.sasl
    if sasl is not None and sasl.token_endpoint_url is not None:
        found["own_connection.sasl.token_endpoint_url"] = urlsplit(sasl.token_endpoint_url).hostname or ""
    return found


def resolve(hosts: Iterable[str]) -> Resolutions:
    """Resolves host names, all at the same time. A name without an answer in time has a reason instead."""
    found: dict[str, Resolution] = {}

    def look_up(host: str) -> None:
        try:
            answer = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found[host] = Resolution(tuple(dict.fromkeys(str(address[0]) for *_, address in answer)))
        except (OSError, UnicodeError) as error:
            found[host] = Resolution(reason=(getattr(error, "strerror", None) or str(error)).lower())

    wanted = dict.fromkeys(hosts)
    # The threads are daemons, so that a thread that waits for a name server does not keep the program running.
    threads = [threading.Thread(target=look_up, args=(host,), daemon=True) for host in wanted]
    deadline = time.monotonic() + RESOLVE_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    late = Resolution(reason=f"no answer within {RESOLVE_SECONDS:g} s")
    return {host: found.get(host, late) for host in wanted}


def check_addresses(config: Config, resolutions: Resolutions) -> Iterator[Finding]:
    """Warns of hosts that cannot be resolved, and of addresses on which the sidecar cannot listen.

    These findings are no faults, because the file may be checked on another machine than that of the sidecar.
    """
    first_open = first_open_port()
    for key, address in listening_addresses(config).items():
        yield from _check_host(key, address.host, resolutions)
        for number in resolutions[address.host].addresses:
            if not is_own_address(number):
                named = number if number == address.host else f"{address.host} is {number}, which"
                yield warning(key, f"{named} is not an address of this machine")
        if 0 < address.port < first_open:
            yield warning(key, f"this user may listen on ports from {first_open} on, and not on {address.port}")
    for key, host in remote_hosts(config).items():
        yield from _check_host(key, host, resolutions)


def check_overlaps(config: Config, resolutions: Resolutions) -> Iterator[Finding]:
    """Yields a fault for each address that the sidecar cannot open, because the address of an earlier key overlaps."""
    earlier: dict[str, Address] = {}
    for key, address in listening_addresses(config).items():
        for other_key, other in earlier.items():
            hosts = resolutions[address.host].addresses, resolutions[other.host].addresses
            if 0 < address.port == other.port and _overlap(*hosts):
                yield fault(key, f"{address} overlaps with {other_key}, {other}")
                break
        earlier[key] = address


def check_loops(config: Config, resolutions: Resolutions) -> Iterator[Finding]:
    """Yields a fault for each address of the broker at which the sidecar itself listens."""
    for key, address in broker_addresses(config).items():
        own = [number for number in resolutions[address.host].addresses if is_own_address(number)]
        for other_key, other in listening_addresses(config).items():
            if address.port == other.port and _overlap(own, resolutions[other.host].addresses):
                yield fault(key, f"{address} is the address of {other_key}, so the sidecar would connect to itself")
                break


def _overlap(hosts: Iterable[str], others: Iterable[str]) -> bool:
    """Whether one port cannot be opened on both sets of IP addresses."""
    return any(one == other or _covers(one, other) or _covers(other, one) for one in hosts for other in others)


def _covers(wildcard: str, number: str) -> bool:
    """Whether a socket on a wildcard address also takes the clients of an IP address. `::` includes IPv4."""
    return wildcard == "::" or (wildcard == "0.0.0.0" and ":" not in number)


def is_own_address(number: str) -> bool:
    """Whether a socket of this machine can have an IP address."""
    family = socket.AF_INET6 if ":" in number else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((number, 0))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def first_open_port() -> int:
    """Returns the lowest port that this process may bind, or 0 if there is no limit."""
    try:
        status = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        if int(status["CapEff"], 16) >> _CAP_NET_BIND_SERVICE & 1:
            return 0
        return int(_FIRST_OPEN_PORT.read_text())
    except (OSError, KeyError, ValueError):  # The system has no such limits.
        return 0


def _check_host(key: str, host: str, resolutions: Resolutions) -> Iterator[Finding]:
    if reason := resolutions[host].reason:
        yield warning(key, f"{host} cannot be resolved: {reason}")
