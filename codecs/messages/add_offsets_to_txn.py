"""AddOffsetsToTxn (25), v0-4 (KIP-98).

v1 throttling after the reply (KIP-219); v2 PRODUCER_FENCED (KIP-588); v3 flexible (KIP-482); v4 TRANSACTION_ABORTABLE
(KIP-890).
"""

from group_sidecar.codecs.primitives import INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import Struct, request, response, wire_field


@request(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Struct):
    """A producer announces that its transaction will commit offsets of a group."""

    transactional_id: str = wire_field(STRING)
    producer_id: int = wire_field(INT64)
    producer_epoch: int = wire_field(INT16)
    group_id: str = wire_field(STRING)


@response(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse(Struct):
    """Whether the group's offsets partition is now part of the transaction."""

    throttle_time_ms: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
