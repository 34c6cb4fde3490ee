"""EndTxn (26), v0-5 (KIP-98).

v1 replies before throttling (KIP-219); v2 PRODUCER_FENCED (KIP-588); v3 flexible (KIP-482); v4 TRANSACTION_ABORTABLE
(KIP-890); v5 the epoch grows with every transaction, so the response carries it (KIP-890 part 2).
"""

from group_sidecar.codecs.primitives import BOOLEAN, INT16, INT32, INT64, STRING
from group_sidecar.codecs.schema import Struct, f, request, response


@request(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Struct):
    """A producer commits (`committed`) or aborts its transaction."""

    transactional_id: str = f(STRING)
    producer_id: int = f(INT64)
    producer_epoch: int = f(INT16)
    committed: bool = f(BOOLEAN)


@response(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse(Struct):
    """Success means decided, not that every partition has its marker yet."""

    throttle_time_ms: int = f(INT32)
    error_code: int = f(INT16)
    producer_id: int = f(INT64, since=5, default=-1)
    producer_epoch: int = f(INT16, since=5, default=-1)
