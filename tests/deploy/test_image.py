"""The image of the sidecar, built from the Dockerfile, and run in front of a real broker with a read-only root."""

import errno
import re
import secrets
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.as_python import ROOT
from tests.conformance.librdkafka import consumer, create_topic, poll_until, produce
from tests.conformance.routes import Route, Run
from tests.deploy.images import Container, build, inspected, root_of, unavailable
from tests.kafka.broker import KafkaBroker
from tests.kafka.json_lines import json_lines
from tests.kafka.sidecar_process import SidecarProcess

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SITE_PACKAGES = "opt/group-sidecar/lib/python3.11/site-packages"
MOST_MEGABYTES = 110
"""The maximum size of what the Dockerfile adds to the base image. By hand: 79 MB."""
LESS_OPTIMIZED = {"OPTIMIZE": "1"}
"""The build argument that saves time of the C compiler. The modules do the same at every level."""
_READ_ONLY = f"[Errno {errno.EROFS}]"

pytestmark = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.timeout(1800),  # The first build on a machine downloads Debian packages and Python packages.
]


@pytest.fixture(scope="module")
def image() -> str:
    """The image of the target `sidecar`."""
    return build("sidecar", LESS_OPTIMIZED)


@pytest.fixture(scope="module")
def root(image: str) -> Iterator[Path]:
    """The files of the image."""
    with root_of(image) as root:
        yield root


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture
def container(image: str, root: Path, tmp_path: Path) -> Container:
    """A container with the image's own command, which reads its settings from the folder `etc`."""
    return Container(tmp_path / "bundle", image, root, settings=tmp_path / "etc", data=tmp_path / "data")


@pytest.fixture
def sidecar(container: Container, broker: KafkaBroker, tmp_path: Path) -> Iterator[SidecarProcess]:
    """A sidecar in the container, which is ready."""
    settings: dict[str, Any] = {"journal": {"folder": "/var/lib/group-sidecar/journal", "interval_seconds": 1}}
    started = SidecarProcess(tmp_path / "etc", listen=broker.sidecar, upstream=broker.client, settings=settings)
    started.process.command = container.run
    with started:
        yield started


def test_group_through_image(
    sidecar: SidecarProcess, container: Container, broker: KafkaBroker, tmp_path: Path
) -> None:
    """A client produces and consumes in a group. The sidecar drains at SIGTERM, and ends with status 0.

    The process has the image's user and no capability, and can write to the folder of its data alone.
    """
    run = Run(Route("sidecar", broker.sidecar, broker.sasl_sidecar), f"t{secrets.token_hex(5)}")
    create_topic(run, "topic", 2)
    produce(run, "topic", ["one", "two", "three"])
    with consumer(run, "group", ["topic"]) as client:
        seen = poll_until([client], lambda messages: len(messages) == 3, "the three records")
        client.commit(asynchronous=False)
        assert sidecar.group_json("group", run.name("group"))["state"] == "Stable"
        status = Path(f"/proc/{container.process_id}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        for place in ("/opt/group-sidecar", "/tmp", "/etc/group-sidecar"):
            written = container.execute("python", "-c", f"open('{place}/file', 'w')")
            assert _READ_ONLY in written.stderr, place
        health = inspected_health(container)
        assert (health.returncode, health.stdout) == (0, f"127.0.0.1:{sidecar.admin[1]}: live\n"), health.stderr
        assert sidecar.stop() == 0
    assert sorted(message.value() or b"" for message in seen) == [b"one", b"three", b"two"]
    lines = json_lines(sidecar.process.log)
    [started] = [line for line in lines if line["event"] == "started"]
    assert started["small_frames"].startswith("compiled")
    assert lines[-1]["event"] == "stopped"
    assert [line for line in lines if line["event"] == "modules are not compiled"] == []
    assert [*(tmp_path / "data" / "journal").iterdir()]


def inspected_health(container: Container) -> subprocess.CompletedProcess[str]:
    """Runs the command of the image's HEALTHCHECK in a running container."""
    kind, *command = inspected(container.image)["Healthcheck"]["Test"]
    assert kind == "CMD"
    return container.execute(*command)


def test_health_check_without_sidecar(image: str, root: Path, tmp_path: Path) -> None:
    """Where no sidecar runs, the command of the image's HEALTHCHECK ends with status 1 and the reason."""
    places = {"listen": "127.0.0.1:1", "upstream": "127.0.0.1:2", "admin": "127.0.0.1:3"}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "sidecar.yaml").write_text(yaml.safe_dump(places))
    _, *check = inspected(image)["Healthcheck"]["Test"]
    done = finished(image, root, tmp_path, entrypoint=check, command=[])
    assert (done.returncode, done.stderr) == (1, "group-sidecar: 127.0.0.1:3: connection refused\n")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (None, "group-sidecar: /etc/group-sidecar/sidecar.yaml: no such file or directory"),
        ("listen: 127.0.0.1:1", "group-sidecar: /etc/group-sidecar/sidecar.yaml: upstream: is required"),
    ],
)
def test_unusable_settings(image: str, root: Path, tmp_path: Path, settings: str | None, line: str) -> None:
    """Without settings, or with wrong ones, the container ends with status 2 and the reason."""
    (tmp_path / "etc").mkdir()
    if settings is not None:
        (tmp_path / "etc" / "sidecar.yaml").write_text(settings)
    done = finished(image, root, tmp_path)
    assert (done.returncode, done.stderr.splitlines()[:1]) == (2, [line])


