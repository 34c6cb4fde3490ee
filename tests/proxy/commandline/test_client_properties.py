"""The properties file of `--command-config`: protocols, users, certificates, keys, and the text of each fault."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as pem

from group_sidecar.proxy.commandline.client_properties import (
    ClientProperties,
    PropertyError,
    SaslLogin,
    read_client_properties,
)
from tests.certificates import Authority, Certificate
from tests.proxy.commandline.client_files import PLAIN, SCRAM

JAAS = f'sasl.jaas.config={PLAIN} required username="alice" password="p w";'
TLS = "security.protocol=SSL\n"
SASL = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{JAAS}\n"
PASSPHRASE = "of the key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def read(folder: Path, text: str) -> ClientProperties:
    file = folder / "client.properties"
    file.write_text(text, "iso-8859-1")
    return read_client_properties(file)


def fault(folder: Path, text: str) -> str:
    with pytest.raises(PropertyError) as raised:
        read(folder, text)
    return str(raised.value)


def in_one_file(certificate: Certificate, folder: Path, passphrase: str = "") -> Path:
    """Writes key and chain to one file, as Kafka requires: the key in PKCS #8, encrypted if there is a passphrase."""
    key = pem.load_pem_private_key(certificate.key_file.read_bytes(), None)
    how = pem.BestAvailableEncryption(passphrase.encode()) if passphrase else pem.NoEncryption()
    file = folder / "keystore.pem"
    encoded = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, how)
    file.write_bytes(encoded + certificate.certificate_file.read_bytes())
    return file


def inline(content: bytes) -> str:
    """Returns a file's content as the value of a property, in several lines."""
    return content.decode().strip().replace("\n", "\\n\\\n")


def test_empty_file_means_plaintext(tmp_path: Path) -> None:
    """Without properties, the connection has neither TLS nor SASL. Unknown properties are ignored."""
    assert read(tmp_path, "") == ClientProperties()
    assert read(tmp_path, "bootstrap.servers=a:1\nacks=all\nsasl.mechanism=GSSAPI") == ClientProperties()


def test_sasl_without_tls(tmp_path: Path) -> None:
    """SASL_PLAINTEXT has a user and no TLS. The password is not part of the representation."""
    found = read(tmp_path, SASL)
    assert (found.tls, found.sasl) == (None, SaslLogin("PLAIN", "alice", "p w"))
    assert "p w" not in repr(found)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_with_tls(tmp_path: Path, mechanism: str) -> None:
    """SASL_SSL has a user and TLS, also in small letters. Blanks around values do not count."""
    jaas = f"sasl.jaas.config={SCRAM} required username=alice password='p';"
    found = read(tmp_path, f"security.protocol = sasl_ssl  \nsasl.mechanism={mechanism} \n{jaas}")
    assert found.tls is not None
    assert found.sasl == SaslLogin(mechanism, "alice", "p")


def test_client_id_and_timeout(tmp_path: Path) -> None:
    """The properties `client.id` and `request.timeout.ms` are read."""
    found = read(tmp_path, "client.id=ops\nrequest.timeout.ms=1500")
    assert (found.client_id, found.timeout) == ("ops", 1.5)


def test_certificates_of_servers_are_checked(tmp_path: Path) -> None:
    """TLS verifies certificates and host names, unless the algorithm of identification is empty."""
    strict, lax = read(tmp_path, TLS).tls, read(tmp_path, f"{TLS}ssl.endpoint.identification.algorithm=\n").tls
    assert strict is not None
    assert lax is not None
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize("is_inline", [False, True])
def test_truststore(tmp_path: Path, authority: Authority, is_inline: bool) -> None:
    """A truststore in PEM replaces the system's authorities, as a file or inside the properties."""
    where = (
        f"certificates={inline(authority.file.read_bytes())}" if is_inline else f"location={authority.file.as_posix()}"
    )
    tls = read(tmp_path, f"{TLS}ssl.truststore.type=PEM\nssl.truststore.{where}").tls
    assert tls is not None
    assert tls.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(authority.file.read_text())]


@pytest.mark.parametrize("passphrase", ["", PASSPHRASE])
@pytest.mark.parametrize("is_inline", [False, True])
def test_keystore(tmp_path: Path, authority: Authority, is_inline: bool, passphrase: str) -> None:
    """A keystore in PEM has the key, encrypted or not, and the chain, as a file or inside the properties."""
    certificate = authority.issue("sidecar.example")
    file = in_one_file(certificate, tmp_path, passphrase)
    key, mark, _ = file.read_bytes().partition(b"-----BEGIN CERTIFICATE")
    chain = inline(certificate.certificate_file.read_bytes())
    where = (
        f"ssl.keystore.key={inline(key)}\nssl.keystore.certificate.chain={chain}"
        if is_inline
        else f"ssl.keystore.location={file}"
    )
    secret = f"\nssl.key.password={passphrase}" if passphrase else ""
    assert mark
    assert read(tmp_path, f"{TLS}ssl.keystore.type=PEM\n{where}{secret}").tls is not None


