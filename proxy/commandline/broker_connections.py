"""Connects to brokers with the properties of `--command-config`. Reports a port of another protocol."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerError, BrokerUnreachable
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID, KafkaClient, connect
from group_sidecar.proxy.broker.own_credentials import Login, tls_with
from group_sidecar.proxy.broker.port_protocol import PortProtocol, mismatch, protocol_of
from group_sidecar.proxy.commandline.client_properties import ClientProperties
from group_sidecar.proxy.config.own_connection import Sasl
from group_sidecar.proxy.runtime.addresses import Address

_PROTOCOL = "security.protocol"
_HINTS: dict[PortProtocol | None, str] = {
    PortProtocol.HTTP: ": it may be a sidecar's admin port, which --sidecar asks",
    PortProtocol.TLS: ": see --command-config",
}


class WrongProtocol(BrokerError):
    """The port at the bootstrap address speaks another protocol than the client, or no known protocol."""


def connect_to_broker(
    address: Address,
    timeout: float,
    client: ClientProperties,
) -> AbstractAsyncContextManager[KafkaClient]:
    """Returns a context manager that yields a connection. Raises the exceptions of `kafka_client.connect`.

    Args:
        address: the broker's address.
        timeout: seconds to wait for the connection, and for each reply.
        client: the client's TLS context, user and client id.
    """
    name = f"{_PROTOCOL}={client.protocol}"
    return connect(
        *address,
        client_id=client.client_id or CLIENT_ID,
        timeout=timeout,
        secure=tls_with(client.tls, name, timeout) if client.tls else None,
        authenticate=Login(_sasl(client), name).authenticate if client.sasl else None,
    )


@asynccontextmanager
async def connect_to_bootstrap(
    address: Address,
    timeout: float,  # noqa: ASYNC109 - as in connect_to_broker
    client: ClientProperties,
) -> AsyncIterator[KafkaClient]:
    """Yields a connection like `connect_to_broker`. Raises WrongProtocol if the port speaks another protocol."""
    async with AsyncExitStack() as stack:
        try:
            connected = await stack.enter_async_context(connect_to_broker(address, timeout, client))
        except (BrokerUnreachable, AuthenticationFailed):
            raise
        except (BrokerError, DecodeError):
            spoken = await protocol_of(address)
            if text := mismatch(spoken, f"{_PROTOCOL} is {client.protocol}", uses_tls=client.tls is not None):
                raise WrongProtocol(f"{address} {text}{_HINTS.get(spoken, '')}") from None
            raise
        yield connected


def _sasl(client: ClientProperties) -> Sasl:
    assert client.sasl is not None
    return Sasl.model_validate(asdict(client.sasl))
