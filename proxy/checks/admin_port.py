"""Warns if everybody, or nobody on another machine, can use the admin port, and if its token is not encrypted."""

from collections.abc import Iterator

from group_sidecar.proxy.admin.access import is_loopback
from group_sidecar.proxy.checks.addresses import Resolutions
from group_sidecar.proxy.checks.findings import Finding, warning
from group_sidecar.proxy.config.model import Config


def check_admin_port(config: Config, resolutions: Resolutions) -> Iterator[Finding]:
    """Warns of an admin port beyond the loopback interface whose access is open, impossible or not encrypted."""
    admin, access = config.admin, config.admin_access
    if admin is None or all(map(is_loopback, resolutions[admin.host].addresses)):
        return
    token = "token" if access.token is not None else "token_file" if access.token_file is not None else ""
    if access.open:
        reads = "see the groups and have the settings read again"
        yield warning("admin_access.open", f"everybody who reaches {admin} may {reads}")
    elif not token and access.client_ca_file is None:
        missing = "admin_access has neither a token, nor a client_ca_file, nor open: true"
        yield warning("admin", f"nobody but clients on this machine may see the groups: {missing}")
    if token and access.certificate_file is None:
        yield warning(f"admin_access.{token}", "crosses the network unencrypted, without a certificate_file")
