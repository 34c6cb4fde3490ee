"""When certificates expire, and whom they name."""

from pathlib import Path
from typing import Any

Subject = tuple[tuple[tuple[str, str], ...], ...]
"""A subject as the `ssl` module returns it: relative distinguished names, each with its attributes."""

_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The short names of RFC 4514, 3."""
_ESCAPED = frozenset('"+,;<>\\')


def expires_at(file: Path) -> float:
    """Returns when the first certificate of a PEM file expires, in seconds since the epoch.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file contains no certificate.
    """
    from cryptography import x509  # Imported here, because a sidecar without TLS starts faster without it.

    certificates = x509.load_pem_x509_certificates(file.read_bytes())
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)


def subject_of(certificate: dict[str, Any] | None) -> str:
    """Returns the subject of a peer's certificate as Kafka writes it (RFC 2253), most specific name first.

    `certificate`: what `ssl.SSLObject.getpeercert` returns. Without a certificate the result is empty.
    """
    subject: Subject = (certificate or {}).get("subject", ())
    return ",".join("+".join(_attribute(*pair) for pair in names) for names in reversed(subject))


def _attribute(name: str, value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    return f"{_SHORT_NAMES.get(name, name)}={escaped}"
