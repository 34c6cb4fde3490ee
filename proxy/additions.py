"""Which versions of the group APIs the sidecar adds to what a broker offers.

Owns: the rule, of a broker's offers alone. ApiVersions and the decision about a request both go by it, so what is
advertised is answered, and nothing else. Must not know: how such a version is answered (`answering`, `translations`).

An old broker is asked in a version that it has (`translations`). So a version is added only if all that it tells beyond
that can be told of such a broker without guessing; and no version above one that cannot.
"""

from collections.abc import Callable, Mapping, Sequence

from group_sidecar.codecs.registry import ApiKey

Versions = Mapping[int, tuple[int, int]]
"""(lowest, highest) by API key."""
NO_VERSIONS = (0, -1)
"""Of an API that is not there."""


def additions(offers: Versions) -> Versions:
    """What is added to a broker's own versions of the APIs that it has; they join on to these."""
    added: dict[int, tuple[int, int]] = {}
    for key, (oldest, newest, steps) in _ADDED.items():
        lowest, highest = offers.get(key, NO_VERSIONS)
        if not (lowest <= highest and oldest <= highest < newest):
            continue
        barriers = (since - 1 for since, may_tell in steps if since > highest and not may_tell(offers))
        top = min(barriers, default=newest)
        if top > highest:
            added[key] = highest + 1, top
    return added


def _has(offers: Versions, api_key: int, version: int = 0) -> bool:
    return offers.get(api_key, NO_VERSIONS)[1] >= version


def _describes(offers: Versions) -> bool:
    return _has(offers, ApiKey.DESCRIBE_GROUPS)


def _has_no_instances(offers: Versions) -> bool:
    """Of a broker without static members (KIP-345) every member's group.instance.id is null."""
    return not _has(offers, ApiKey.JOIN_GROUP, 5)


def _has_no_epochs(offers: Versions) -> bool:
    """Where no leader epoch can be committed (KIP-320), each is -1."""
    return not (_has(offers, ApiKey.OFFSET_COMMIT, 6) or _has(offers, ApiKey.TXN_OFFSET_COMMIT, 2))


def _has_no_transactions(offers: Versions) -> bool:
    """Where no offset is ever pending (KIP-98), all are stable (KIP-447)."""
    return not (_has(offers, ApiKey.ADD_OFFSETS_TO_TXN) or _has(offers, ApiKey.TXN_OFFSET_COMMIT))


def _is_classic(offers: Versions) -> bool:
    """Where there are no consumer groups (KIP-848), every group is a classic one."""
    return not _has(offers, ApiKey.CONSUMER_GROUP_HEARTBEAT)


_Step = tuple[int, Callable[[Versions], bool]]
"""A version, and whether what it brought can be told of a broker."""

_ADDED: Mapping[int, tuple[int, int, Sequence[_Step]]] = {
    ApiKey.LIST_GROUPS: (0, 5, ((4, _describes), (5, _is_classic))),
    ApiKey.DESCRIBE_GROUPS: (0, 6, ((4, _has_no_instances), (6, _is_classic))),
    # v0 asks ZooKeeper; v10 asks by topic ids.
    ApiKey.OFFSET_FETCH: (1, 9, ((5, _has_no_epochs), (7, _has_no_transactions), (9, _is_classic))),
}
"""The highest version of a broker's from which, and up to which, versions are added; and the steps between."""
