"""The brokers and sidecars that flags and environment variables name."""

import io
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import typer

from group_sidecar.proxy.commandline.client_properties import NO_PROPERTIES
from group_sidecar.proxy.commandline.target import QueryTarget, WrongUsage, addresses_in, admin_url, target_of
from group_sidecar.proxy.runtime.addresses import Address

NOTHING: dict[str, Any] = {
    "bootstrap": None,
    "sidecar": None,
    "all_sidecars": None,
    "token_file": None,
    "ca_file": None,
    "command_config": None,
    "timeout": 10.0,
}


def named(environ: dict[str, str] | None = None, standard_input: str = "", **flags: Any) -> QueryTarget:
    return target_of(NOTHING | flags, io.StringIO(standard_input), environ or {})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:9464", "http://127.0.0.1:9464"),
        (" broker-1:9464 ", "http://broker-1:9464"),
        ("[::1]:9464", "http://[::1]:9464"),
        ("http://broker-1:9464/", "http://broker-1:9464"),
        ("https://kafka.example/sidecars/1", "https://kafka.example/sidecars/1"),
    ],
)
def test_admin_port_by_address_or_url(text: str, url: str) -> None:
    """An admin port can be an address or a URL."""
    assert admin_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "broker-1",
        "broker-1:http",
        "::1:9464",
        "ftp://broker-1:1",
        "http://",
        "http://broker-1:99999",
        "http://broker-1:0",
        "http://me:secret@broker-1:9464",
        "http://broker-1/?group=g",
        "http://broker-1/#top",
        "http://broker 1/",
    ],
)
def test_invalid_admin_port_raises(text: str) -> None:
    """An invalid address or URL of an admin port raises ValueError."""
    with pytest.raises(ValueError):
        admin_url(text)


def test_address_file_is_parsed() -> None:
    """A file of addresses can have comments, empty lines and duplicates."""
    lines = "# the east\n\nbroker-1:9464  # first\n https://broker-2/\r\nbroker-1:9464\n"
    assert addresses_in(lines) == ("http://broker-1:9464", "https://broker-2")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [("a:1\n\nb\nc", "line 3: must be HOST:PORT, for instance"), ("# none\n", "has no addresses"), ("", "has no")],
)
def test_invalid_address_file_raises(lines: str, fault: str) -> None:
    """An invalid or empty file of addresses raises ValueError that names the line or the lack."""
    with pytest.raises(ValueError, match=fault):
        addresses_in(lines)


def test_bootstrap_flag_names_broker() -> None:
    """The flag --bootstrap names a broker."""
    assert named(bootstrap="b:9092", timeout=3.0) == QueryTarget(bootstrap=Address("b", 9092), timeout=3.0)


def test_sidecar_flag_can_repeat() -> None:
    """The flag --sidecar can be repeated, and duplicates count once."""
    assert named(sidecar=["a:1", "http://b:2", "a:1"]).sidecars == ("http://a:1", "http://b:2")


def test_all_sidecars_flag_reads_file(tmp_path: Path) -> None:
    """The flag --all-sidecars reads addresses from a file."""
    file = tmp_path / "fleet"
    file.write_text("a:1\nb:2\n")
    assert named(all_sidecars=str(file)).sidecars == ("http://a:1", "http://b:2")


def test_all_sidecars_flag_reads_stdin() -> None:
    """The flag --all-sidecars reads addresses from standard input."""
    assert named(all_sidecars="-", standard_input="a:1\n").sidecars == ("http://a:1",)


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({"GROUP_SIDECAR_BOOTSTRAP": "b:9092"}, QueryTarget(bootstrap=Address("b", 9092))),
        ({"GROUP_SIDECAR_ADMIN": "a:1 b:2"}, QueryTarget(sidecars=("http://a:1", "http://b:2"))),
        ({"GROUP_SIDECAR_ALL_SIDECARS": "-"}, QueryTarget(sidecars=("http://c:3",))),
        ({"GROUP_SIDECAR_ADMIN": "a:1", "GROUP_SIDECAR_TOKEN": "t"}, QueryTarget(sidecars=("http://a:1",), token="t")),
    ],
)
def test_environment_names_target(environ: dict[str, str], source: QueryTarget) -> None:
    """Environment variables can name the broker or the sidecars, and the token."""
    assert named(environ, standard_input="c:3") == source


def test_flag_overrides_environment() -> None:
    """A flag overrides an environment variable that names another target."""
    assert named({"GROUP_SIDECAR_ADMIN": "a:1"}, bootstrap="b:9092").bootstrap == Address("b", 9092)


def test_missing_target_raises() -> None:
    """Without a target, WrongUsage lists the flags that name one."""
    with pytest.raises(WrongUsage, match="Name a target: --bootstrap, --sidecar or --all-sidecars"):
        named()


