"""The certificates of the tests of one module."""

import pytest

from tests.certificates import Authority
from tests.proxy.listeners.tls_shell import HOST, Pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    authority = Authority(folder / "ca")
    server, client = authority.issue(HOST, "localhost"), authority.issue("client.example", common_name="alice")
    return Pki(authority, server, client, Authority(folder / "other"), folder)
