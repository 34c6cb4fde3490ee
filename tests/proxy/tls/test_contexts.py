"""The reasons why a TLS context cannot use its files."""

import ssl
from pathlib import Path

import pytest

from group_sidecar.proxy.tls.contexts import file_fault
from tests.certificates import Authority


@pytest.mark.parametrize("content", ["", "no PEM"])
def test_files_that_are_not_pem(tmp_path: Path, content: str) -> None:
    """A file without a certificate or a key in PEM is named as such. OpenSSL itself gives no reason."""
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
