"""Whom flags and environment name."""

import io
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import typer

from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.commandline.source import Source, WrongUsage, addresses_in, admin_url, source_of

NOTHING: dict[str, Any] = {
    "bootstrap": None,
    "sidecar": None,
    "all_sidecars": None,
    "token_file": None,
    "ca_file": None,
    "timeout": 10.0,
}


def named(environ: dict[str, str] | None = None, standard_input: str = "", **flags: Any) -> Source:
    return source_of(NOTHING | flags, io.StringIO(standard_input), environ or {})


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
def test_an_admin_port_by_address_or_url(text: str, url: str) -> None:
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
def test_what_is_no_admin_port(text: str) -> None:
    with pytest.raises(ValueError):
        admin_url(text)


def test_a_file_of_addresses() -> None:
    lines = "# the east\n\nbroker-1:9464  # first\n https://broker-2/\r\nbroker-1:9464\n"
    assert addresses_in(lines) == ("http://broker-1:9464", "https://broker-2")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [("a:1\n\nb\nc", "line 3: must be HOST:PORT, for instance"), ("# none\n", "has no addresses"), ("", "has no")],
)
def test_a_wrong_file_of_addresses(lines: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        addresses_in(lines)


def test_a_broker_is_named() -> None:
    assert named(bootstrap="b:9092", timeout=3.0) == Source(bootstrap=Address("b", 9092), timeout=3.0)


def test_several_sidecars_are_named() -> None:
    assert named(sidecar=["a:1", "http://b:2", "a:1"]).sidecars == ("http://a:1", "http://b:2")


def test_sidecars_are_named_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet"
    file.write_text("a:1\nb:2\n")
    assert named(all_sidecars=str(file)).sidecars == ("http://a:1", "http://b:2")


def test_sidecars_are_named_on_standard_input() -> None:
    assert named(all_sidecars="-", standard_input="a:1\n").sidecars == ("http://a:1",)


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({"GROUP_SIDECAR_BOOTSTRAP": "b:9092"}, Source(bootstrap=Address("b", 9092))),
        ({"GROUP_SIDECAR_ADMIN": "a:1 b:2"}, Source(sidecars=("http://a:1", "http://b:2"))),
        ({"GROUP_SIDECAR_ALL_SIDECARS": "-"}, Source(sidecars=("http://c:3",))),
        ({"GROUP_SIDECAR_ADMIN": "a:1", "GROUP_SIDECAR_TOKEN": "t"}, Source(sidecars=("http://a:1",), token="t")),
    ],
)
def test_the_environment_names_somebody(environ: dict[str, str], source: Source) -> None:
    assert named(environ, standard_input="c:3") == source


def test_a_flag_goes_before_the_environment() -> None:
    assert named({"GROUP_SIDECAR_ADMIN": "a:1"}, bootstrap="b:9092").bootstrap == Address("b", 9092)


def test_nobody_is_named() -> None:
    with pytest.raises(WrongUsage, match="Say whom to ask: --bootstrap, --sidecar or --all-sidecars"):
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
def test_somebody_is_named_in_two_ways(environ: dict[str, str], flags: dict[str, Any], names: str) -> None:
    with pytest.raises(WrongUsage, match=f"Name only one of {names}"):
        named(environ, **flags)


def test_a_token_comes_from_a_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    environ = {"GROUP_SIDECAR_TOKEN": "from-environment"}
    assert named(environ, sidecar=["a:1"]).token == "from-environment"
    assert named(environ, sidecar=["a:1"], token_file=file).token == "from-file"
    assert named(environ | {"GROUP_SIDECAR_TOKEN_FILE": str(file)}, sidecar=["a:1"]).token == "from-file"


@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "ümlaut"])
def test_a_file_without_a_token(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(typer.BadParameter, match="has no token") as failed:
        named(sidecar=["a:1"], token_file=file)
    assert content not in str(failed.value) or not content.strip()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    for flags in ({"all_sidecars": str(absent)}, {"sidecar": ["a:1"], "token_file": absent}):
        with pytest.raises(typer.BadParameter, match="absent: No such file"):
            named(**flags)
    with pytest.raises(typer.BadParameter, match="absent: No such file"):
        named(sidecar=["https://a"], ca_file=absent)


def test_https_is_checked_against_the_authorities_given(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(file)
    tls = named(sidecar=["https://a"], ca_file=file).tls
    assert tls is not None
    assert (tls.verify_mode, len(tls.get_ca_certs())) == (ssl.CERT_REQUIRED, 1)


def test_authorities_that_are_none_or_of_no_use(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(typer.BadParameter, match="has no certificates"):
        named(sidecar=["https://a"], ca_file=file)
    with pytest.raises(typer.BadParameter, match="https://"):
        named(sidecar=["a:1"], ca_file=file)
