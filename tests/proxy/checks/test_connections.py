"""`check-config --connect`: one line for each connection to the broker. All ports are real."""

import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from group_sidecar.proxy.checks import connections
from group_sidecar.proxy.checks.connections import try_connections
from group_sidecar.proxy.config.model import Config
from tests.certificates import Authority
from tests.proxy.broker.bearer_broker import TOKEN, BearerBroker
from tests.proxy.broker.test_own_credentials import PASSWORD, USER, SaslBroker
from tests.proxy.real_ports import admin_port, kafka_port, server_context
from tests.proxy.scripted_broker import HangUp, NoReply, ScriptedBroker

MAY_READ = f"and the sidecar may read {OFFSETS_TOPIC}"
SPOKEN = "(Kafka ApiVersions 0-5)"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STEP_SECONDS", 1.0)


def metadata(error: int = 0, partitions: int = 1) -> MetadataResponse:
    """Returns a reply about the topic of offsets, whose partitions have a leader."""
    found = tuple(
        MetadataResponsePartition(error_code=0, partition_index=index, leader_id=1, replica_nodes=(), isr_nodes=())
        for index in range(partitions)
    )
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1),),
        topics=(MetadataResponseTopic(error_code=error, name=OFFSETS_TOPIC, partitions=found),),
    )


def fetched(error: int) -> FetchResponse:
    data = PartitionData(partition_index=0, error_code=error, high_watermark=0, records=None)
    return FetchResponse(responses=(FetchableTopicResponse(topic=OFFSETS_TOPIC, partitions=(data,)),))


def broker(topic: Any = None, read: Any = None) -> ScriptedBroker:
    return ScriptedBroker({MetadataRequest: topic or metadata(), FetchRequest: read or fetched(0)})


def lines(**settings: Any) -> tuple[list[str], bool]:
    """Returns the line of each attempt, and whether all succeeded."""
    given = settings if "listeners" in settings else {"listen": "127.0.0.1:0", **settings}
    config = Config.model_validate({"sidecar_id": "a", **given})
    results = trio.run(try_connections, config)
    return [str(result) for result in results], all(result.succeeded for result in results)


def at(port: Any) -> str:
    return str(port.addresses[0])


def test_plain_broker() -> None:
    """The line of a listener has the versions, and that of the sidecar's own connection has the right to read."""
    with kafka_port(broker(), keep_metadata=True) as port:
        expected = [
            f"upstream: {at(port)} answers {SPOKEN}",
            f"own_connection: {at(port)} answers {SPOKEN}, {MAY_READ}",
        ]
        assert lines(upstream=at(port)) == (expected, True)


def test_each_listener_is_tried(authority: Authority) -> None:
    """Each listener is tried with its own TLS. The own connection uses the TLS of the first listener."""
    tls = {"ca_file": str(authority.file)}
    with (
        kafka_port(broker(), server_context(authority, "127.0.0.1"), keep_metadata=True) as secured,
        kafka_port(broker(), keep_metadata=True) as plain,
    ):
        listeners = [
            {"name": "A", "listen": "127.0.0.1:0", "upstream": at(secured), "upstream_tls": tls},
            {"name": "B", "listen": "127.0.0.1:0", "upstream": at(plain)},
        ]
        expected = [
            f"listeners.0 (A).upstream: {at(secured)} answers {SPOKEN}",
            f"listeners.1 (B).upstream: {at(plain)} answers {SPOKEN}",
            f"own_connection: {at(secured)} answers {SPOKEN}, {MAY_READ}",
        ]
        assert lines(listeners=listeners) == (expected, True)
        assert len(secured.brokers[0].streams) == 2


def test_each_identity_is_tried(authority: Authority, tmp_path: Path) -> None:
    """Each identity is tried with its certificate. A certificate that the broker does not trust fails."""
    own, trusted, other = authority.issue("own"), authority.issue("alice"), Authority(tmp_path).issue("bob")
    identities = [
        {"subject": "CN=alice", **trusted.settings},
        {"subject": "CN=bob", **other.settings},
    ]
    listener = {
        "name": "A",
        "listen": "127.0.0.1:0",
        "tls": {**own.settings, "client_auth": "required", "client_ca_file": str(authority.file)},
        "upstream_tls": {"ca_file": str(authority.file), **own.settings, "identities": identities},
    }
    context = server_context(authority, "127.0.0.1", wants_certificate=True)
    with kafka_port(broker(), context, keep_metadata=True) as port:
        found, succeeded = lines(listeners=[{**listener, "upstream": at(port)}])
        assert found[:2] == [
            f"listeners.0 (A).upstream: {at(port)} answers {SPOKEN}",
            f"listeners.0 (A).upstream_tls.identities.0: {at(port)} answers {SPOKEN}",
        ]
        assert found[2].startswith(f"listeners.0 (A).upstream_tls.identities.1: {at(port)} ")
        assert "answers" not in found[2]
        assert found[3] == f"own_connection: {at(port)} answers {SPOKEN}, {MAY_READ}"
        assert not succeeded


