"""`groups --bootstrap` with TLS and SASL, and at ports of other protocols. All ports are real."""

from functools import partial
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Addresses
from group_sidecar.proxy.sidecar_process import run_sidecar
from tests.certificates import Authority
from tests.proxy.broker.test_own_credentials import PASSWORD, USER, SaslBroker
from tests.proxy.commandline.client_files import PLAIN
from tests.proxy.commandline.groups_shell import Shell, failed, listed
from tests.proxy.real_ports import admin_port, in_thread, kafka_port, server_context
from tests.proxy.scripted_broker import ScriptedBroker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def properties(folder: Path, *lines: str) -> str:
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    return str(file)


def trusting(authority: Authority) -> tuple[str, ...]:
    return ("security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.file}")


def lister() -> ScriptedBroker:
    return ScriptedBroker({ListGroupsRequest: listed(("orders", "classic", "Stable", "consumer"))})


def test_tls(authority: Authority, tmp_path: Path) -> None:
    """The command connects by TLS to a broker with a trusted certificate."""
    with kafka_port(lister(), server_context(authority, "127.0.0.1")) as shell:
        result = shell.run("list", "--command-config", properties(tmp_path, *trusting(authority)))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "orders" in result.stdout


def test_client_certificate(authority: Authority, tmp_path: Path) -> None:
    """The command presents the certificate of the keystore."""
    own = authority.issue("ops.example")
    store = tmp_path / "keystore.pem"
    own.write_together(store)
    keystore = ("ssl.keystore.type=PEM", f"ssl.keystore.location={store}")
    file = properties(tmp_path, *trusting(authority), *keystore)
    with kafka_port(lister(), server_context(authority, "127.0.0.1", wants_certificate=True)) as shell:
        result = shell.run("list", "--command-config", file)
    assert (result.exit_code, result.stderr) == (0, "")


def test_host_name_is_checked(authority: Authority, tmp_path: Path) -> None:
    """A certificate for another host is refused, unless the algorithm of identification is empty."""
    lax = (*trusting(authority), "ssl.endpoint.identification.algorithm=")
    with kafka_port(lister(), server_context(authority, "other.example")) as shell:
        strict = shell.run("list", "--command-config", properties(tmp_path, *trusting(authority)))
        assert strict.exit_code == 2
        assert "its certificate is not trusted: IP address mismatch" in strict.stderr
        assert shell.run("list", "--command-config", properties(tmp_path, *lax)).exit_code == 0


def test_sasl_client_id_and_timeout(tmp_path: Path) -> None:
    """The command authenticates, under the client id of the file."""
    password = PASSWORD.replace("\\", "\\\\")
    jaas = f'sasl.jaas.config={PLAIN} required username="{USER}" password="{password}";'
    file = properties(tmp_path, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "client.id=ops", jaas)
    broker = SaslBroker()
    with kafka_port(broker) as shell:
        result = shell.run("list", "--command-config", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert broker.handshakes == 2  # One for each connection: the bootstrap connection and the node's.
    assert set(broker.clients) == {"ops"}


def test_sasl_at_a_broker_without_sasl(tmp_path: Path) -> None:
    """A broker that refuses SASL is reported with the property that asked for it."""
    jaas = f"sasl.jaas.config={PLAIN} required username=alice password=p;"
    file = properties(tmp_path, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", jaas)
    broker = ScriptedBroker({SaslHandshakeRequest: SaslHandshakeResponse(error_code=34, mechanisms=())})
    with kafka_port(broker) as shell:
        line = "does not support SASL, and security.protocol=SASL_PLAINTEXT is set"
        failed(shell.run("list", "--command-config", file), 1, f"{shell.addresses[0]} {line}")


HTTP = "speaks HTTP, not Kafka: it may be a sidecar's admin port, which --sidecar asks"


def test_admin_port_as_bootstrap() -> None:
    """An admin port as the bootstrap address is named as a port of HTTP."""
    with admin_port() as address:
        failed(Shell().run("list", bootstrap=address), 2, f"{address} {HTTP}")


def test_admin_port_as_bootstrap_with_tls(authority: Authority, tmp_path: Path) -> None:
    """An admin port is also named as a port of HTTP if the settings ask for TLS."""
    file = properties(tmp_path, *trusting(authority))
    with admin_port() as address:
        failed(Shell().run("list", "--command-config", file, bootstrap=address), 2, f"{address} {HTTP}")


def test_tls_port_without_tls_settings(authority: Authority) -> None:
    """A TLS port as the bootstrap address is named as such if there are no settings of TLS."""
    with kafka_port(lister(), server_context(authority, "127.0.0.1", wants_certificate=True)) as shell:
        line = "speaks TLS, and security.protocol is PLAINTEXT: see --command-config"
        failed(shell.run("list"), 2, f"{shell.addresses[0]} {line}")


def test_plain_port_with_tls_settings(authority: Authority, tmp_path: Path) -> None:
    """A plain port as the bootstrap address is named as such if the settings ask for TLS."""
    file = properties(tmp_path, *trusting(authority))
    with kafka_port(lister()) as shell:
        line = "does not speak TLS, and security.protocol is SSL"
        failed(shell.run("list", "--command-config", file), 2, f"{shell.addresses[0]} {line}")


def test_sidecar_without_broker_as_bootstrap() -> None:
    """A sidecar that cannot reach its broker is not called a broker that wants TLS."""

    async def start(nursery: trio.Nursery) -> Address:
        config = Config.model_validate({"sidecar_id": "a", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"})
        addresses: Addresses = await nursery.start(partial(run_sidecar, config))
        return addresses.listen

    with in_thread(start) as address:
        line = (
            f"{address} accepts connections and closes them without an answer: "
            "it may be a sidecar that cannot reach its broker, or a broker older than 0.9"
        )
        result = Shell().run("list", bootstrap=address)  # Its output contains the log of the sidecar in this process.
        assert (result.exit_code, result.stderr) == (2, f"group-sidecar: {line}\n")


def test_port_of_another_protocol_keeps_the_first_error() -> None:
    """A port that answers in none of the three protocols is reported with the error of the first attempt."""

    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example ESMTP\r\n")
        await stream.receive_some()

    async def start(nursery: trio.Nursery) -> Address:
        listeners = await nursery.start(partial(trio.serve_tcp, greet, 0, host="127.0.0.1"))
        return Address(*listeners[0].socket.getsockname())

    with in_thread(start) as address:
        result = Shell().run("list", bootstrap=address)
        assert result.exit_code == 1
        assert "ApiVersionsResponse: a frame of 842149920 bytes" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--bootstrap", "a:1", "--command-config", "absent"), "absent: no such file or directory"),
        (("--sidecar", "a:1", "--command-config", "absent"), "is for --bootstrap"),
    ],
)
def test_unusable_flag(arguments: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, and the flag beside --sidecar, end with status 2 and name the flag."""
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(groups_app, ["list", *arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert f"Invalid value for '--command-config': {line}" in result.stderr
