"""Computes which versions of the group APIs the sidecar adds to the versions that a broker offers.

The rule depends on the broker's ApiVersions alone. The ApiVersions reply to a client and the decision about a request
use the same rule, so the sidecar answers exactly the versions that it advertises.

The sidecar asks the broker in a version that the broker has (`version_translation`). A version is added only if its new
fields can be filled for such a broker without guessing. A version that fails this test also excludes all higher
versions.
"""

from collections.abc import Callable, Mapping, Sequence

from group_sidecar.codecs.api_registry import ApiKey

Versions = Mapping[int, tuple[int, int]]
"""The lowest and the highest version by API key."""
NO_VERSIONS = (0, -1)
"""The versions of an API that the broker does not have."""


def added_versions(offered: Versions) -> Versions:
    """Returns the versions that the sidecar adds to a broker's own, by API key. The added versions follow the broker's
    highest version without a gap.
    """
    added: dict[int, tuple[int, int]] = {}
    for key, (oldest, newest, steps) in _ADDED.items():
        lowest, highest = offered.get(key, NO_VERSIONS)
        if not (lowest <= highest and oldest <= highest < newest):
            continue
        barriers = (since - 1 for since, is_supported in steps if since > highest and not is_supported(offered))
        top = min(barriers, default=newest)
        if top > highest:
            added[key] = highest + 1, top
    return added


def _has(offered: Versions, api_key: int, version: int = 0) -> bool:
    return offered.get(api_key, NO_VERSIONS)[1] >= version


def _describes(offered: Versions) -> bool:
    return _has(offered, ApiKey.DESCRIBE_GROUPS)


def _has_no_instances(offered: Versions) -> bool:
    """Whether the broker has no static members (KIP-345), so that every group.instance.id is null."""
    return not _has(offered, ApiKey.JOIN_GROUP, 5)


def _has_no_epochs(offered: Versions) -> bool:
    """Whether no leader epoch can be committed (KIP-320), so that each committed epoch is -1."""
    return not (_has(offered, ApiKey.OFFSET_COMMIT, 6) or _has(offered, ApiKey.TXN_OFFSET_COMMIT, 2))


def _has_no_transactions(offered: Versions) -> bool:
    """Whether no offset can be pending (KIP-98), so that all offsets are stable (KIP-447)."""
    return not (_has(offered, ApiKey.ADD_OFFSETS_TO_TXN) or _has(offered, ApiKey.TXN_OFFSET_COMMIT))


def _is_classic(offered: Versions) -> bool:
    """Whether the broker has no consumer groups (KIP-848), so that every group is a classic group."""
    return not _has(offered, ApiKey.CONSUMER_GROUP_HEARTBEAT)


_Step = tuple[int, Callable[[Versions], bool]]
"""A version, and whether its new fields can be filled for a broker."""

_ADDED: Mapping[int, tuple[int, int, Sequence[_Step]]] = {
    ApiKey.LIST_GROUPS: (0, 5, ((4, _describes), (5, _is_classic))),
    ApiKey.DESCRIBE_GROUPS: (0, 6, ((4, _has_no_instances), (6, _is_classic))),
    # v0 reads offsets from ZooKeeper; v10 uses topic ids.
    ApiKey.OFFSET_FETCH: (1, 9, ((5, _has_no_epochs), (7, _has_no_transactions), (9, _is_classic))),
}
"""By API key: the version that the broker must have at least, the highest version that is added, and the versions whose
new fields need a check."""
