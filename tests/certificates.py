"""Certificates for tests, as files. `trustme` makes all of them except those without a subject."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and its key."""

    certificate_file: Path
    key_file: Path

    @property
    def settings(self) -> dict[str, str]:
        """The settings that name the files."""
        return {"certificate_file": str(self.certificate_file), "key_file": str(self.key_file)}

    def write_together(self, file: Path) -> None:
        """Writes the key and the certificate into one file."""
        file.write_bytes(self.key_file.read_bytes() + self.certificate_file.read_bytes())

    @property
    def java_keystore(self) -> bytes:
        """The content of a PEM keystore for Kafka's `ssl.keystore.location`: the key, in PKCS #8 as Java requires, and
        the certificate chain.
        """
        key = pem.load_pem_private_key(self.key_file.read_bytes(), None)
        in_pkcs8 = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
        return in_pkcs8 + self.certificate_file.read_bytes()


class Authority:
    """A certificate authority. `file`: its own certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self._count = 0
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        unit: str | None = None,
        expires: datetime | None = None,
    ) -> Certificate:
        """Issues a certificate for names or IP addresses, and writes it and its key to files.

        `unit`: the organizational unit in the subject. Without it, each certificate has a different unit.
        """
        self._count += 1
        made = self._ca.issue_cert(*names, common_name=common_name, organization_unit_name=unit, not_after=expires)
        files = Certificate(self._folder / f"{self._count}.pem", self._folder / f"{self._count}.key")
        files.certificate_file.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(files.key_file)
        return files

    def issue_without_subject(self, name: str) -> Certificate:
        """Issues a certificate whose subject is empty. Its SAN extension is then critical (RFC 5280, 4.2.1.6)."""
        self._count += 1
        [authority] = x509.load_pem_x509_certificates(self.file.read_bytes())
        signing_key = pem.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = x509.CertificateBuilder(
            authority.subject,
            x509.Name([]),
            key.public_key(),
            x509.random_serial_number(),
            authority.not_valid_before_utc,
            authority.not_valid_after_utc,
        ).add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        files = Certificate(self._folder / f"{self._count}.pem", self._folder / f"{self._count}.key")
        files.certificate_file.write_bytes(builder.sign(signing_key, hashes.SHA256()).public_bytes(pem.Encoding.PEM))
        files.key_file.write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()))
        return files
