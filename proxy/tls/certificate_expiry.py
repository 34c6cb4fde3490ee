"""Finds out when certificates expire."""

from contextlib import suppress
from pathlib import Path

from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.tls.file_stamp import FileStamp, file_stamp


def expires_at(file: Path) -> float:
    """Returns the earliest time at which a certificate of a PEM file expires, in seconds since the epoch.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file contains no certificate that can be parsed.
    """
    from cryptography import x509  # Not imported at the start, because a sidecar without TLS does not need it.

    certificates = x509.load_pem_x509_certificates(file.read_bytes())
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)


class OwnCertificates:
    """The certificates of the admin port and of the sidecar's own connection.

    Their files are read again after a change, even if no connection was made with the new certificate yet.

    Args:
        config: the settings.
    """

    def __init__(self, config: Config) -> None:
        own_tls = config.own_connection.tls
        files = {
            "admin_access": config.admin_access.certificate_file if config.admin is not None else None,
            "own_connection": own_tls.certificate_file if own_tls is not None else None,
        }
        self._expiries = {name: _CertificateExpiry(file) for name, file in files.items() if file is not None}

    def expire_at(self) -> dict[str, float]:
        """Returns when each certificate expires, in seconds since the epoch, by the section of the settings.

        A certificate that could never be read is absent.
        """
        found = {name: expiry.current() for name, expiry in self._expiries.items()}
        return {name: at for name, at in found.items() if at is not None}


class _CertificateExpiry:
    """When the certificate in a file expires."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: FileStamp | None = None
        self._expires_at: float | None = None
        self.current()  # The first call imports `cryptography`, which must not delay clients later.

    def current(self) -> float | None:
        """Returns when the certificate expires. If the file cannot be used, the last result is returned again."""
        with suppress(OSError, ValueError):
            stamp = file_stamp(self._file)
            if stamp != self._stamp:
                self._expires_at, self._stamp = expires_at(self._file), stamp
        return self._expires_at
