"""When certificates expire."""

from pathlib import Path

from group_sidecar.metrics.listener_counters import ListenerCounters, TlsSide


def expires_at(file: Path) -> float:
    """Returns when the first certificate of a PEM file expires, in seconds since the epoch.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file contains no certificate.
    """
    from cryptography import x509  # Imported here, because a sidecar without TLS starts faster without it.

    certificates = x509.load_pem_x509_certificates(file.read_bytes())
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)


class EarliestExpiry:
    """Reports when the first of a listener's certificates expires.

    Args:
        counters: gets the time in seconds since the epoch.
        side: the side that sees the certificates.
    """

    def __init__(self, counters: ListenerCounters, side: TlsSide) -> None:
        self._counters = counters
        self._side = side
        self._expiries: dict[str, float] = {}

    def note(self, name: str, file: Path) -> None:
        """Notes that the certificate with a name was read from a file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file contains no certificate.
        """
        self._expiries[name] = expires_at(file)
        self._counters.certificates_expire_at[self._side] = min(self._expiries.values())
