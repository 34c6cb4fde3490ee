"""The list of all policies, one line for each. Policies judge in the order of the list."""

from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.policies.offset_metadata_max_bytes import OffsetMetadataMaxBytes
from group_sidecar.policies.policy import Policy

POLICIES: tuple[type[Policy], ...] = (
    GroupMaxSize,
    OffsetMetadataMaxBytes,
)