def test_unusable_file_of_a_listener(authority: Authority, tmp_path: Path) -> None:
    """A file of a listener's TLS that cannot be used is named with its key."""
    tls = {"ca_file": str(tmp_path / "absent")}
    listener = {"name": "A", "listen": "127.0.0.1:0", "upstream_tls": tls}
    with kafka_port(broker(), server_context(authority, "127.0.0.1")) as port:
        found, succeeded = lines(listeners=[{**listener, "upstream": at(port)}])
        text = f"upstream_tls.ca_file: {tmp_path / 'absent'} cannot be used: no such file or directory"
        assert found[0] == f"listeners.0 (A).upstream: {at(port)} cannot be reached by TLS: listeners.0 (A).{text}"
        assert not succeeded


def test_untrusted_certificate(authority: Authority, tmp_path: Path) -> None:
    """A certificate of another authority is the reason, and not the protocol."""
    tls = {"ca_file": str(Authority(tmp_path).file)}
    listener = {"name": "A", "listen": "127.0.0.1:0", "upstream_tls": tls}
    with kafka_port(broker(), server_context(authority, "127.0.0.1")) as port:
        found, succeeded = lines(listeners=[{**listener, "upstream": at(port)}])
        for line in found:
            assert "cannot be reached by TLS: its certificate is not trusted: " in line
        assert not succeeded


def test_port_of_another_protocol(authority: Authority) -> None:
    """A port of TLS, of plain Kafka or of HTTP where another one is expected is named, with the setting."""
    tls = {"ca_file": str(authority.file)}
    named = {"name": "A", "listen": "127.0.0.1:0"}
    with kafka_port(broker(), server_context(authority, "127.0.0.1")) as port:
        expected = [
            f"upstream: {at(port)} speaks TLS, and upstream_tls is not set",
            f"own_connection: {at(port)} speaks TLS, and own_connection.tls is not set",
        ]
        assert lines(upstream=at(port), mode="gateway") == (expected, False)
    with kafka_port(broker(), keep_metadata=True) as port:
        expected = [
            f"{key}: {at(port)} does not speak TLS, and listeners.0 (A).upstream_tls is set"
            for key in ("listeners.0 (A).upstream", "own_connection")
        ]
        assert lines(listeners=[{**named, "upstream": at(port), "upstream_tls": tls}]) == (expected, False)
    with admin_port() as address:
        expected = [f"{key}: {address} speaks HTTP, not Kafka" for key in ("upstream", "own_connection")]
        assert lines(upstream=str(address)) == (expected, False)


def test_tls_that_passes_through(authority: Authority) -> None:
    """A listener that passes the TLS of its clients through is no failure. One that ends their TLS is one."""
    own = {"tls": {"ca_file": str(authority.file)}}
    named = {"name": "A", "listen": "127.0.0.1:0"}
    with kafka_port(broker(), server_context(authority, "127.0.0.1"), keep_metadata=True) as port:
        found, succeeded = lines(upstream=at(port), own_connection=own)
        text = "clients have to speak TLS too, and their connections pass unread"
        assert (found[0], succeeded) == (f"upstream: {at(port)} speaks TLS: {text}", True)
        ending = {**named, "upstream": at(port), "tls": authority.issue("own").settings}
        found, succeeded = lines(listeners=[ending], own_connection=own)
        text = "speaks TLS, and listeners.0 (A).upstream_tls is not set"
        assert (found[0], succeeded) == (f"listeners.0 (A).upstream: {at(port)} {text}", False)


def test_unreachable_broker() -> None:
    """A port without a listener is reported for each connection."""
    expected = [f"{key}: 127.0.0.1:1 cannot be reached: Connection refused" for key in ("upstream", "own_connection")]
    assert lines(upstream="127.0.0.1:1") == (expected, False)


