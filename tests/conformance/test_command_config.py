"""`groups --command-config` with a real broker that requires SASL and TLS, and the file's syntax as Kafka parses it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from group_sidecar.proxy.commandline.java_properties import parse_login_module, parse_properties
from tests.certificates import Authority
from tests.kafka.broker import SASL_PASSWORD, SASL_USER, KafkaBroker
from tests.kafka.java import java
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.releases import NEWEST
from tests.kafka.sidecar_process import COMMAND
from tests.kafka.tools import CONSUMER_GROUPS, kafka_tool
from tests.proxy.commandline.client_files import FILES, LOGINS, PLAIN, SCRAM, as_property

GROUP = "committed-by-kafkas-tool"


def test_files_as_kafka_reads_them(tmp_path: Path) -> None:
    """Kafka's own classes read the same values from the files of the unit tests, and refuse the same files."""
    contents = [case.content for case in FILES] + [as_property(case.text) for case in LOGINS]
    files = [tmp_path / f"{number}.properties" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    source = Path(__file__).with_name("ClientProperties.java")
    command = [*java(NEWEST), str(source), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=True)
    assert [_lines(content) for content in contents] == [
        sorted(block.splitlines()) for block in done.stdout.split("file\n")[1:]
    ]


def _lines(content: bytes) -> list[str]:
    """Returns the lines that ClientProperties.java would print for a file, sorted."""
    lines: list[str] = []
    try:
        found = parse_properties(content)
        lines += [f"property {_hex(key)} {_hex(value)}" for key, value in found.items()]
        if "sasl.jaas.config" in found:
            module = parse_login_module(found["sasl.jaas.config"])
            lines.append(f"module {_hex(module.name)}")
            lines += [f"option {_hex(key)} {_hex(value)}" for key, value in module.options.items()]
    except ValueError:
        lines.append("refused")
    return sorted(lines)


def _hex(text: str) -> str:
    return f"x{text.encode().hex()}"


class Secured(NamedTuple):
    """A broker whose listener SASL_DIRECT uses SASL and TLS. DIRECT uses neither."""

    broker: KafkaBroker
    ca_file: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("command-config")
    authority = Authority(folder / "ca")
    ca_file, keystore = authority.file, folder / "broker.pem"
    keystore.write_bytes(authority.issue("127.0.0.1").java_keystore)
    names = {"CLIENT": "PLAINTEXT", "DIRECT": "PLAINTEXT", "SASL_CLIENT": "SASL_PLAINTEXT", "SASL_DIRECT": "SASL_SSL"}
    properties = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{how}" for name, how in {**names, "CONTROLLER": "PLAINTEXT"}.items()
        ),
        "listener.name.sasl_direct.ssl.keystore.type": "PEM",
        "listener.name.sasl_direct.ssl.keystore.location": str(keystore),
    }
    with KafkaBroker(folder / "broker", properties=properties, sasl=True) as broker:
        broker.wait_for_coordinator()
        yield Secured(broker, ca_file)


def command_config(folder: Path, secured: Secured, mechanism: str = "PLAIN", password: str = SASL_PASSWORD) -> Path:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    file = folder / f"{mechanism}.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        "sasl.jaas.config=\\\n"
        f'    {module} required \\\n    username="{SASL_USER}" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.ca_file}\n"
    )
    return file


def groups(address: Address, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "groups", "list", "--bootstrap", host_port(address), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_same_file_serves_kafkas_tool(secured: Secured, tmp_path: Path, mechanism: str) -> None:
    """With the same properties file, Kafka's tool and the sidecar's command list the same groups by SASL and TLS."""
    file, address = command_config(tmp_path, secured, mechanism), secured.broker.sasl_direct
    shared = ("--bootstrap-server", host_port(address), "--command-config", str(file))
    change = ("--reset-offsets", "--group", GROUP, "--topic", "__consumer_offsets:0", "--to-offset", "0", "--execute")
    kafka_tool(CONSUMER_GROUPS, *shared, *change)
    listed = groups(address, "--command-config", str(file), "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [group["group"] for group in json.loads(listed.stdout)["groups"]] == [GROUP]
    assert kafka_tool(CONSUMER_GROUPS, *shared, "--list").split() == [GROUP]


def test_wrong_password_is_one_line(secured: Secured, tmp_path: Path) -> None:
    """With a wrong password, the command ends with status 1 and prints one line without the password."""
    file, address = command_config(tmp_path, secured, password="not-the-password"), secured.broker.sasl_direct
    refused = groups(address, "--command-config", str(file))
    assert (refused.returncode, refused.stdout) == (1, "")
    expected = f"group-sidecar: {host_port(address)} refuses {SASL_USER}'s password by PLAIN: "
    assert refused.stderr.startswith(f"{expected}SASL_AUTHENTICATION_FAILED (58)")
    assert len(refused.stderr.splitlines()) == 1
    assert "not-the-password" not in refused.stderr


def test_wrong_listener_is_named(secured: Secured, tmp_path: Path) -> None:
    """At a TLS listener without TLS settings, and at a plain listener with them, the command ends with status 2 and
    prints one line.
    """
    broker, file = secured.broker, command_config(tmp_path, secured)
    without = groups(broker.sasl_direct)
    assert (without.returncode, without.stderr) == (
        2,
        (
            f"group-sidecar: {host_port(broker.sasl_direct)} speaks TLS, and security.protocol is PLAINTEXT: "
            "see --command-config\n"
        ),
    )
    for plain in (broker.direct, broker.sasl_client):
        with_tls = groups(plain, "--command-config", str(file))
        assert (with_tls.returncode, with_tls.stderr) == (
            2,
            f"group-sidecar: {host_port(plain)} does not speak TLS, and security.protocol is SASL_SSL\n",
        )
