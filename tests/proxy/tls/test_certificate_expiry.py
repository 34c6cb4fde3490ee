"""When the certificates of the admin port and of the sidecar's own connection expire."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.tls.certificate_expiry import OwnCertificates
from tests.certificates import Authority

BASE = {"sidecar_id": "a", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1", "admin": "127.0.0.1:0"}
IN_2095, IN_2096 = (datetime(year, 1, 1, tzinfo=UTC) for year in (2095, 2096))


def certificates(**settings: Any) -> OwnCertificates:
    return OwnCertificates(Config.model_validate({**BASE, **settings}))


def test_both_certificates_are_read(tmp_path: Path) -> None:
    """The admin port and the own connection have one date each. Without certificates there is none."""
    authority = Authority(tmp_path)
    admin, own = (authority.issue("a.example", expires=at).settings for at in (IN_2095, IN_2096))
    both = certificates(admin_access=admin, own_connection={"tls": own})
    assert both.expire_at() == {"admin_access": IN_2095.timestamp(), "own_connection": IN_2096.timestamp()}
    assert certificates(own_connection={"tls": {}}).expire_at() == {}


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    """A new file counts although no connection was made. An unusable file leaves the last date."""
    authority, file = Authority(tmp_path), tmp_path / "both.pem"
    authority.issue("a.example", expires=IN_2095).write_together(file)
    own = certificates(own_connection={"tls": {"certificate_file": str(file)}})
    authority.issue("a.example", expires=IN_2096).write_together(file)
    for _ in range(2):
        assert own.expire_at() == {"own_connection": IN_2096.timestamp()}
        file.write_text("half a file")
    file.unlink()
    assert own.expire_at() == {"own_connection": IN_2096.timestamp()}


def test_file_that_appears_later(tmp_path: Path) -> None:
    """A file that is missing at the start has no date until it exists."""
    file = tmp_path / "both.pem"
    own = certificates(own_connection={"tls": {"certificate_file": str(file)}})
    assert own.expire_at() == {}
    Authority(tmp_path).issue("a.example", expires=IN_2095).write_together(file)
    assert own.expire_at() == {"own_connection": IN_2095.timestamp()}
