"""All checks of the settings that need neither a broker nor clients."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime

from group_sidecar.proxy.checks.addresses import (
    check_addresses,
    check_loops,
    check_overlaps,
    listening_addresses,
    remote_hosts,
    resolve,
)
from group_sidecar.proxy.checks.admin_port import check_admin_port
from group_sidecar.proxy.checks.certificates import check_certificates
from group_sidecar.proxy.checks.files import check_journal, check_secrets
from group_sidecar.proxy.checks.findings import Finding, warning
from group_sidecar.proxy.config.misspelt_variables import unused_variables
from group_sidecar.proxy.config.model import Config


def check_settings(config: Config) -> Iterator[Finding]:
    """Opens the files and resolves the addresses in the settings, and yields what is wrong. Changes nothing.

    The settings may also come from the environment, so its variables are checked too.
    """
    own_hosts = [address.host for address in listening_addresses(config).values()]
    resolutions = resolve([*own_hosts, *remote_hosts(config).values()])
    yield from (warning(name, reason) for name, reason in unused_variables(os.environ))
    yield from check_certificates(config, datetime.now(UTC))
    yield from check_secrets(config)
    yield from check_journal(config)
    yield from check_overlaps(config, resolutions)
    yield from check_loops(config, resolutions)
    yield from check_addresses(config, resolutions)
    yield from check_admin_port(config, resolutions)
