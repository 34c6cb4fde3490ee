"""Checks of certificates, keys and authorities, in every section that has them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from group_sidecar.proxy.checks.certificates import check_certificates
from group_sidecar.proxy.config.model import Config
from tests.certificates import Authority, Certificate
from tests.proxy.checks.checked_settings import lines, listening, settings

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def issue(authority: Authority, *names: str, **given: Any) -> Certificate:
    """Issues a certificate whose key only its owner can read."""
    certificate = authority.issue(*(names or ("kafka.example",)), **given)
    certificate.key_file.chmod(0o600)
    return certificate


def found(config: Config, now: datetime = NOW) -> list[str]:
    return lines(check_certificates(config, now))


def everywhere(certificate: dict[str, str], authorities: str | None = None) -> dict[str, Config]:
    """Returns settings with a certificate in each section that can have one, by the path of the section."""
    client = {"client_ca_file": authorities, "client_auth": "required"} if authorities else {}
    ca_file = {"ca_file": authorities} if authorities else {}
    admin = {"client_ca_file": authorities} if authorities else {}
    return {
        "listeners.0 (A).tls": listening(tls={**certificate, **client}),
        "listeners.0 (A).upstream_tls": listening(upstream_tls={**certificate, **ca_file}),
        "own_connection.tls": settings(own_connection={"tls": {**certificate, **ca_file}}),
        "admin_access": settings(admin_access={**certificate, **admin}),
    }


def test_good_certificates(authority: Authority) -> None:
    """A valid certificate with its key and authorities causes no finding, in one file or in two."""
    certificate = issue(authority)
    both = certificate.key_file.with_suffix(".both")
    certificate.write_together(both)
    both.chmod(0o600)
    for given in (certificate.settings, {"certificate_file": str(both)}):
        for config in everywhere(given, str(authority.file)).values():
            assert found(config) == []
    assert found(settings()) == []
    assert found(settings(own_connection={"tls": {}})) == []


def test_missing_files(authority: Authority, tmp_path: Path) -> None:
    """Each missing file is a fault of its key."""
    absent, certificate = str(tmp_path / "absent"), issue(authority)
    for section, config in everywhere({"certificate_file": absent, "key_file": absent}).items():
        assert found(config) == [
            f"FAULT {section}.{key}: {absent} cannot be used: no such file or directory"
            for key in ("certificate_file", "key_file")
        ]
    for section, config in everywhere(certificate.settings, absent).items():
        [line] = found(config)
        assert line.startswith(f"FAULT {section}.")
        assert line.endswith(f"ca_file: {absent} cannot be used: no such file or directory")


def test_files_of_other_contents(authority: Authority, tmp_path: Path) -> None:
    """A file without a certificate or without a key is a fault of its key."""
    certificate, junk = issue(authority), tmp_path / "junk"
    junk.write_text("junk")
    one_file = {"certificate_file": str(certificate.certificate_file)}
    swapped = {"certificate_file": str(certificate.key_file), "key_file": str(certificate.certificate_file)}
    for section, config in everywhere(one_file).items():
        assert found(config) == [
            f"FAULT {section}.certificate_file: {certificate.certificate_file} has no private key in PEM"
        ]
    for section, config in everywhere(swapped).items():
        assert found(config) == [f"FAULT {section}.certificate_file: {certificate.key_file} has no certificate in PEM"]
    for config in everywhere(certificate.settings, str(junk)).values():
        [line] = found(config)
        assert line.endswith(f"ca_file: {junk} has no certificate in PEM")


def test_authorities_of_token_endpoint(authority: Authority, tmp_path: Path) -> None:
    """The authorities of a token endpoint are checked like all others."""
    junk, absent = tmp_path / "junk", tmp_path / "absent"
    junk.write_text("junk")
    faults = {
        authority.file: "",
        junk: "has no certificate in PEM",
        absent: "cannot be used: no such file or directory",
    }
    endpoint = {"token_endpoint_url": "https://issuer/token", "client_id": "sidecar", "client_secret": "secret"}
    for file, text in faults.items():
        sasl = {"mechanism": "OAUTHBEARER", **endpoint, "ca_file": str(file)}
        expected = [f"FAULT own_connection.sasl.ca_file: {file} {text}"] if text else []
        assert found(settings(own_connection={"sasl": sasl})) == expected


def test_key_of_another_certificate(authority: Authority) -> None:
    """A key that does not belong to the certificate is a fault."""
    one, other = issue(authority), issue(authority)
    pair = {"certificate_file": str(one.certificate_file), "key_file": str(other.key_file)}
    text = f"{other.key_file} has another key than that of the certificate in {one.certificate_file}"
    for section, config in everywhere(pair).items():
        assert found(config) == [f"FAULT {section}.key_file: {text}"]


def test_certificates_of_identities(authority: Authority, tmp_path: Path) -> None:
    """The certificate of each identity is checked, and the authorities of the section only once."""
    one, other, junk = issue(authority), issue(authority), tmp_path / "junk"
    junk.write_text("junk")
    good = {"subject": "CN=alice,.*", **one.settings}
    pair = {"certificate_file": str(one.certificate_file), "key_file": str(other.key_file)}
    absent = {"certificate_file": str(tmp_path / "absent")}
    key = "listeners.0 (A).upstream_tls"
    mismatch = f"{other.key_file} has another key than that of the certificate in {one.certificate_file}"

    def found_for(ca_file: Path, *identities: dict[str, str]) -> list[str]:
        tls = {**one.settings, "client_ca_file": str(authority.file), "client_auth": "required"}
        return found(listening(tls=tls, upstream_tls={"ca_file": str(ca_file), "identities": identities}))

    assert found_for(authority.file, good, good) == []
    assert found_for(junk, good) == [f"FAULT {key}.ca_file: {junk} has no certificate in PEM"]
    assert found_for(authority.file, good, {"subject": "a", **pair}, {"subject": "b", **absent}) == [
        f"FAULT {key}.identities.1.key_file: {mismatch}",
        f"FAULT {key}.identities.2.certificate_file: {tmp_path / 'absent'} cannot be used: no such file or directory",
    ]


def test_further_certificates_of_listener(authority: Authority, tmp_path: Path) -> None:
    """Each further certificate of a listener is checked, and the authorities of the section only once."""
    one, other, junk = issue(authority, "a.example", "*.b.example"), issue(authority), tmp_path / "junk"
    junk.write_text("junk")
    good = {"server_names": ["A.example", "*.b.example", "x.b.example"], **one.settings}
    pair = {"certificate_file": str(one.certificate_file), "key_file": str(other.key_file)}
    soon = issue(authority, "soon.example", expires=NOW + timedelta(days=5))
    absent = tmp_path / "absent"
    key = "listeners.0 (A).tls"

    def found_for(client_ca_file: Path, *certificates: dict[str, Any]) -> list[str]:
        mutual = {"client_ca_file": str(client_ca_file), "client_auth": "required"}
        return found(listening(tls={**one.settings, **mutual, "certificates": certificates}))

    assert found_for(authority.file, good) == []
    assert found_for(junk, good) == [f"FAULT {key}.client_ca_file: {junk} has no certificate in PEM"]
    mismatch = f"{other.key_file} has another key than that of the certificate in {one.certificate_file}"
    ends = f"{NOW + timedelta(days=5):%Y-%m-%dT%H:%M:%SZ}"
    assert found_for(
        authority.file,
        good,
        {"server_names": ["c.b.example"], **pair},
        {"server_names": ["d"], "certificate_file": str(absent)},
        {"server_names": ["soon.example"], **soon.settings},
    ) == [
        f"FAULT {key}.certificates.1.key_file: {mismatch}",
        f"FAULT {key}.certificates.2.certificate_file: {absent} cannot be used: no such file or directory",
        f"warning {key}.certificates.3.certificate_file: {soon.certificate_file} expires at {ends}",
    ]


def test_server_name_that_is_not_in_its_certificate(authority: Authority) -> None:
    """A name that a further certificate does not contain causes a warning."""
    one = issue(authority, "a.example", "*.b.example")
    names = ["a.example", "other.example", "*.example", "deep.a.b.example"]
    further = {"server_names": names, **one.settings}
    assert found(listening(tls={**one.settings, "certificates": [further]})) == [
        f"warning listeners.0 (A).tls.certificates.0.server_names: {name} is not in {one.certificate_file}, and "
        "clients that ask for it refuse the certificate"
        for name in names[1:]
    ]


def test_encrypted_key(authority: Authority, tmp_path: Path) -> None:
    """An encrypted key is a fault, and nothing asks for its password."""
    certificate, encrypted = issue(authority), tmp_path / "encrypted.key"
    key = pem.load_pem_private_key(certificate.key_file.read_bytes(), None)
    how = pem.BestAvailableEncryption(b"of the key")
    encrypted.write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, how))
    pair = {"certificate_file": str(certificate.certificate_file), "key_file": str(encrypted)}
    assert found(listening(tls=pair)) == [f"FAULT listeners.0 (A).tls.key_file: {encrypted} is encrypted"]


def test_key_that_openssl_refuses(tmp_path: Path) -> None:
    """A pair that OpenSSL refuses is a fault, although certificate and key belong together."""
    key = rsa.generate_private_key(65_537, 1024)
    own = self_signed(key, NOW + timedelta(days=90), "kafka.example")
    file = tmp_path / "weak.pem"
    file.write_bytes(own + as_pem(key))
    file.chmod(0o600)
    [line] = found(listening(tls={"certificate_file": str(file)}))
    assert line.startswith(f"FAULT listeners.0 (A).tls.certificate_file: {file} cannot be used: ")


def test_expiry(authority: Authority) -> None:
    """An expired certificate is a fault, and one that expires within 30 days causes a warning."""
    certificate = issue(authority, expires=NOW + timedelta(days=60))
    file, at = certificate.certificate_file, f"{NOW + timedelta(days=60):%Y-%m-%dT%H:%M:%SZ}"
    for section, config in everywhere(certificate.settings).items():
        assert found(config, NOW + timedelta(days=29)) == []
        assert found(config, NOW + timedelta(days=31)) == [
            f"warning {section}.certificate_file: {file} expires at {at}"
        ]
        assert found(config, NOW + timedelta(days=60)) == [f"FAULT {section}.certificate_file: {file} expired at {at}"]


def test_certificate_of_the_future(tmp_path: Path) -> None:
    """A certificate that is not valid yet causes a warning."""
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "own.pem"
    file.write_bytes(self_signed(key, NOW + timedelta(days=90), "kafka.example") + as_pem(key))
    file.chmod(0o600)
    before, begins = NOW - timedelta(days=3), f"{NOW - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    assert found(listening(tls={"certificate_file": str(file)}), before) == [
        f"warning listeners.0 (A).tls.certificate_file: {file} is not valid before {begins}"
    ]


def test_expired_authorities(tmp_path: Path) -> None:
    """Authorities are a fault if all have expired. A file with one that is still valid causes no finding."""
    parts = [
        self_signed(ec.generate_private_key(ec.SECP256R1()), NOW + timedelta(days=days), "ca") for days in (-1, 400)
    ]
    file = tmp_path / "authorities.pem"
    file.write_bytes(parts[0])
    config = settings(own_connection={"tls": {"ca_file": str(file)}})
    at = f"{NOW - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    assert found(config) == [f"FAULT own_connection.tls.ca_file: {file} expired at {at}"]
    file.write_bytes(b"".join(parts))
    assert found(config) == []


def test_key_for_everybody(authority: Authority) -> None:
    """A key that every user of the machine can read causes a warning."""
    certificate = issue(authority)
    certificate.key_file.chmod(0o644)
    for section, config in everywhere(certificate.settings).items():
        assert found(config) == [
            f"warning {section}.key_file: {certificate.key_file} can be read by every user of this machine"
        ]


def test_certificate_without_names(tmp_path: Path) -> None:
    """A listener's certificate without names causes a warning. Other certificates need no names."""
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "own.pem"
    file.write_bytes(self_signed(key, NOW + timedelta(days=90)) + as_pem(key))
    file.chmod(0o600)
    for section, config in everywhere({"certificate_file": str(file)}).items():
        text = f"{file} has no names (subjectAltName), and clients refuse it"
        expected = [f"warning {section}.certificate_file: {text}"] if section == "listeners.0 (A).tls" else []
        assert found(config) == expected