def test_keystore_of_two_pairs_is_refused(tmp_path: Path, authority: Authority) -> None:
    """A key that does not belong to the certificate is named as the fault."""
    one, other = authority.issue("a.example"), authority.issue("b.example")
    file = in_one_file(Certificate(one.certificate_file, other.key_file), tmp_path)
    text = fault(tmp_path, f"{TLS}ssl.keystore.type=PEM\nssl.keystore.location={file}")
    assert text == f"ssl.keystore.location: {file}: the key does not belong to the certificate"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("security.protocol=TLS", "security.protocol: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("request.timeout.ms=0", "request.timeout.ms: must be a whole number from 1 to 2147483647"),
        ("request.timeout.ms=10s", "request.timeout.ms: must be a whole number from 1 to 2147483647"),
        (rb"a=\u12".decode(), "a \\u is not followed by four hexadecimal digits"),
        (
            "security.protocol=SASL_SSL",
            "sasl.mechanism: GSSAPI, Kafka's default, is not supported, only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER",
            "sasl.mechanism: OAUTHBEARER is not supported, only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN",
            "sasl.jaas.config: is required with SASL",
        ),
        (
            f"{SASL}sasl.jaas.config={PLAIN} required username=alice",
            "sasl.jaas.config: must end with a semicolon",
        ),
        (
            f"{SASL}sasl.jaas.config={PLAIN} required username=alice;",
            "sasl.jaas.config: has no password",
        ),
        (
            f"{SASL}sasl.jaas.config={PLAIN} required password=p;",
            "sasl.jaas.config: has no username",
        ),
        (
            f"{SASL}sasl.jaas.config={SCRAM} required username=a password=b tokenauth=true;",
            "sasl.jaas.config: tokenauth is not supported",
        ),
        (
            f"{SASL}sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;",
            "sasl.jaas.config: only PlainLoginModule and ScramLoginModule of Kafka are supported as login modules",
        ),
        (
            f"{TLS}ssl.endpoint.identification.algorithm=LDAPS",
            "ssl.endpoint.identification.algorithm: must be https, or empty for no check of the name",
        ),
        (
            f"{TLS}ssl.truststore.location=/etc/kafka/trust.jks",
            (
                "ssl.truststore.type: JKS, Kafka's default, is not supported, only PEM; convert the store: "
                "keytool -list -rfc -keystore /etc/kafka/trust.jks > truststore.pem"
            ),
        ),
        (
            f"{TLS}ssl.truststore.location=/a.p12\nssl.truststore.type=pkcs12",
            (
                "ssl.truststore.type: PKCS12 is not supported, only PEM; convert the store: "
                "keytool -list -rfc -keystore /a.p12 > truststore.pem"
            ),
        ),
        (
            f"{TLS}ssl.keystore.location=/a.p12\nssl.keystore.type=PKCS12",
            (
                "ssl.keystore.type: PKCS12 is not supported, only PEM; convert the store: "
                "openssl pkcs12 -in /a.p12 -nodes -out keystore.pem"
            ),
        ),
        (
            f"{TLS}ssl.keystore.location=/a.jks\nssl.keystore.type=JKS",
            (
                "ssl.keystore.type: JKS is not supported, only PEM; convert the store: "
                "keytool -importkeystore -srckeystore /a.jks -destkeystore /a.jks.p12 -deststoretype PKCS12 && "
                "openssl pkcs12 -in /a.jks.p12 -nodes -out keystore.pem"
            ),
        ),
        (
            f"{TLS}ssl.truststore.type=PEM\nssl.truststore.location=/absent.pem",
            "ssl.truststore.location: /absent.pem: no such file or directory",
        ),
        (
            f"{TLS}ssl.truststore.type=PEM\nssl.truststore.location=/dev/null",
            "ssl.truststore.location: /dev/null has no certificates in PEM",
        ),
        (
            f"{TLS}ssl.truststore.type=PEM\nssl.truststore.certificates=none",
            "ssl.truststore.certificates: has no certificates in PEM",
        ),
        (
            f"{TLS}ssl.truststore.type=PEM\nssl.truststore.certificates=a\nssl.truststore.location=b",
            "ssl.truststore.location: is not allowed beside ssl.truststore.certificates",
        ),
        (
            f"{TLS}ssl.keystore.type=PEM\nssl.keystore.location=/absent.pem",
            "ssl.keystore.location: /absent.pem: no such file or directory",
        ),
        (
            f"{TLS}ssl.keystore.type=PEM\nssl.keystore.location=/dev/null",
            (
                "ssl.keystore.location: /dev/null must have a key and its certificates in PEM; an encrypted key needs "
                "ssl.key.password"
            ),
        ),
        (
            f"{TLS}ssl.keystore.type=PEM\nssl.keystore.key=a",
            "ssl.keystore.key and ssl.keystore.certificate.chain: need each other",
        ),
        (
            f"{TLS}ssl.keystore.type=PEM\nssl.keystore.key=a\nssl.keystore.location=b",
            "ssl.keystore.location: is not allowed beside ssl.keystore.key",
        ),
    ],
)
def test_fault_is_one_clause(tmp_path: Path, text: str, line: str) -> None:
    """Each fault has a text that names the property."""
    assert fault(tmp_path, text) == line


def test_wrong_passphrase_of_key(tmp_path: Path, authority: Authority) -> None:
    """An encrypted key with a wrong passphrase or without one is a fault, and nothing asks at the terminal."""
    file = in_one_file(authority.issue("sidecar.example"), tmp_path, PASSPHRASE)
    store = f"{TLS}ssl.keystore.type=PEM\nssl.keystore.location={file}"
    for secret in ("", "\nssl.key.password=wrong"):
        assert fault(tmp_path, store + secret).endswith("an encrypted key needs ssl.key.password")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    """A missing file and a folder are faults."""
    for file, line in ((tmp_path / "absent", "no such file or directory"), (tmp_path, "is a directory")):
        with pytest.raises(PropertyError, match=line):
            read_client_properties(file)
