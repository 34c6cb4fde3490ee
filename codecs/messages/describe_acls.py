"""DescribeAcls (29), v0-3 (KIP-140); Kafka 4 accepts v1 and later (KIP-896).

v1 pattern type (KIP-290), throttling after the reply (KIP-219); v2 flexible (KIP-482); v3 users as resources (KIP-373).
A broker without an authorizer answers SECURITY_DISABLED.
"""

from group_sidecar.codecs.primitives import INT8, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@request(key=29, versions=(0, 3), flexible=2)
class DescribeAclsRequest(Struct):
    """Asks for ACLs. A null filter matches all values.

    The numbers are the codes of Kafka's enums. Code 1 matches any value, and pattern type 3 is LITERAL.
    """

    resource_type_filter: int = wire_field(INT8)
    resource_name_filter: str | None = wire_field(STRING, nullable=0)
    pattern_type_filter: int = wire_field(INT8, since=1, default=3)
    principal_filter: str | None = wire_field(STRING, nullable=0)
    host_filter: str | None = wire_field(STRING, nullable=0)
    operation: int = wire_field(INT8)
    permission_type: int = wire_field(INT8)


@struct
class AclDescription(Struct):
    """One ACL of a resource."""

    principal: str = wire_field(STRING)
    host: str = wire_field(STRING)
    operation: int = wire_field(INT8)
    permission_type: int = wire_field(INT8)


@struct
class DescribeAclsResource(Struct):
    """A resource, or a pattern of resources, and its ACLs."""

    resource_type: int = wire_field(INT8)
    resource_name: str = wire_field(STRING)
    pattern_type: int = wire_field(INT8, since=1, default=3)
    acls: tuple[AclDescription, ...] = wire_field(Array(AclDescription))


@response(key=29, versions=(0, 3), flexible=2)
class DescribeAclsResponse(Struct):
    """The ACLs that match the filters."""

    throttle_time_ms: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, nullable=0)
    resources: tuple[DescribeAclsResource, ...] = wire_field(Array(DescribeAclsResource))
