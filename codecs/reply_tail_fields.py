"""The tails of replies: the addresses of nodes that follow all other fields of a reply.

`reply_tail` finds where a tail begins. Fetch (1) v16-18 has the addresses of new leaders in a tagged field (KIP-951).
ShareFetch (78) and ShareAcknowledge (79) have these addresses in a plain field (KIP-932). DescribeQuorum (55) v2 has
the listeners of controllers (KIP-853).
"""

from group_sidecar.codecs.messages.produce import NodeEndpoint
from group_sidecar.codecs.primitives import INT32, STRING, UINT16
from group_sidecar.codecs.schema import Array, Struct, response, struct, wire_field

TAIL_VERSION = 16
"""The version in which all tails are declared. 16 is the first version of Fetch with a tail.

The fields of a tail are the same in every version that `reply_tail.TAIL_LAYOUTS` contains, so one version is enough."""


@response(key=1, versions=(TAIL_VERSION, TAIL_VERSION), flexible=12)
class FetchTail(Struct):
    """The tagged fields of a Fetch reply: the addresses of new leaders."""

    node_endpoints: tuple[NodeEndpoint, ...] = wire_field(Array(NodeEndpoint), tag=0, default=())


@response(key=78, versions=(TAIL_VERSION, TAIL_VERSION), flexible=0)
class ShareTail(Struct):
    """The last fields of a ShareFetch or ShareAcknowledge reply: the addresses of new leaders."""

    node_endpoints: tuple[NodeEndpoint, ...] = wire_field(Array(NodeEndpoint))


@struct
class QuorumListener(Struct):
    """A listener of a controller."""

    name: str = wire_field(STRING)
    host: str = wire_field(STRING)
    port: int = wire_field(UINT16)


@struct
class QuorumNode(Struct):
    """A controller."""

    node_id: int = wire_field(INT32)
    listeners: tuple[QuorumListener, ...] = wire_field(Array(QuorumListener))


@response(key=55, versions=(TAIL_VERSION, TAIL_VERSION), flexible=0)
class QuorumTail(Struct):
    """The last fields of a DescribeQuorum reply: the controllers."""

    nodes: tuple[QuorumNode, ...] = wire_field(Array(QuorumNode))