@pytest.mark.parametrize(
    ("environ", "flags", "names"),
    [
        ({}, {"bootstrap": "b:1", "sidecar": ["a:1"]}, "--bootstrap, --sidecar"),
        ({}, {"sidecar": ["a:1"], "all_sidecars": "-"}, "--sidecar, --all-sidecars"),
        (
            {"GROUP_SIDECAR_BOOTSTRAP": "b:1", "GROUP_SIDECAR_ADMIN": "a:1"},
            {},
            "GROUP_SIDECAR_BOOTSTRAP, GROUP_SIDECAR_ADMIN",
        ),
    ],
)
def test_two_targets_raise(environ: dict[str, str], flags: dict[str, Any], names: str) -> None:
    """Two kinds of targets raise WrongUsage with both names."""
    with pytest.raises(WrongUsage, match=f"Name only one of {names}"):
        named(environ, **flags)


def test_token_file_overrides_environment(tmp_path: Path) -> None:
    """A token file overrides a token in the environment."""
    file = tmp_path / "token"
    file.write_text("from-file\n")
    environ = {"GROUP_SIDECAR_TOKEN": "from-environment"}
    assert named(environ, sidecar=["a:1"]).token == "from-environment"
    assert named(environ, sidecar=["a:1"], token_file=file).token == "from-file"
    assert named(environ | {"GROUP_SIDECAR_TOKEN_FILE": str(file)}, sidecar=["a:1"]).token == "from-file"


@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "ümlaut"])
def test_invalid_token_file_raises(tmp_path: Path, content: str) -> None:
    """A file without exactly one ASCII token is refused, and the error does not show its content."""
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(typer.BadParameter, match="has no token") as failed:
        named(sidecar=["a:1"], token_file=file)
    assert content not in str(failed.value) or not content.strip()


def test_missing_files_are_refused(tmp_path: Path) -> None:
    """Missing files of addresses, tokens or authorities are refused with their names."""
    absent = tmp_path / "absent"
    for flags in ({"all_sidecars": str(absent)}, {"sidecar": ["a:1"], "token_file": absent}):
        with pytest.raises(typer.BadParameter, match="absent: No such file"):
            named(**flags)
    with pytest.raises(typer.BadParameter, match="absent: No such file"):
        named(sidecar=["https://a"], ca_file=absent)


def test_ca_file_enables_verification(tmp_path: Path) -> None:
    """The file of authorities makes HTTPS verify certificates against exactly these authorities."""
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(file)
    tls = named(sidecar=["https://a"], ca_file=file).tls
    assert tls is not None
    assert (tls.verify_mode, len(tls.get_ca_certs())) == (ssl.CERT_REQUIRED, 1)


def test_invalid_ca_file_is_refused(tmp_path: Path) -> None:
    """A file without certificates is refused, and so is a file of authorities without an HTTPS target."""
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(typer.BadParameter, match="has no certificates"):
        named(sidecar=["https://a"], ca_file=file)
    with pytest.raises(typer.BadParameter, match="https://"):
        named(sidecar=["a:1"], ca_file=file)


def test_command_config_is_read(tmp_path: Path) -> None:
    """The file of --command-config belongs to a broker. The flag overrides the environment variable."""
    file, other = tmp_path / "client.properties", tmp_path / "other.properties"
    file.write_text("client.id=ops\nrequest.timeout.ms=2500")
    other.write_text("client.id=other")
    by_flag = named({"GROUP_SIDECAR_COMMAND_CONFIG": str(other)}, bootstrap="b:1", command_config=file, timeout=None)
    assert (by_flag.client.client_id, by_flag.timeout) == ("ops", 2.5)
    by_variable = named({"GROUP_SIDECAR_COMMAND_CONFIG": str(other)}, bootstrap="b:1", timeout=None)
    assert (by_variable.client.client_id, by_variable.timeout) == ("other", 10.0)
    assert named(bootstrap="b:1", command_config=file, timeout=1.0).timeout == 1.0
    assert named({"GROUP_SIDECAR_COMMAND_CONFIG": "absent"}, sidecar=["a:1"]).client == NO_PROPERTIES


def test_command_config_is_for_brokers(tmp_path: Path) -> None:
    """A file of --command-config that cannot be used, and one beside --sidecar, are wrong usage."""
    with pytest.raises(typer.BadParameter, match="absent: no such file or directory"):
        named(bootstrap="b:1", command_config=tmp_path / "absent")
    with pytest.raises(typer.BadParameter, match="is for --bootstrap"):
        named(sidecar=["a:1"], command_config=tmp_path / "absent")
