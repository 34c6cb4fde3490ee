"""Tries the connections to the broker: those of each listener, and the sidecar's own."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerError, BrokerRefused, BrokerUnreachable
from group_sidecar.proxy.broker.group_queries import brokers
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.broker.own_credentials import OwnCredentials, setting_hint, tls_from
from group_sidecar.proxy.broker.port_protocol import PortProtocol, mismatch, protocol_of
from group_sidecar.proxy.broker.topic_log_queries import FetchPosition, fetch, leaders
from group_sidecar.proxy.checks.findings import listener_key
from group_sidecar.proxy.config.listener_sections import Listener
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.own_connection import Tls
from group_sidecar.proxy.runtime.addresses import Address

ATTEMPT_SECONDS = 10.0
"""The maximum number of seconds of a whole attempt."""
STEP_SECONDS = 5.0
"""The maximum number of seconds for each of the connection, the TLS handshake and each reply."""
_PASSES_UNREAD = "clients have to speak TLS too, and their connections pass unread"


class Result(NamedTuple):
    """The result of one attempt.

    Attributes:
        key: the path of the key that the attempt is about.
        text: one line for people.
        succeeded: whether the broker gave the answer that the sidecar needs.
    """

    key: str
    text: str
    succeeded: bool

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One connection to try.

    Attributes:
        key: the path of the setting that the result names, for instance `upstream` or `own_connection`.
        address: the broker's address.
        tls_key: the path of the section that switches TLS on.
        uses_tls: whether TLS is on.
        passes_tls: whether TLS of clients passes through the sidecar to the broker.
        connection: opens the connection.
        question: sends a request on the connection, if necessary, and returns the end of the result's text.
    """

    key: str
    address: Address
    tls_key: str
    uses_tls: bool
    connection: AbstractAsyncContextManager[KafkaClient]
    question: Callable[[KafkaClient], Awaitable[str]]
    passes_tls: bool = False


async def try_connections(config: Config) -> list[Result]:
    """Tries all connections at the same time. Returns the results in the order of the settings."""
    attempts = [
        attempt
        for index, listener in enumerate(config.client_listeners)
        for attempt in _to_listener(config, f"{listener_key(index, listener)}." if config.listeners else "", listener)
    ]
    attempts.append(_own(config))
    results: dict[int, Result] = {}

    async def run(number: int, attempt: _Attempt) -> None:
        results[number] = await _tried(attempt)

    async with trio.open_nursery() as nursery:
        for number, attempt in enumerate(attempts):
            nursery.start_soon(run, number, attempt)
    return [results[number] for number in range(len(attempts))]


def _to_listener(config: Config, prefix: str, listener: Listener) -> Iterator[_Attempt]:
    """Yields the attempt to connect to the broker as for clients of a listener, and one for each certificate in
    `upstream_tls.identities`.

    These attempts do not authenticate, because the sidecar does not have the clients' credentials.

    `config`: all settings. `prefix`: precedes the keys of the listener; empty for the keys `listen` and `upstream`.
    """
    tls_key = f"{prefix}upstream_tls"
    tls = listener.upstream_tls
    passes_tls = tls is None and listener.tls is None and config.mode == "sidecar"  # A gateway closes TLS connections.

    def attempt(key: str, tls: Tls | None, section: str) -> _Attempt:
        secure = tls_from(tls, section, STEP_SECONDS) if tls else None
        connection = connect(*listener.upstream, timeout=STEP_SECONDS, secure=secure)
        return _Attempt(key, listener.upstream, tls_key, tls is not None, connection, _ask_nothing, passes_tls)

    yield attempt(f"{prefix}upstream", tls, tls_key)
    if tls is None:
        return
    for index, identity in enumerate(tls.identities):
        section = f"{tls_key}.identities.{index}"
        yield attempt(section, tls.with_certificate_of(identity), section)


def _own(config: Config) -> _Attempt:
    """Returns the attempt to connect with the sidecar's own credentials, and to read the log if `offsets_log.read`.

    For OAUTHBEARER, the attempt gets a token from its file or endpoint.
    """
    own = config.own_connection_in_force
    address = own.address or config.broker_address
    question = _ask_for_log if config.offsets_log.read else _ask_for_metadata
    connection = OwnCredentials(own).connect(address, STEP_SECONDS)
    has_tls_of_listener = own.tls is not None and config.own_connection.tls is None
    first = listener_key(0, config.client_listeners[0])
    tls_key = f"{first}.upstream_tls" if has_tls_of_listener else "own_connection.tls"
    return _Attempt("own_connection", address, tls_key, own.tls is not None, connection, question)


async def _tried(attempt: _Attempt) -> Result:
    key, address = attempt.key, attempt.address
    reason = f"{address} did not answer within {ATTEMPT_SECONDS:g} s"
    with trio.move_on_after(ATTEMPT_SECONDS):
        try:
            async with attempt.connection as client:
                return Result(key, f"{address} answers ({_spoken(client)}){await attempt.question(client)}", True)
        except _Denied as denied:
            return Result(key, f"{address} answers, and {denied}", False)
        except (BrokerError, DecodeError) as error:
            reason = _reason(error, address)
            if not isinstance(error, BrokerUnreachable | AuthenticationFailed | BrokerRefused):
                spoken = await protocol_of(address)
                if spoken is PortProtocol.TLS and attempt.passes_tls:
                    return Result(key, f"{address} speaks TLS: {_PASSES_UNREAD}", True)
                setting = f"{attempt.tls_key} is {'set' if attempt.uses_tls else 'not set'}"
                if text := mismatch(spoken, setting, uses_tls=attempt.uses_tls):
                    reason = f"{address} {text}"
    return Result(key, reason, False)


def _spoken(client: KafkaClient) -> str:
    if ApiVersionsRequest.KEY not in client.versions:
        return "Kafka 0.9"
    lowest, highest = client.versions[ApiVersionsRequest.KEY]
    return f"Kafka ApiVersions {lowest}-{highest}"


class _Denied(Exception):
    """The broker denies a right. The text is one clause."""


async def _ask_nothing(_: KafkaClient) -> str:
    """Sends nothing: the connection has already asked for ApiVersions. Before authentication, a broker answers nothing
    else but SASL requests.
    """
    return ""


async def _ask_for_metadata(client: KafkaClient) -> str:
    """Sends a request that a broker answers only after authentication."""
    await brokers(client)
    return ""


async def _ask_for_log(client: KafkaClient) -> str:
    """Checks the rights to describe and to read the log of the coordinator."""
    try:
        found = await leaders(client, OFFSETS_TOPIC)
    except BrokerRefused as error:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise _Denied(f"the sidecar's user lacks DESCRIBE and READ on {OFFSETS_TOPIC}") from None
        raise
    if not found.epochs:
        return f"; {OFFSETS_TOPIC} does not exist yet"
    partition, epoch = next(iter(found.epochs.items()))
    # A broker checks the right first, so other errors such as NOT_LEADER_OR_FOLLOWER do not matter.
    position = FetchPosition(partition, epoch, 0)
    fetched = await fetch(client, OFFSETS_TOPIC, [position], size=1, wait=0)
    if any(each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in fetched):
        raise _Denied(f"the sidecar's user lacks READ on {OFFSETS_TOPIC}")
    return f", and the sidecar may read {OFFSETS_TOPIC}"


def _reason(error: BrokerError | DecodeError, address: Address) -> str:
    setting = setting_hint(error).get("setting")
    text = f"{error} ({setting})" if setting else str(error)
    return text if str(address) in text else f"{address}: {text}"
