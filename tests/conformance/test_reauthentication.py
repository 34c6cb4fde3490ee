"""Clients authenticate again before their session ends (KIP-368). The sidecar's answers follow the session's user."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.librdkafka import QUICK_CONSUMER, create_topic, poll_until
from tests.conformance.routes import Run
from tests.conformance.sasl_forms_broker import (
    OTHER_USER,
    SESSION_MS,
    SaslForms,
    answered_here,
    answers,
    credentials,
    known_group,
    log_in,
    new_run,
    wait_for_own_answer,
)
from tests.conformance.test_sasl_forms import librdkafka_settings
from tests.kafka.broker import SASL_USER
from tests.kafka.sasl import next_token
from tests.kafka.wire import Wire

HANDSHAKES, OPENED = "group_sidecar_requests_total", "group_sidecar_client_connections_opened_total"


def authenticate_again(wire: Wire, mechanism: str, user: str) -> list[Any]:
    """Authenticates a session a second time. Returns the broker's errors, and whether the connection ended."""
    errors: list[Any] = [wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code]
    exchange = credentials(mechanism, user)
    token: bytes | None = next(exchange)
    try:
        while token is not None:
            reply = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            errors.append((reply.error_code, reply.error_message))
            if reply.error_code:
                return [*errors, wire.closed()]
            token = next_token(exchange, reply.auth_bytes)
        return [*errors, bool(wire.ask(ListGroupsRequest(), 0).error_code)]
    except ConnectionError:
        return [*errors, True]


TAKEN = (0, "")
REFUSED = (58, f"Cannot change principals during re-authentication from User.{SASL_USER}: User.{OTHER_USER}")


@pytest.mark.parametrize(
    ("first", "second", "user", "expected"),
    [
        ("PLAIN", "PLAIN", SASL_USER, [0, TAKEN, False]),
        ("SCRAM-SHA-256", "SCRAM-SHA-256", SASL_USER, [0, TAKEN, TAKEN, False]),
        ("OAUTHBEARER", "OAUTHBEARER", SASL_USER, [0, TAKEN, False]),
        ("PLAIN", "PLAIN", OTHER_USER, [0, REFUSED, True]),
        ("OAUTHBEARER", "OAUTHBEARER", OTHER_USER, [0, REFUSED, True]),
        ("PLAIN", "SCRAM-SHA-256", SASL_USER, [0, True]),
        ("OAUTHBEARER", "PLAIN", SASL_USER, [0, True]),
    ],
)
def test_second_authentication(sasl_forms: SaslForms, first: str, second: str, user: str, expected: list[Any]) -> None:
    """The client gets the broker's replies, which accept the same user again and refuse another user or mechanism."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            log_in(wire, first)
            return authenticate_again(wire, second, user)

    assert sasl_forms.routes.compare(scenario) == expected


def test_hasty_authentication_is_refused(sasl_forms: SaslForms) -> None:
    """If the broker refuses a third authentication within a second and keeps the session, the sidecar forwards the
    later questions of the connection.
    """

    def scenario(run: Run) -> Any:
        handshake = SaslHandshakeRequest(mechanism="PLAIN")
        token = SaslAuthenticateRequest(auth_bytes=next(credentials("PLAIN")))
        requests = [(handshake, 1), (token, 2)] * 2 + [(handshake, 1), (question, 5)]
        with Wire(run.route.sasl) as wire:
            sent = [wire.send_request(*request) for request in requests]
            replies = [wire.receive_reply(*request, number) for request, number in zip(requests, sent, strict=True)]
        return [reply.error_code for reply in replies[:-1]], replies[-1]

    question = known_group(sasl_forms)
    before = answers(sasl_forms)
    errors, described = sasl_forms.routes.compare(scenario)
    assert (errors, described.groups[0].error_code) == ([0, 0, 0, 0, 34], 0)
    assert answers(sasl_forms) == before


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_answers_continue_for_same_user(sasl_forms: SaslForms, mechanism: str) -> None:
    """The sidecar answers the user before and after the second authentication."""
    question = known_group(sasl_forms)
    with Wire(sasl_forms.broker.sasl_sidecar) as wire:
        log_in(wire, mechanism)
        wait_for_own_answer(sasl_forms, wire, question)
        log_in(wire, mechanism)
        if mechanism == "OAUTHBEARER":  # The token does not show the user, so the broker has to serve the user first.
            assert not answered_here(sasl_forms, wire, question)
        assert answered_here(sasl_forms, wire, question)


def test_refused_user_gets_no_answer(sasl_forms: SaslForms) -> None:
    """A question after the refused token of another user gets no answer, although the sidecar knows the answer."""
    question = known_group(sasl_forms)
    with Wire(sasl_forms.broker.sasl_sidecar) as wire:
        log_in(wire)
        wait_for_own_answer(sasl_forms, wire, question)
        before = answers(sasl_forms)
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = SaslAuthenticateRequest(auth_bytes=next(credentials("PLAIN", OTHER_USER)))
        sent = wire.send_request(token, 2)
        wire.send_request(question, 5)
        assert wire.receive_reply(token, 2, sent).error_code == 58
        assert wire.closed()
    assert answers(sasl_forms) == before


def test_expired_session_gets_no_answer(sasl_forms: SaslForms) -> None:
    """The sidecar answers until the session's lifetime has passed, and then the broker closes the connection."""
    question, answered = known_group(sasl_forms), 0
    with Wire(sasl_forms.broker.sasl_sidecar) as wire:
        log_in(wire)
        began = time.monotonic()
        try:
            while time.monotonic() < began + 10 * SESSION_MS / 1000:
                answered += answered_here(sasl_forms, wire, question)
            raise AssertionError("the broker did not close the connection when the session expired")
        except ConnectionError:
            assert time.monotonic() - began > 0.9 * SESSION_MS / 1000
    assert answered > 1


def test_librdkafka_authenticates_again(sasl_forms: SaslForms) -> None:
    """A librdkafka consumer authenticates again on its connections, and stays in its group."""
    run, rebalances = new_run(sasl_forms), list[str]()
    topic, sidecar = create_topic(run, "topic"), sasl_forms.sidecar
    client = Consumer({**librdkafka_settings(run, "PLAIN"), **QUICK_CONSUMER, "group.id": run.name("group")})

    def repeated() -> float:
        """Returns the number of handshakes that were not the first of their connection."""
        return sidecar.metric(HANDSHAKES, api="SaslHandshake") - sidecar.metric(OPENED)

    try:
        client.subscribe([topic], on_assign=lambda *_: rebalances.append("assigned"))
        poll_until([client], lambda _: bool(rebalances), "an assignment")
        assert sidecar.metric(OPENED) > 0
        before = repeated()
        poll_until([client], lambda _: repeated() >= before + 2, "two connections that authenticate again")
    finally:
        client.close()
    assert rebalances == ["assigned"]
