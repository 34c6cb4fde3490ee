"""A broker whose SASL listeners enable every mechanism except GSSAPI, and a sidecar in front of one of them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Route, Routes, Run
from tests.kafka.broker import SASL_PASSWORD, SASL_USER, KafkaBroker
from tests.kafka.releases import NEWEST
from tests.kafka.sasl import Exchange, bearer, plain, scram_sha_256, scram_sha_512, send_framed, unsecured_token
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

OTHER_USER, OTHER_PASSWORD = "bob", "bob-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 5000
"""The session lifetime of clients that authenticate by PLAIN or SCRAM-SHA-256 (KIP-368)."""

_PASSWORDS = {SASL_USER: SASL_PASSWORD, OTHER_USER: OTHER_PASSWORD}
_BEARER_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_UNSECURED = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecured"


@dataclass(frozen=True)
class SaslForms:
    """A broker, a sidecar in front of it, and the routes to both."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    routes: Routes


def bearer_properties(listener: str) -> dict[str, str]:
    """Returns the properties of a listener that takes unsecured tokens by OAUTHBEARER."""
    prefix = f"listener.name.{listener}.oauthbearer"
    return {
        f"{prefix}.sasl.jaas.config": f'{_BEARER_LOGIN} required unsecuredLoginStringClaim_sub="broker";',
        f"{prefix}.sasl.login.callback.handler.class": f"{_UNSECURED}LoginCallbackHandler",
        f"{prefix}.sasl.server.callback.handler.class": f"{_UNSECURED}ValidatorCallbackHandler",
    }


def _properties() -> dict[str, str]:
    login = "org.apache.kafka.common.security"
    users = " ".join(f'user_{user}="{password}"' for user, password in _PASSWORDS.items())
    properties = {"delegation.token.secret.key": "any secret of the cluster"}
    for listener in ("sasl_client", "sasl_direct"):
        prefix = f"listener.name.{listener}"
        properties |= bearer_properties(listener)
        properties |= {
            f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{prefix}.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required {users};",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
            f"{prefix}.plain.connections.max.reauth.ms": str(SESSION_MS),
            f"{prefix}.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
        }
    return properties


@contextmanager
def running_sasl_forms(folder: Path, version: str = NEWEST) -> Iterator[SaslForms]:
    """Starts the broker, and a sidecar that authenticates by OAUTHBEARER with a token from a file."""
    token_file = folder / "token"
    token_file.write_text(unsecured_token("sidecar"))
    settings: dict[str, Any] = {
        "own_connection": {"sasl": {"mechanism": "OAUTHBEARER", "token_file": str(token_file)}},
        "answers": {"exclusive": True, "verify": 0},
    }
    with KafkaBroker(folder / "broker", version=version, properties=_properties(), sasl=True) as broker:
        broker.wait_for_coordinator()
        with SidecarProcess(
            folder, listen=broker.sasl_sidecar, upstream=broker.sasl_client, settings=settings
        ) as sidecar:
            sidecar.wait_for_log()
            # Topics are created on the listener without SASL, which has no sidecar.
            direct = Route("direct", broker.direct, broker.sasl_direct)
            yield SaslForms(broker, sidecar, Routes(direct, Route("sidecar", broker.direct, broker.sasl_sidecar)))


def credentials(mechanism: str, user: str = SASL_USER) -> Exchange:
    """Returns the exchange of a user's credentials by a mechanism."""
    if mechanism == "OAUTHBEARER":
        return bearer(unsecured_token(user))
    by_name = {"PLAIN": plain, "SCRAM-SHA-256": scram_sha_256, "SCRAM-SHA-512": scram_sha_512}
    return by_name[mechanism](user, _PASSWORDS[user])


def log_in(wire: Wire, mechanism: str = "PLAIN", user: str = SASL_USER) -> None:
    """Authenticates a connection, for the first time or again."""
    reply = wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert reply.error_code == 0, reply
    send_framed(wire, credentials(mechanism, user))


def new_run(sasl_forms: SaslForms) -> Run:
    """Returns a run through the sidecar with names of its own."""
    return Run(sasl_forms.routes.through, f"t{secrets.token_hex(5)}")


def known_group(sasl_forms: SaslForms) -> DescribeGroupsRequest:
    """Commits an offset of a new group through the sidecar. Returns a question about the group.

    First waits until the sidecar answers the question itself. On a busy machine, this may take longer than a session.
    """
    question = DescribeGroupsRequest(groups=(commit_offset(new_run(sasl_forms)),))

    def answered() -> bool:
        with suppress(ConnectionError), Wire(sasl_forms.broker.sasl_sidecar) as wire:
            log_in(wire)
            return any(answered_here(sasl_forms, wire, question) for _ in range(3))
        return False

    sasl_forms.sidecar.process.wait_until(answered)
    return question


def commit_offset(run: Run) -> str:
    """Commits an offset of the run's group for a new topic. Returns the id of the group."""
    topic = OffsetCommitRequestTopic(
        name=create_topic(run, "topic"),
        partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=""),),
    )
    with Wire(run.route.sasl) as wire:
        log_in(wire)
        reply = wire.ask(OffsetCommitRequest(group_id=run.name("group"), topics=(topic,)), 7)
    assert reply.topics[0].partitions[0].error_code == 0
    return run.name("group")


def answers(sasl_forms: SaslForms) -> float:
    """Returns how many DescribeGroups requests the sidecar has answered itself."""
    return sasl_forms.sidecar.metric("group_sidecar_mirror_answers_total", api="DescribeGroups")


def answered_here(sasl_forms: SaslForms, wire: Wire, question: DescribeGroupsRequest) -> bool:
    """Asks on a connection. Returns whether the sidecar answered."""
    before = answers(sasl_forms)
    assert [group.error_code for group in wire.ask(question, 5).groups] == [0]
    return answers(sasl_forms) > before


def wait_for_own_answer(sasl_forms: SaslForms, wire: Wire, question: DescribeGroupsRequest) -> None:
    """Asks until the sidecar answers."""
    sasl_forms.sidecar.process.wait_until(lambda: answered_here(sasl_forms, wire, question))