@pytest.mark.parametrize(
    ("names", "host", "fits"),
    [
        (("kafka.example", "b.example"), "kafka.example", True),
        (("kafka.example",), "KAFKA.example.", True),
        (("*.example",), "kafka.example", True),
        (("*.example",), "a.kafka.example", False),
        (("*.example",), "example", False),
        (("10.0.0.1",), "10.0.0.1", True),
        (("10.0.0.1",), "10.0.0.2", False),
        (("::1",), "0:0::1", True),
        (("other.example",), "kafka.example", False),
    ],
)
def test_certificate_of_gateway(authority: Authority, names: tuple[str, ...], host: str, fits: bool) -> None:
    """A gateway's certificate must contain the advertised host. In mode sidecar, the broker advertises the host."""
    certificate = issue(authority, *names)
    config = listening(tls=certificate.settings)
    gateway = config.model_copy(
        update={"mode": "gateway", "gateway": config.gateway.model_copy(update={"advertise": host})}
    )
    text = f"{certificate.certificate_file} is for {', '.join(names)}, and the gateway advertises {host}"
    assert found(gateway) == ([] if fits else [f"warning listeners.0 (A).tls.certificate_file: {text}"])
    assert found(config) == []


def test_further_certificate_of_gateway(authority: Authority) -> None:
    """A further certificate may be the one for the host that a gateway advertises."""
    own, further = issue(authority, "other.example"), issue(authority, "*.example")
    named = {"server_names": ["*.example"], **further.settings}
    config = listening(tls={**own.settings, "certificates": [named]})

    def advertising(host: str) -> list[str]:
        gateway = config.gateway.model_copy(update={"advertise": host})
        return found(config.model_copy(update={"mode": "gateway", "gateway": gateway}))

    assert advertising("Kafka.example.") == []
    text = f"{own.certificate_file} is for other.example, and the gateway advertises kafka.test"
    assert advertising("kafka.test") == [f"warning listeners.0 (A).tls.certificate_file: {text}"]


