"""EndTxn (26), v0-5 (KIP-98).

v1 throttling after the reply (KIP-219); v2 PRODUCER_FENCED (KIP-588); v3 flexible (KIP-482); v4 TRANSACTION_ABORTABLE
(KIP-890); v5 producer id and epoch in the response, because each transaction increments the epoch (KIP-890 part 2).
"""

from group_sidecar.codecs.primitives import BOOLEAN, INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import Struct, request, response, wire_field


@request(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Struct):
    """A producer commits (`committed`) or aborts its transaction."""

    transactional_id: str = wire_field(STRING)
    producer_id: int = wire_field(INT64)
    producer_epoch: int = wire_field(INT16)
    committed: bool = wire_field(BOOLEAN)


@response(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse(Struct):
    """Success means that the outcome is decided. Some partitions may not have their transaction marker yet."""

    throttle_time_ms: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    producer_id: int = wire_field(INT64, since=5, default=-1)
    producer_epoch: int = wire_field(INT16, since=5, default=-1)
