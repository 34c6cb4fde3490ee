"""Opens the sidecar's own connections to one broker."""

from contextlib import AbstractAsyncContextManager

from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.config.own_connection import OwnConnection
from group_sidecar.proxy.runtime.addresses import Address


class OwnConnections:
    """Connects to one broker with the sidecar's own credentials.

    Args:
        address: see Attributes.
        settings: the credentials, and the address of the broker's listener if the sidecar uses another listener than
            clients.
        versions: shows whether the broker is Kafka 0.9.

    Attributes:
        address: the broker's address for clients' requests. Log lines name the broker by this address.
        has_user: whether the sidecar authenticates as a user (SASL).
    """

    def __init__(self, address: Address, settings: OwnConnection, versions: BrokerVersions) -> None:
        self.address = address
        self.has_user = settings.sasl is not None
        self._credentials = OwnCredentials(settings)
        self._own_address = settings.address or address
        self._versions = versions

    def connect(self, *, additional: bool = False) -> AbstractAsyncContextManager[KafkaClient]:
        """Opens a connection. Raises the exceptions of `kafka_client.connect`.

        `additional`: whether the sidecar has another connection to the broker. If so, the sidecar does not send
        ApiVersions to Kafka 0.9 again. ApiVersions makes the ``SocketServer`` of Kafka 0.9 drop all requests that it
        has just read, including requests from other connections.
        """
        known = KAFKA_0_9 if additional and self._versions.is_kafka_0_9 else None
        return self._credentials.connect(self._own_address, versions=known)
