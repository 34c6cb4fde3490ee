"""Reads the properties file of `--command-config`: Kafka's client properties for TLS and SASL.

Like Kafka's tools, the module ignores unknown properties, and removes blanks around values. An error repeats a value
only if the value cannot be secret.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from group_sidecar.proxy.commandline.java_properties import parse_login_module, parse_properties
from group_sidecar.proxy.runtime.os_errors import reason_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN_MODULES = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
)
MAX_SHOWN = 64
"""The maximum length of a value that an error repeats."""
_DEFAULT_MECHANISM, _DEFAULT_STORE = "GSSAPI", "JKS"
"""Kafka's defaults of `sasl.mechanism` and of both store types."""
_TRUSTSTORE_AS_PEM = "keytool -list -rfc -keystore {store} > {pem}"
_KEYSTORE_AS_PEM = "openssl pkcs12 -in {store} -nodes -out {pem}"
_TO_PKCS12 = "keytool -importkeystore -srckeystore {store} -destkeystore {store}.p12 -deststoretype PKCS12"


class PropertyError(Exception):
    """A property is invalid, or its file cannot be used. The text is one clause."""


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A user, as in `sasl.jaas.config`.

    This is not the `Sasl` of the settings, because the module of the settings would slow `--help` down.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """How to connect to a broker.

    Attributes:
        protocol: the value of `security.protocol`.
        tls: the TLS context, or None for a connection without TLS.
        sasl: the user, or None for no authentication.
        client_id: the value of `client.id`, or None.
        timeout: the value of `request.timeout.ms` in seconds, or None.
    """

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = None
    sasl: SaslLogin | None = None
    client_id: str | None = None
    timeout: float | None = None


NO_PROPERTIES = ClientProperties()
"""The properties of an empty file."""


def read_client_properties(file: Path) -> ClientProperties:
    """Reads a properties file, and the certificates and keys that it names.

    Raises:
        PropertyError: the file or a value cannot be used.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PropertyError(reason_of(error)) from None
    try:
        given = {key: value.strip() for key, value in parse_properties(content).items()}
    except ValueError as error:
        raise PropertyError(str(error)) from None
    protocol = given.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise PropertyError(f"security.protocol: must be one of {', '.join(PROTOCOLS)}")
    return ClientProperties(
        protocol=protocol,
        tls=_tls(given) if protocol.endswith("SSL") else None,
        sasl=_sasl(given) if protocol.startswith("SASL") else None,
        client_id=given.get("client.id") or None,
        timeout=_timeout(given),
    )


def _timeout(given: Mapping[str, str]) -> float | None:
    text = given.get("request.timeout.ms")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 0x7FFFFFFF):
        raise PropertyError("request.timeout.ms: must be a whole number from 1 to 2147483647")
    return int(text) / 1000


# SASL.


def _sasl(given: Mapping[str, str]) -> SaslLogin:
    mechanism = given.get("sasl.mechanism", _DEFAULT_MECHANISM)
    if mechanism not in MECHANISMS:
        by_default = "" if "sasl.mechanism" in given else ", Kafka's default,"
        supported = ", ".join(MECHANISMS)
        raise PropertyError(f"sasl.mechanism: {_shown(mechanism)}{by_default} is not supported, only {supported}")
    if not given.get("sasl.jaas.config"):
        raise PropertyError("sasl.jaas.config: is required with SASL")
    try:
        module = parse_login_module(given["sasl.jaas.config"])
    except ValueError as error:
        raise PropertyError(f"sasl.jaas.config: {error}") from None
    if module.name not in LOGIN_MODULES:
        known = " and ".join(name.rpartition(".")[2] for name in LOGIN_MODULES)
        raise PropertyError(f"sasl.jaas.config: only {known} of Kafka are supported as login modules")
    if module.options.get("tokenauth", "").lower() == "true":
        raise PropertyError("sasl.jaas.config: tokenauth is not supported")
    for option in ("username", "password"):
        if not module.options.get(option):
            raise PropertyError(f"sasl.jaas.config: has no {option}")
    return SaslLogin(mechanism, module.options["username"], module.options["password"])


# TLS.


def _tls(given: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    identification = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identification not in ("", "https"):
        raise PropertyError("ssl.endpoint.identification.algorithm: must be https, or empty for no check of the name")
    context.check_hostname = identification != ""
    _trust(context, given)
    _present_certificate(context, given)
    return context


def _trust(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    location, certificates = given.get("ssl.truststore.location"), given.get("ssl.truststore.certificates")
    if not location and not certificates:
        context.load_default_certs()
        return
    _require_pem(given, "truststore", _TRUSTSTORE_AS_PEM)
    if location and certificates:
        raise PropertyError("ssl.truststore.location: is not allowed beside ssl.truststore.certificates")
    try:
        if location:
            context.load_verify_locations(location)
        else:
            context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        if location:
            raise PropertyError(f"ssl.truststore.location: {location} has no certificates in PEM") from None
        raise PropertyError("ssl.truststore.certificates: has no certificates in PEM") from None
    except OSError as error:
        raise PropertyError(f"ssl.truststore.location: {location}: {reason_of(error)}") from None


def _present_certificate(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    location = given.get("ssl.keystore.location")
    chain, key = given.get("ssl.keystore.certificate.chain"), given.get("ssl.keystore.key")
    if not (location or chain or key):
        return
    _require_pem(given, "keystore", _KEYSTORE_AS_PEM)
    if location and (chain or key):
        raise PropertyError("ssl.keystore.location: is not allowed beside ssl.keystore.key")
    if location:
        _load_key(context, Path(location), given, "ssl.keystore.location", location)
        return
    if not (chain and key):
        raise PropertyError("ssl.keystore.key and ssl.keystore.certificate.chain: need each other")
    # OpenSSL takes a key from a file only. This file is in memory and has no name in the file system.
    descriptor = os.memfd_create("keystore")
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{key}\n{chain}\n".encode())
        file.flush()
        _load_key(context, Path(f"/proc/self/fd/{descriptor}"), given, "ssl.keystore.key", "the key with its chain")


def _load_key(context: ssl.SSLContext, file: Path, given: Mapping[str, str], name: str, label: str) -> None:
    try:
        # Without a password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(file, password=given.get("ssl.key.password", ""))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise PropertyError(f"{name}: {label}: the key does not belong to the certificate") from None
        hint = "must have a key and its certificates in PEM; an encrypted key needs ssl.key.password"
        raise PropertyError(f"{name}: {label} {hint}") from None
    except OSError as error:
        raise PropertyError(f"{name}: {label}: {reason_of(error)}") from None


def _require_pem(given: Mapping[str, str], store: str, command: str) -> None:
    """Raises PropertyError if a store is not PEM. The text contains the command that converts the store."""
    kind = given.get(f"ssl.{store}.type", _DEFAULT_STORE).upper()
    if kind == "PEM":
        return
    location = given.get(f"ssl.{store}.location", "")
    file = location or f"{store}.jks"
    pem = f"{store}.pem"
    converted = command.format(store=file, pem=pem)
    if store == "keystore" and kind == _DEFAULT_STORE:
        converted = f"{_TO_PKCS12.format(store=file)} && {command.format(store=f'{file}.p12', pem=pem)}"
    by_default = "" if f"ssl.{store}.type" in given else ", Kafka's default,"
    raise PropertyError(
        f"ssl.{store}.type: {_shown(kind)}{by_default} is not supported, only PEM; convert the store: {converted}"
    )


def _shown(value: str) -> str:
    return value if value.isascii() and value.isprintable() and len(value) <= MAX_SHOWN else "this value"
