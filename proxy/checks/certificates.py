"""Checks certificates and keys: whether they can be loaded and belong together, and for how long they are valid."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from group_sidecar.proxy.admin.tls import admin_context
from group_sidecar.proxy.checks.files import check_mode, read
from group_sidecar.proxy.checks.findings import Finding, fault, listener_key, warning
from group_sidecar.proxy.config.listener_sections import ListenerTls, NamedCertificate, UpstreamTls
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.own_connection import Tls
from group_sidecar.proxy.listeners.listener_certificates import certificate_for
from group_sidecar.proxy.runtime.addresses import NodeNames
from group_sidecar.proxy.tls.reloading_contexts import (
    UnusableFileError,
    client_context,
    listener_context,
    upstream_context,
)

SOON = timedelta(days=30)
"""A certificate that expires within this time is worth a warning. ACME clients renew 30 days before the expiry."""


class _Section(NamedTuple):
    """A section of the settings with TLS files.

    Attributes:
        key: the path of the section.
        certificate_file, key_file: as in the settings.
        authorities: the name of the key for authorities, and the file.
        load: makes a TLS context from all files of the section, as the sidecar does.
    """

    key: str
    certificate_file: Path | None
    key_file: Path | None
    authorities: tuple[str, Path | None]
    load: Callable[[], object]


def check_certificates(config: Config, now: datetime) -> Iterator[Finding]:
    """Checks all certificates, keys and authorities."""
    for section in _sections(config):
        yield from _check_section(section, now)
    yield from _check_names(config)


def _sections(config: Config) -> Iterator[_Section]:
    for index, listener in enumerate(config.listeners):
        key = listener_key(index, listener)
        if tls := listener.tls:
            yield from _of_clients(f"{key}.tls", tls)
        if listener.upstream_tls:
            yield from _of_upstream(f"{key}.upstream_tls", listener.upstream_tls)
    if config.own_connection.tls:
        yield _to_broker("own_connection.tls", config.own_connection.tls)
    sasl = config.own_connection.sasl
    if sasl is not None and sasl.ca_file is not None:
        load = partial(client_context, sasl.ca_file)
        yield _Section("own_connection.sasl", None, None, ("ca_file", sasl.ca_file), load)
    access = config.admin_access
    if access.certificate_file is not None:
        authorities = ("client_ca_file", access.client_ca_file)
        certificate_file, key_file = access.certificate_file, access.key_file
        yield _Section("admin_access", certificate_file, key_file, authorities, partial(admin_context, access))


def _of_clients(key: str, tls: ListenerTls) -> Iterator[_Section]:
    """Yields the section of a listener's connections with clients, and those of its further certificates."""
    # `client_ca_file` is left out here, because the check of the section itself covers it.
    alone = [tls.with_certificate_of(named).model_copy(update={"client_ca_file": None}) for named in tls.certificates]
    keys = [key, *(f"{key}.certificates.{index}" for index in range(len(alone)))]
    for each_key, each in zip(keys, [tls, *alone], strict=True):
        authorities = ("client_ca_file", each.client_ca_file)
        yield _Section(each_key, each.certificate_file, each.key_file, authorities, partial(listener_context, each))


def _of_upstream(key: str, tls: UpstreamTls) -> Iterator[_Section]:
    """Yields the section of a listener's connections to the broker, and those of its identities."""
    yield _to_broker(key, tls)
    for index, identity in enumerate(tls.identities):
        # `ca_file` is left out here, because the check of the section itself covers it.
        alone = tls.with_certificate_of(identity).model_copy(update={"ca_file": None})
        yield _to_broker(f"{key}.identities.{index}", alone)


def _to_broker(key: str, tls: Tls) -> _Section:
    authorities = ("ca_file", tls.ca_file)
    return _Section(key, tls.certificate_file, tls.key_file, authorities, partial(upstream_context, tls))


def _check_section(section: _Section, now: datetime) -> Iterator[Finding]:
    found = [*_check_pair(section, now), *_check_authorities(section, now)]
    if not any(finding.is_fault for finding in found):
        found += _check_load(section)
    yield from found