def test_certificate_of_gateway_with_names(authority: Authority) -> None:
    """The certificate of a gateway with names must contain the bootstrap names and the names of the brokers."""
    certificate = issue(authority, "kafka.example", "*.kafka.example")
    config = listening(tls=certificate.settings)

    def advertising(template: str, *bootstrap: str) -> list[str]:
        changes = {"advertise": template, "one_port": True, "bootstrap_names": bootstrap}
        gateway = config.gateway.model_copy(update=changes)
        return found(config.model_copy(update={"mode": "gateway", "gateway": gateway}))

    assert advertising("b-{node}.kafka.example", "kafka.example") == []
    start = f"warning listeners.0 (A).tls.certificate_file: {certificate.certificate_file} is for kafka.example"
    [line] = advertising("b-{node}.kafka.test", "kafka.example")
    assert line == f"{start}, *.kafka.example, and the gateway advertises b-0.kafka.test"
    [line] = advertising("b-{node}.kafka.example", "kafka.test")
    assert line == f"{start}, *.kafka.example, and the gateway advertises kafka.test"


def self_signed(key: PrivateKey, ends: datetime, *names: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "own")])
    begins = min(NOW, ends) - timedelta(days=1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), begins, ends)
    if names:
        extension = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(pem.Encoding.PEM)


def as_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
