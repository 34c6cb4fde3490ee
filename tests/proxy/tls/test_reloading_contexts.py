"""What a listener's TLS offers to clients, and the reasons why a TLS context cannot use its files."""

import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from group_sidecar.proxy.config.listener_sections import ListenerTls
from group_sidecar.proxy.tls.reloading_contexts import ReloadingContext, file_fault, listener_context
from tests.certificates import Authority

LAST = b"the last bytes of the server"


@pytest.mark.parametrize("content", ["", "no PEM"])
def test_files_that_are_not_pem(tmp_path: Path, content: str) -> None:
    """If a file has no certificate or no key in PEM, the fault names what is missing. OpenSSL itself gives no
    reason.
    """
    good, bad = Authority(tmp_path / "authority").issue("a"), tmp_path / "bad"
    bad.write_text(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for certificate, key in ((bad, good.key_file), (good.certificate_file, bad), (good.certificate_file, None)):
        with pytest.raises(ssl.SSLError) as caught:
            context.load_cert_chain(certificate, key)
        assert file_fault(caught.value) == "a certificate or a key in PEM is missing"


def test_key_of_another_certificate(tmp_path: Path) -> None:
    """OpenSSL's reason is written in lower case."""
    authority = Authority(tmp_path)
    with pytest.raises(ssl.SSLError) as caught:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            authority.issue("a").certificate_file, authority.issue("b").key_file
        )
    assert file_fault(caught.value) == "key values mismatch"


def test_certificate_that_only_openssl_reads(tmp_path: Path) -> None:
    """TLS works with a certificate in OpenSSL's own form. Its expiry is not known, and a warning says so."""
    issued, trusted = Authority(tmp_path).issue("a.example"), tmp_path / "trusted.pem"
    convert = ["openssl", "x509", "-in", str(issued.certificate_file), "-trustout", "-out", str(trusted)]
    subprocess.run(convert, check=True)
    settings = ListenerTls(certificate_file=trusted, key_file=issued.key_file)
    with capture_logs() as lines:
        context = ReloadingContext("CLIENT: tls", [trusted], lambda: listener_context(settings), trusted)
    connected(context.current(), client(ssl.TLSVersion.TLSv1_3))
    assert context.expires_at is None
    assert [(line["event"], line["file"]) for line in lines] == [("expiry of certificate not known", str(trusted))]


def serving(folder: Path, **tls: Any) -> ssl.SSLContext:
    """Returns the context of a listener."""
    return listener_context(ListenerTls.model_validate({**Authority(folder).issue("a.example").settings, **tls}))


def client(version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    """Returns the context of a client that accepts whatever OpenSSL can do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.options &= ~ssl.OP_NO_COMPRESSION
    with warnings.catch_warnings(action="ignore"):  # Python warns of old versions.
        context.minimum_version = context.maximum_version = version
    context.set_ciphers(ciphers)
    return context


def connected(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Returns the client's state after a handshake. Raises ssl.SSLError with the server's alert."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(3):
        for side in sides:
            with suppress(ssl.SSLWantReadError) if side is sides[0] else suppress(ssl.SSLError):
                side.do_handshake()
    return sides[0]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=lambda version: version.name)
def test_old_versions_are_refused(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A client of TLS 1.0 or 1.1 gets the alert protocol_version."""
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        connected(serving(tmp_path), client(version))


def test_ciphers_have_forward_secrecy_and_authenticate(tmp_path: Path) -> None:
    """All ciphers that a listener offers by default have forward secrecy and authenticated encryption."""
    ciphers = serving(tmp_path).get_ciphers()
    assert {cipher["protocol"] for cipher in ciphers} == {"TLSv1.2", "TLSv1.3"}
    assert all(cipher["aead"] for cipher in ciphers)
    assert {cipher["kea"] for cipher in ciphers} == {"kx-ecdhe", "kx-any"}


@pytest.mark.parametrize("ciphers", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "AES128-GCM-SHA256"])
def test_other_ciphers_are_refused_by_default(tmp_path: Path, ciphers: str) -> None:
    """A client that has only CBC, or no forward secrecy, gets an alert. The setting `ciphers` lets CBC in."""
    old = client(ssl.TLSVersion.TLSv1_2, f"{ciphers}:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match="ALERT_HANDSHAKE_FAILURE"):
        connected(serving(tmp_path / "default"), old)
    if ciphers.startswith("ECDHE"):
        name, *_ = connected(serving(tmp_path / "set", ciphers="ECDHE+AES"), old).cipher() or ("none",)
        assert name == ciphers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
def test_bytes_are_not_compressed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A listener compresses nothing, even if the client allows compression."""
    assert connected(serving(tmp_path), client(version)).compression() is None


@contextmanager
def listening(context: ssl.SSLContext) -> Iterator[int]:
    """Serves one connection: sends LAST after the client's first bytes, or at its end of stream. Yields the port."""

    def serve() -> None:
        accepted, _ = listener.accept()
        with suppress(OSError), context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(100)
            connection.sendall(LAST)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def s_client(context: ssl.SSLContext, *options: str, typed: str) -> str:
    """Returns what openssl prints about a connection to a server."""
    with listening(context) as port:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options]
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def test_renegotiation_is_refused(tmp_path: Path) -> None:
    """A client that asks for renegotiation gets an alert, and the connection goes no further.

    Since 3.0, OpenSSL refuses a client's renegotiation by default. The option refuses it in every version.
    """
    context = serving(tmp_path)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    output = s_client(context, "-tls1_2", typed="R\n")
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output
    assert LAST.decode() not in output


def test_early_data_is_not_offered(tmp_path: Path) -> None:
    """The sessions of TLS 1.3 allow no early data, because an attacker could replay it."""
    output = s_client(serving(tmp_path), "-tls1_3", "-ign_eof", typed="a\n")
    assert "Max Early Data: 0" in output