def finished(image: str, root: Path, folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a container until it ends by itself."""
    container = Container(folder / "bundle", image, root, settings=folder / "etc", data=folder / "data", **options)
    return subprocess.run(container.run, capture_output=True, text=True, check=False, timeout=120)


def test_all_modules_are_compiled(root: Path) -> None:
    """The image has a compiled library for each module that is to be compiled."""
    sources = [*PROJECT["tool"]["group-sidecar"]["compiled"]]
    sources += [str(each.relative_to(ROOT)) for each in ROOT.glob("proxy/**/*.pyx")]
    package = root / SITE_PACKAGES / "group_sidecar"
    assert len(sources) > 60
    assert [each for each in sources if not [*package.glob(f"{each.rpartition('.')[0]}.cpython-*.so")]] == []


def test_no_compiler_and_no_pip(root: Path) -> None:
    """The image has neither a C compiler, nor pip for any of its Pythons, nor what could install pip."""
    programs = {
        each.name
        for folder in ("usr/bin", "usr/local/bin", "opt/group-sidecar/bin")
        for each in (root / folder).iterdir()
    }
    assert "python3" in programs
    assert [
        each for each in programs if re.fullmatch(r"(.*-)?(gcc|cc|c\+\+|g\+\+|ld|as)(-[0-9]+)?|pip[0-9.]*", each)
    ] == []
    libraries = [
        each
        for folder in ("usr/lib", "usr/local/lib", "opt/group-sidecar/lib")
        for each in (root / folder).glob("python3*")
    ]
    assert libraries
    assert [
        found for each in libraries for name in ("pip", "setuptools", "ensurepip") for found in each.rglob(name)
    ] == []


def test_labels_and_user(image: str) -> None:
    """The labels describe this version of the project. The user is a number, and SIGTERM ends the sidecar."""
    config = inspected(image)
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    project = PROJECT["project"]
    assert {name: labels[name] for name in ("title", "version", "licenses")} == {
        "title": project["name"],
        "version": project["version"],
        "licenses": project["license"],
    }
    assert project["description"].startswith(labels["description"])
    assert {"source", "revision"} <= labels.keys()
    assert (config["User"], config["StopSignal"]) == ("10001:10001", "SIGTERM")


def test_size(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the Dockerfile adds to the base image is not larger than the limit."""
    added = sum(each.lstat().st_size for each in (root / "opt").rglob("*")) / 1e6
    whole = int(subprocess.run(["du", "-sxk", str(root)], capture_output=True, text=True, check=True).stdout.split()[0])
    with capsys.disabled():
        print(f"\nimage: {added:.0f} MB beside the base image, {whole / 1e3:.0f} MB in all")  # noqa: T201
    assert added < MOST_MEGABYTES
