"""ApiVersions (18), v0-5.

v1 throttle time; v2 throttling after the reply (KIP-219); v3 flexible, client software name and version (KIP-511),
features as tagged fields (KIP-584); v4 a feature's lowest version may be 0 (KAFKA-17011); v5 the client names the
cluster and the node that it expects (KIP-1242).

From v5 on, a node answers REBOOTSTRAP_REQUIRED if the client expects another node or cluster. The reply's *header*
stays v0 in every version, so that a client can read the error before it knows the version of the reply. A broker
answers an unknown version in v0 with UNSUPPORTED_VERSION. Kafka 0.9 does not have the API. A broker of Kafka 0.9 does
not answer the request, and continues with the next request of the connection.
"""

from collections.abc import Mapping
from types import MappingProxyType

from group_sidecar.codecs.primitives import BOOLEAN, INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import (
    FOREVER,
    Array,
    Struct,
    request,
    response,
    struct,
    wire_field,
)


@request(key=18, versions=(0, 5), flexible=3)
class ApiVersionsRequest(Struct):
    """Asks for the APIs and versions that the broker supports."""

    client_software_name: str = wire_field(STRING, since=3, default="")
    client_software_version: str = wire_field(STRING, since=3, default="")
    cluster_id: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    node_id: int = wire_field(INT32, since=5, default=-1)


@struct
class ApiVersion(Struct):
    """The lowest and the highest version of one API that the broker supports."""

    api_key: int = wire_field(INT16)
    min_version: int = wire_field(INT16)
    max_version: int = wire_field(INT16)


@struct
class SupportedFeatureKey(Struct):
    """The versions of one feature that this broker supports."""

    name: str = wire_field(STRING)
    min_version: int = wire_field(INT16)
    max_version: int = wire_field(INT16)


@struct
class FinalizedFeatureKey(Struct):
    """The versions of one feature that the whole cluster has enabled."""

    name: str = wire_field(STRING)
    max_version_level: int = wire_field(INT16)
    min_version_level: int = wire_field(INT16)


@response(key=18, versions=(0, 5), flexible=3, header_flexible=FOREVER)
class ApiVersionsResponse(Struct):
    """The APIs and features of a broker. Clients need the features for KIP-848 and transactions v2."""

    error_code: int = wire_field(INT16)
    api_keys: tuple[ApiVersion, ...] = wire_field(Array(ApiVersion))
    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    supported_features: tuple[SupportedFeatureKey, ...] = wire_field(
        Array(SupportedFeatureKey), since=3, tag=0, default=()
    )
    finalized_features_epoch: int = wire_field(INT64, since=3, tag=1, default=-1)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire_field(
        Array(FinalizedFeatureKey), since=3, tag=2, default=()
    )
    zk_migration_ready: bool = wire_field(BOOLEAN, since=3, tag=3, default=False)


KAFKA_0_9: Mapping[int, tuple[int, int]] = MappingProxyType(
    {
        **dict.fromkeys((0, 1), (0, 1)),  # Produce, Fetch.
        **dict.fromkeys((2, 3, 4, 5), (0, 0)),  # ListOffsets, Metadata, LeaderAndIsr, StopReplica.
        6: (0, 1),  # UpdateMetadata.
        7: (1, 1),  # ControlledShutdown.
        8: (0, 2),  # OffsetCommit.
        9: (0, 1),  # OffsetFetch.
        **dict.fromkeys(range(10, 17), (0, 0)),  # FindCoordinator and the other group APIs.
    }
)
"""The APIs of Kafka 0.9: (lowest, highest version) by API key (Kafka class ``Protocol`` of 0.9.0.1)."""
