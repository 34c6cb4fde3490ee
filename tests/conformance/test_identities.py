"""TLS ends at the sidecar, and the broker's ACLs name the subjects of the clients' certificates.

The broker's listeners CLIENT and MUTUAL require certificates. Clients reach MUTUAL directly, and CLIENT through the
sidecar, which connects under the certificate of each client's identity.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic
from confluent_kafka.admin import ResourcePatternType as PatternType
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.tls.subject import subject_of
from tests.certificates import Authority, Certificate
from tests.conformance.authorized_broker import (
    GROUPS,
    RULES,
    TOPIC,
    TOPICS,
    Question,
    alike,
    become_stable,
    commit,
    done,
    joining,
)
from tests.conformance.test_authorizer import answers, questions
from tests.kafka.broker import KafkaBroker
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

USERS = {"alice": "Sales, East", "bob": 'a+b=c; "d" <#e>', "carol": " Büro ", "dave": "x", "stranger": "x"}
"""The users, with the units in their subjects."""
MAPPED = ("alice", "bob", "carol", "dave")
WRITER = "dave"
EVERYTHING = questions(GROUPS)


@dataclass
class Identified:
    """The broker and the sidecar, with the certificates of the users."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    authority: Authority
    certificates: dict[str, Certificate]
    expected: dict[tuple[str, str], Struct] = field(default_factory=dict)

    @property
    def mutual(self) -> Address:
        """The address of the broker's listener that clients reach directly."""
        return self.broker.more["MUTUAL"]

    def connect(self, at: Address, user: str) -> Wire:
        certificate = self.certificates[user]
        context = ssl.create_default_context(cafile=self.authority.file)
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
        return Wire(at, tls=context)

    def directly(self, user: str, question: Question) -> Struct:
        """Returns the broker's reply. The broker is asked each question only once, because no test changes its ACLs."""
        key = (user, repr(question))
        if key not in self.expected:
            with self.connect(self.mutual, user) as wire:
                self.expected[key] = alike(wire.ask(*question))
        return self.expected[key]

    def settings(self, at: Address, user: str) -> dict[str, Any]:
        """Returns the settings of a librdkafka client."""
        certificate = self.certificates[user]
        return {
            "bootstrap.servers": host_port(at),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.file),
            "ssl.certificate.location": str(certificate.certificate_file),
            "ssl.key.location": str(certificate.key_file),
        }


def subject(certificate: Certificate) -> str:
    [loaded, *_] = x509.load_pem_x509_certificates(certificate.certificate_file.read_bytes())
    return subject_of(loaded.public_bytes(Encoding.DER))


def rules(subjects: dict[str, str]) -> list[AclBinding]:
    """Returns the ACLs of the users. WRITER may also write to a topic."""
    write = (WRITER, AclPermissionType.ALLOW, AclOperation.WRITE, TOPIC, TOPICS[0])
    return [
        AclBinding(kind, name, PatternType.LITERAL, f"User:{subjects[user]}", "*", operation, permission)
        for user, permission, operation, kind, name in (*RULES, write)
        if user in subjects
    ]


def authorizing(server: Certificate, authority: Authority, folder: Path) -> dict[str, str]:
    """Returns broker properties for an authorizer. Clients without TLS, brokers and controllers are the super user."""
    keystore = folder / "broker.pem"
    keystore.write_bytes(server.java_keystore)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.security.protocol.map": "CLIENT:SSL,MUTUAL:SSL,DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DIRECT",
    }
    for name in ("client", "mutual"):
        prefix = f"listener.name.{name}.ssl"
        properties |= {f"{prefix}.client.auth": "required"}
        properties |= {f"{prefix}.keystore.type": "PEM", f"{prefix}.keystore.location": str(keystore)}
        properties |= {f"{prefix}.truststore.type": "PEM", f"{prefix}.truststore.location": str(authority.file)}
    return properties


