"""Compares the text of subjects with Java's, which Kafka uses in the names of principals."""

import random
import subprocess
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from group_sidecar.proxy.tls.subject import distinguished_name, subject_of
from tests.certificates import Authority

KNOWN = (
    NameOID.COMMON_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
)
UNKNOWN = (NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER, NameOID.TITLE, ObjectIdentifier("2.999.1234567.3"))
TEXTS = (
    "alice",
    " leading and trailing ",
    "  ",
    " ",
    "#first",
    "in#side",
    'a,b=c+d<e>f;g"h\\i',
    "ümlaut \u20ac \U0001f600",
    "nul\0 and \ttab\r\n",
    "\r\rreturns\r",
    "",
)
TYPED = (
    *((kind, "plain") for kind in (Type.UTF8String, Type.PrintableString, Type.IA5String, Type.UniversalString)),
    *((kind, text) for kind in (Type.T61String, Type.BMPString) for text in ("plain", "\u0416", "caf\u00e9")),
)


def attribute(oid: ObjectIdentifier, text: str, kind: Type = Type.UTF8String) -> x509.NameAttribute[str]:
    with warnings.catch_warnings(action="ignore"):  # Odd lengths are the point.
        return x509.NameAttribute(oid, text, _type=kind, _validate=False)


def name(*rdns: Iterable[x509.NameAttribute[str]]) -> bytes:
    return x509.Name([x509.RelativeDistinguishedName(each) for each in rdns]).public_bytes()


def all_names() -> list[bytes]:
    """Returns names with each attribute, type and odd text, and random combinations of them."""
    found = [name()]
    found += [name([attribute(oid, "value")]) for oid in (*KNOWN, *UNKNOWN)]
    found += [name([attribute(NameOID.COMMON_NAME, text)]) for text in TEXTS]
    found += [name([attribute(oid, text, kind)]) for kind, text in TYPED for oid in (NameOID.COMMON_NAME, UNKNOWN[0])]
    found.append(name([attribute(NameOID.COMMON_NAME, "x" * 500)]))
    chance = random.Random(1)
    for _ in range(300):
        rdns = [
            [
                attribute(oid, chance.choice(TEXTS))
                for oid in chance.sample((*KNOWN, *UNKNOWN), chance.choice((1, 1, 2)))
            ]
            for _ in range(chance.randrange(1, 5))
        ]
        found.append(name(*rdns))
    return found


@pytest.fixture(scope="module")
def names() -> dict[bytes, str]:
    """Returns Java's text of all names."""
    encoded = all_names()
    source = Path(__file__).with_name("PrincipalNames.java")
    lines = "".join(f"{each.hex()}\n" for each in encoded)
    done = subprocess.run(["java", str(source)], input=lines, capture_output=True, text=True, check=True)
    texts = [bytes.fromhex(line).decode() for line in done.stdout.splitlines()]
    return dict(zip(encoded, texts, strict=True))


def test_names_are_written_as_java_does(names: dict[bytes, str]) -> None:
    """Each name has the text of Java's X500Principal.getName()."""
    assert {each: distinguished_name(each) for each in names} == names


def test_subject_of_certificate(tmp_path: Path) -> None:
    """The subject is found in a certificate, and not the issuer."""
    issued = Authority(tmp_path).issue("client.example", common_name="alice")
    [certificate, *_] = x509.load_pem_x509_certificates(issued.certificate_file.read_bytes())
    encoded = certificate.public_bytes(Encoding.DER)
    assert subject_of(encoded) == distinguished_name(certificate.subject.public_bytes())
    assert subject_of(encoded).startswith("CN=alice,OU=")