def _check_pair(section: _Section, now: datetime) -> Iterator[Finding]:
    """Checks a certificate and its key."""
    if section.certificate_file is None:
        return
    key, file = f"{section.key}.certificate_file", section.certificate_file
    content, faults = read(key, file)
    certificates = _certificates(content)
    if not faults and not certificates:
        faults = [fault(key, f"{file} has no certificate in PEM")]
    yield from faults
    key_name, key_file = key, file
    if section.key_file is not None:
        key_name, key_file = f"{section.key}.key_file", section.key_file
        content, unreadable = read(key_name, key_file)
        yield from unreadable
        faults += unreadable
    if faults:
        return
    try:
        private_key = load_pem_private_key(content, None)
    except TypeError:
        yield fault(key_name, f"{key_file} is encrypted")
        return
    except (ValueError, UnsupportedAlgorithm):
        yield fault(key_name, f"{key_file} has no private key in PEM")
        return
    if private_key.public_key() != certificates[0].public_key():
        yield fault(key_name, f"{key_file} has another key than that of the certificate in {file}")
    yield from check_mode(key_name, key_file)
    yield from _check_validity(key, file, certificates, now)


def _check_authorities(section: _Section, now: datetime) -> Iterator[Finding]:
    name, file = section.authorities
    if file is None:
        return
    key = f"{section.key}.{name}"
    content, faults = read(key, file)
    yield from faults
    if faults:
        return
    certificates = _certificates(content)
    if not certificates:
        yield fault(key, f"{file} has no certificate in PEM")
        return
    # Files with many authorities often contain one that has expired. The last one to expire counts.
    last = max(certificates, key=lambda certificate: certificate.not_valid_after_utc)
    yield from _check_validity(key, file, [last], now)


def _check_load(section: _Section) -> Iterator[Finding]:
    """Loads all files as the sidecar does."""
    try:
        section.load()
    except UnusableFileError as error:
        yield fault(f"{section.key}.{error.key}", error.reason)


def _check_validity(key: str, file: Path, certificates: list[x509.Certificate], now: datetime) -> Iterator[Finding]:
    ends = min(certificate.not_valid_after_utc for certificate in certificates)
    begins = max(certificate.not_valid_before_utc for certificate in certificates)
    if ends <= now:
        yield fault(key, f"{file} expired at {_time(ends)}")
    elif ends <= now + SOON:
        yield warning(key, f"{file} expires at {_time(ends)}")
    if begins > now:
        yield warning(key, f"{file} is not valid before {_time(begins)}")


def _check_names(config: Config) -> Iterator[Finding]:
    """Warns of listeners' certificates that clients refuse because of the names in them.

    In mode sidecar, the broker decides which name clients use. So this function only checks that the listener's own
    certificate contains any name.
    """
    for index, listener in enumerate(config.listeners):
        if listener.tls is None:
            continue
        tls, key = listener.tls, f"{listener_key(index, listener)}.tls"
        by_name = {name: named for named in tls.certificates for name in named.server_names}
        # If clients get a further certificate for a name, the certificate's names are checked below.
        own: list[str | None] = [
            name for name in _advertised_names(config) if certificate_for(name, by_name, None) is None
        ]
        for host in own or [None]:
            yield from _check_own_names(f"{key}.certificate_file", tls.certificate_file, host)
        for number, named in enumerate(tls.certificates):
            yield from _check_server_names(f"{key}.certificates.{number}", named)


def _advertised_names(config: Config) -> list[str]:
    """Returns names at which clients reach a gateway, in lower case: the bootstrap names, and the name of one node."""
    if config.mode != "gateway":
        return []
    host = NodeNames(config.advertised_host).name(0).lower().rstrip(".")
    return [*config.gateway.bootstrap_names, host]


def _check_own_names(key: str, file: Path, advertised_host: str | None) -> Iterator[Finding]:
    for names in _names_in(key, file):
        if not names:
            yield warning(key, f"{file} has no names (subjectAltName), and clients refuse it")
        elif advertised_host is not None and not any(_covers(name, advertised_host) for name in names):
            yield warning(key, f"{file} is for {', '.join(names[:3])}, and the gateway advertises {advertised_host}")


def _check_server_names(key: str, named: NamedCertificate) -> Iterator[Finding]:
    for names in _names_in(key, named.certificate_file):
        for server_name in named.server_names:
            if not any(_covers(name, server_name) for name in names):
                text = f"{server_name} is not in {named.certificate_file}"
                yield warning(f"{key}.server_names", f"{text}, and clients that ask for it refuse the certificate")


def _names_in(key: str, file: Path) -> Iterator[list[str]]:
    """Yields the names of a file's certificate, unless the file is unusable, which is a fault of its own."""
    content, _ = read(key, file)
    for certificate in _certificates(content)[:1]:
        yield _names(certificate)


def _certificates(content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        return []


def _names(certificate: x509.Certificate) -> list[str]:
    """Returns the DNS names and the IP addresses of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def _covers(name: str, host: str) -> bool:
    """Whether a name of a certificate covers a host (RFC 9525, 6.3)."""
    try:
        return ip_address(name) == ip_address(host)
    except ValueError:
        pass
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