def prepare(broker: KafkaBroker, subjects: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    done(admin.create_acls(rules(subjects)))
    done(admin.create_topics([NewTopic(topic, 2, 1) for topic in TOPICS]))
    broker.wait_for_coordinator()


@pytest.fixture(scope="module")
def identified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Identified]:
    """A broker whose groups have offsets of both topics. Group b has a member."""
    folder = tmp_path_factory.mktemp("identities")
    authority = Authority(folder / "ca")
    server = authority.issue("127.0.0.1")

    def issue_to_users() -> dict[str, Certificate]:
        return {user: authority.issue(f"{user}.example", common_name=user, unit=unit) for user, unit in USERS.items()}

    clients, upstream, own = issue_to_users(), issue_to_users(), authority.issue("x.example", common_name="nobody")
    subjects = {user: subject(certificate) for user, certificate in clients.items()}
    with ExitStack() as stack:
        properties = authorizing(server, authority, folder)
        broker = stack.enter_context(KafkaBroker(folder / "broker", properties=properties, more=("MUTUAL",)))
        prepare(broker, subjects)
        trusted = str(authority.file)
        identities = [{"subject": f"CN={user},.*", **upstream[user].settings} for user in MAPPED]
        listener = {
            "name": "SECURE",
            "listen": host_port(broker.sidecar),
            "upstream": host_port(broker.client),
            "tls": {**server.settings, "client_auth": "required", "client_ca_file": trusted},
            "upstream_tls": {"ca_file": trusted, **own.settings, "identities": identities},
        }
        settings = {
            "listeners": [listener],
            "own_connection": {"address": host_port(broker.direct)},
            "answers": {"exclusive": True, "rights_seconds": 300, "verify": 0},
            "policies": {"group_max_size": {"limit": 1}},
            "journal": {"folder": str(folder / "journal")},
        }
        sidecar = SidecarProcess(folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=settings)
        stack.enter_context(sidecar)
        identity = Identified(broker, sidecar, authority, clients)
        administrator = stack.enter_context(Wire(broker.direct))
        for group in GROUPS:
            commit(administrator, group)
        become_stable(stack.enter_context(identity.connect(broker.sidecar, WRITER)), "b")
        yield identity


@pytest.mark.parametrize("users", [tuple(USERS), tuple(reversed(USERS))], ids=["forward", "backward"])
def test_each_certificate_gets_the_brokers_answer(identified: Identified, users: tuple[str, ...]) -> None:
    """Each client gets the broker's answer for the subject of its certificate, in any order of clients and requests."""
    with ExitStack() as stack:
        wires = {user: stack.enter_context(identified.connect(identified.broker.sidecar, user)) for user in users}
        for _ in range(3):
            for question in EVERYTHING:
                for user, wire in wires.items():
                    reply, expected = alike(wire.ask(*question)), identified.directly(user, question)
                    assert reply == expected, f"{user} must get the broker's answer to {question}"
    assert answers(identified.sidecar, "OffsetFetch") > 0
    assert identified.sidecar.metric("group_sidecar_mirror_fallbacks_total", reason="unauthorized") > 0


def test_answers_depend_on_the_certificate(identified: Identified) -> None:
    """The broker itself gives the users different answers. Otherwise the other tests would prove nothing."""
    shown = {user: repr([identified.directly(user, question) for question in EVERYTHING]) for user in USERS}
    assert len(set(shown.values())) == len(USERS)


@pytest.mark.parametrize("user", ["alice", WRITER, "stranger"])
def test_writing_needs_the_clients_own_right(identified: Identified, user: str) -> None:
    """A client may write through the sidecar exactly if the ACLs allow its certificate's subject to write."""

    def written(at: Address) -> str:
        producer, errors = Producer({**identified.settings(at, user), "enable.idempotence": False}), list[str]()
        try:
            producer.produce(
                TOPICS[0], b"x", on_delivery=lambda error, _: errors.append(error.name() if error else "written")
            )
        except KafkaException as error:
            return str(error)
        assert producer.flush(GIVE_UP_SECONDS) == 0
        return errors[0]

    expected = "written" if user == WRITER else "TOPIC_AUTHORIZATION_FAILED"
    assert [written(identified.mutual), written(identified.broker.sidecar)] == [expected] * 2


def test_refused_client_is_reported_with_its_principal(identified: Identified) -> None:
    """A policy's refusal has the principal that the broker's ACLs name in the log, the JSON and the journal."""
    principal = f"User:{subject(identified.certificates[WRITER])}"
    with identified.connect(identified.broker.sidecar, WRITER) as wire:
        assert wire.ask(joining("b"), 3).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED_KIP_389
    sidecar = identified.sidecar
    event = json.loads(sidecar.get("/api/v1/timeline?group=b")[1])["timeline"][-1]
    assert (event["what"], event["principal"]) == ("client_refused", principal)
    assert principal in sidecar.process.log.read_text()
    journal = sidecar.file.parent.with_name("journal")

    def recorded() -> bool:
        lines = [line for file in journal.glob("*.jsonl") for line in json_lines(file)]
        return principal in [line["principal"] for line in lines if line["kind"] == "refusal"]

    sidecar.process.wait_until(recorded)
