"""InitProducerId (22), v0-6 (KIP-98).

v1 throttling after the reply (KIP-219); v2 flexible (KIP-482); v3 the producer's current id and epoch (KIP-360);
v4 PRODUCER_FENCED (KIP-588); v5 TRANSACTION_ABORTABLE (KIP-890); v6 two-phase commit (KIP-939).
"""

from group_sidecar.codecs.primitives import BOOLEAN, INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import Struct, request, response, wire_field


@request(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest(Struct):
    """Asks for a producer id. Without a transactional id (null), each reply contains a new producer id."""

    transactional_id: str | None = wire_field(STRING, nullable=0)
    transaction_timeout_ms: int = wire_field(INT32)
    producer_id: int = wire_field(INT64, since=3, default=-1)
    producer_epoch: int = wire_field(INT16, since=3, default=-1)
    enable2_pc: bool = wire_field(BOOLEAN, since=6, default=False)
    keep_prepared_txn: bool = wire_field(BOOLEAN, since=6, default=False)


@response(key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse(Struct):
    """The producer id and its epoch, which every batch contains."""

    throttle_time_ms: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    producer_id: int = wire_field(INT64, default=-1)
    producer_epoch: int = wire_field(INT16)
    ongoing_txn_producer_id: int = wire_field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = wire_field(INT16, since=6, default=-1)