def test_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that accepts connections and stays silent is reported after the time of a step or of an attempt."""
    with kafka_port(ScriptedBroker({ApiVersionsRequest: NoReply()})) as port:
        found, succeeded = lines(upstream=at(port))
        assert (found[0], succeeded) == (f"upstream: {at(port)} did not answer ApiVersions within 1 s", False)
        monkeypatch.setattr(connections, "STEP_SECONDS", 600.0)
        monkeypatch.setattr(connections, "ATTEMPT_SECONDS", 0.2)
        expected = [f"{key}: {at(port)} did not answer within 0.2 s" for key in ("upstream", "own_connection")]
        assert lines(upstream=at(port)) == (expected, False)


@pytest.mark.parametrize(
    ("topic", "read", "text"),
    [
        (metadata(29, 0), None, f"the sidecar's user lacks DESCRIBE and READ on {OFFSETS_TOPIC}"),
        (None, fetched(29), f"the sidecar's user lacks READ on {OFFSETS_TOPIC}"),
    ],
)
def test_missing_right(topic: Any, read: Any, text: str) -> None:
    """A missing right to read the log is the result of the own connection. The listener is not affected."""
    with kafka_port(broker(topic, read), keep_metadata=True) as port:
        expected = [f"upstream: {at(port)} answers {SPOKEN}", f"own_connection: {at(port)} answers, and {text}"]
        assert lines(upstream=at(port)) == (expected, False)
        assert lines(upstream=at(port), offsets_log={"read": False})[1]


def test_log_that_does_not_exist_or_is_led_elsewhere() -> None:
    """A missing topic, and a partition that another broker leads, are no failures."""
    with kafka_port(broker(metadata(3, 0)), keep_metadata=True) as port:
        found, succeeded = lines(upstream=at(port))
        assert (found[1], succeeded) == (
            f"own_connection: {at(port)} answers {SPOKEN}; {OFFSETS_TOPIC} does not exist yet",
            True,
        )
    with kafka_port(broker(None, fetched(6)), keep_metadata=True) as port:
        assert lines(upstream=at(port))[1]


def test_credentials() -> None:
    """The own connection authenticates. A wrong password and missing credentials are reported without secrets."""
    server = SaslBroker()
    answers = broker().answers
    server.answers |= {kind: answers[kind] for kind in (MetadataRequest, FetchRequest)}
    user = {"mechanism": "PLAIN", "username": USER, "password": PASSWORD}
    with kafka_port(server, keep_metadata=True) as port:
        found, succeeded = lines(upstream=at(port), own_connection={"sasl": user})
        assert succeeded, found
        wrong = {**user, "password": "not-the-password"}
        found, succeeded = lines(upstream=at(port), own_connection={"sasl": wrong})
        assert found[1].startswith(f"own_connection: {at(port)} refuses {USER}'s password by PLAIN: ")
        assert "not-the-password" not in str(found)
        assert not succeeded
        server.answers[MetadataRequest] = HangUp()
        found, succeeded = lines(upstream=at(port))
        text = "closed the connection at Metadata: it may require SASL (own_connection.sasl)"
        assert found[1] == f"own_connection: {at(port)} {text}"


def test_bearer_token(tmp_path: Path) -> None:
    """The own connection authenticates by OAUTHBEARER. A refused token and a file without one are reported."""
    server, file = BearerBroker(), tmp_path / "token"
    answers = broker().answers
    server.answers |= {kind: answers[kind] for kind in (MetadataRequest, FetchRequest)}
    own = {"sasl": {"mechanism": "OAUTHBEARER", "token_file": str(file)}}
    with kafka_port(server, keep_metadata=True) as port:
        for content, text in (
            (TOKEN, f"answers {SPOKEN}, {MAY_READ}"),
            ("another", f"refuses the token in {file} by OAUTHBEARER: invalid_token"),
            ("", f"is not sent a token: own_connection.sasl.token_file: {file} contains no bearer token (RFC 6750)"),
        ):
            file.write_text(content)
            found, succeeded = lines(upstream=at(port), own_connection=own)
            assert (found[1], succeeded) == (f"own_connection: {at(port)} {text}", content == TOKEN)


def test_silent_token_endpoint() -> None:
    """A token endpoint has the time of a step to answer."""
    with kafka_port(BearerBroker()) as port, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        endpoint = {"token_endpoint_url": url, "client_id": "sidecar", "client_secret": "secret"}
        found, succeeded = lines(upstream=at(port), own_connection={"sasl": {"mechanism": "OAUTHBEARER", **endpoint}})
        text = f"{at(port)} is not sent a token: {url} did not answer within 1 s"
        assert (found[1], succeeded) == (f"own_connection: {text}", False)


def test_own_address() -> None:
    """The own connection uses its own address."""
    with kafka_port(broker(), keep_metadata=True) as port:
        found, succeeded = lines(upstream="127.0.0.1:1", own_connection={"address": at(port)})
        assert found[1] == f"own_connection: {at(port)} answers {SPOKEN}, {MAY_READ}"
        assert not succeeded
