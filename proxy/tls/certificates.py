"""When certificates expire."""

from pathlib import Path


def expires_at(file: Path) -> float:
    """Returns when the first certificate of a PEM file expires, in seconds since the epoch.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file contains no certificate.
    """
    from cryptography import x509  # Imported here, because a sidecar without TLS starts faster without it.

    certificates = x509.load_pem_x509_certificates(file.read_bytes())
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)
