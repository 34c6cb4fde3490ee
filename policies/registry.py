"""All policies there are; one line for each."""

from group_sidecar.policies.group_max_size import GroupMaxSize
from group_sidecar.policies.offset_metadata_max_bytes import OffsetMetadataMaxBytes
from group_sidecar.policies.policy import Policy

POLICIES: tuple[type[Policy], ...] = (
    GroupMaxSize,
    OffsetMetadataMaxBytes,
)
