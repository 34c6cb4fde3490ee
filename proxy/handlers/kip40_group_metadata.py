"""Answers the GroupMetadata request of KIP-40's draft.

No broker knows this request: Kafka would read its bytes as a FindCoordinator request. So the sidecar must never forward
the request, even if the request cannot be decoded.

Groups are listed and described from the copy, or by the broker. Only the broker knows the coordinator of a group. So
the sidecar asks the broker for each answer, on the client's own connection (`relay`). All groups that the broker can
describe have this broker as their coordinator, so the sidecar asks for only one of them.
`coordinator.answers.kip40_group_metadata` builds the reply.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from group_sidecar.codecs.messages.group_metadata import (
    KIP40_VERSION,
    GroupMetadataRequest,
    GroupMetadataResponse,
    Kip40Coordinator,
    Kip40Group,
)
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.schema import Struct, decode
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.answers.kip40_group_metadata import (
    kip40_coordinator,
    kip40_error,
    kip40_group_metadata,
    kip40_initializing,
    known_generation,
)
from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker import address_rewrite
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, HangUp, Origin
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.fallback_reasons import FallbackReasons
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.relay import BrokerRequest, Steps, UnreadableReply, relay

REQUESTS_PER_ROUND = 500
"""Maximum number of FindCoordinator requests that are sent together."""
DESCRIBE_GROUPS_VERSION = 5
"""The highest DescribeGroups version in which a missing group is Dead and has no error."""

T = TypeVar("T")
_BrokerSteps = Generator[Sequence[BrokerRequest], Sequence[Struct], T]
_DESCRIBE_GROUPS = DescribeGroupsRequest.KEY
_THIS_BROKER = -1
"""The key of all groups that this broker coordinates. The keys from 0 on are partitions of the offsets topic."""
_COORDINATED_HERE = (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND)
"""Error codes in a description that only the group's own coordinator returns."""


class Kip40GroupMetadata:
    """Answers the GroupMetadata requests of one broker's clients.

    Args:
        copy: the copy of the broker's group coordinator.
        versions: which requests the broker understands.
        reasons: whether a question of a client may be answered from the copy.
        observer: makes the exchange of a request.
        replies: handles the broker's replies.
        disconnector: ends connections.
        advertise: returns the address that replaces a broker's; None if no address is rewritten.
        true_hosts: whether answers contain the clients' own hosts, not the sidecar's host.
        enabled: whether the operator has switched the request on.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        reasons: FallbackReasons,
        observer: Observer,
        replies: ExchangeReplies,
        disconnector: Disconnector,
        *,
        advertise: Advertise | None,
        true_hosts: bool,
        enabled: bool,
    ) -> None:
        self._copy = copy
        self._versions = versions
        self._reasons = reasons
        self._observer = observer
        self._replies = replies
        self._disconnector = disconnector
        self._advertise = advertise
        self._true_hosts = true_hosts
        self._enabled = enabled

    def is_kip40_request(self, version: int) -> bool:
        """Whether a request with the API key of FindCoordinator is a GroupMetadata request."""
        return version == KIP40_VERSION and self._enabled

    def decide(self, frame: bytes, origin: Origin, now: float) -> AnswerInOrder | HangUp:
        """Returns what happens to a GroupMetadata request. `frame`: without its length."""
        try:
            header, body = decode_request_header(frame, flexible=False)
            request = decode(GroupMetadataRequest, KIP40_VERSION, body)
        except DecodeError as error:
            return self._disconnector.close_for(CloseReason.MALFORMED_REQUEST, FindCoordinatorRequest.KEY, str(error))
        correlation, client_id = header.correlation_id, header.client_id or ""
        exchange = self._observer.exchange(request, KIP40_VERSION, correlation, client_id, origin, now)

        def answer(at: float) -> AnswerInOrder:
            def can_answer(question: Struct) -> bool:
                asked = replace(exchange, request=question, version=DESCRIBE_GROUPS_VERSION)
                return self._reasons.fallback_reason(asked, origin, at) is None

            steps = _AnswerSteps(
                request, self._copy, self._versions, self._advertise, can_answer, at, true_hosts=self._true_hosts
            ).steps()
            return relay(steps, exchange, header, self._copy, self._replies, at)

        return AnswerInOrder(answer)


class _AnswerSteps:
    """The steps to answer one request.

    Args:
        request: the client's request.
        copy: the copy of the broker's group coordinator.
        versions: the versions that the broker offers.
        advertise: returns the address that replaces a broker's; None if no address is rewritten.
        can_answer: returns whether a question of this client may be answered from the copy.
        now: the time on trio's clock.
        true_hosts: whether answers contain the clients' own hosts, not the sidecar's host.
    """

    def __init__(
        self,
        request: GroupMetadataRequest,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        advertise: Advertise | None,
        can_answer: Callable[[Struct], bool],
        now: float,
        *,
        true_hosts: bool,
    ) -> None:
        self._request = request
        self._copy = copy
        self._versions = versions
        self._advertise = advertise
        self._true_hosts = true_hosts
        self._can_answer = can_answer
        self._at = copy.epoch(now)
        self._views: dict[str, GroupView] = {}
        self._coordinators: dict[str, Kip40Coordinator | int] = {}
        """The coordinator of each group, or the error code if the broker did not return the coordinator."""

    def steps(self) -> Steps:
        """Yields the requests to the broker, and returns the reply to the client."""
        listing_errors: list[Kip40Group] = []
        named = self._request.groups
        if self._request.include_all_groups:
            listed = yield from self._list()
            named = (*(group.group_id for group in listed.groups), *named)
            listing_errors += _listing_error(listed.error_code)
        described = yield from self._describe(tuple(dict.fromkeys(named)))
        yield from self._find(described)
        return GroupMetadataResponse(groups=(*listing_errors, *map(self._group_reply, described)))

    # Requests to the broker.

    def _list(self) -> _BrokerSteps[ListGroupsResponse]:
        question, manager = ListGroupsRequest(), self._copy.manager
        if self._can_answer(question):
            return decode(ListGroupsResponse, 0, manager.listing(self._at).reply(question, 0))
        for reply in (yield from self._ask([question], highest=0)):
            assert isinstance(reply, ListGroupsResponse)
            return reply
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=())

    def _describe(self, groups: Sequence[str]) -> _BrokerSteps[list[DescribedGroup]]:
        """Returns a description of each group, from the copy or else from the broker."""
        self._views = {group: self._copy.manager.view(group, self._at) for group in groups}
        known_groups = tuple(group for group in groups if self._is_known(group))
        question = DescribeGroupsRequest(groups=known_groups)
        reply = group_replies.describe_groups(
            question, DESCRIBE_GROUPS_VERSION, self._views, true_hosts=self._true_hosts
        )
        found = {group.group_id: group for group in reply.groups}
        if unknown_groups := tuple(group for group in groups if group not in found):
            for response in (
                yield from self._ask([DescribeGroupsRequest(groups=unknown_groups)], highest=DESCRIBE_GROUPS_VERSION)
            ):
                assert isinstance(response, DescribeGroupsResponse)
                found |= {group.group_id: group for group in response.groups}
        return [
            found.get(group) or group_replies.error_group(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for group in groups
        ]

    def _is_known(self, group: str) -> bool:
        """Whether the copy may describe a group.

        Another broker may coordinate a group that the copy does not know. If the sidecar does not read the log, only
        the broker knows whether it coordinates the group.
        """
        if not self._can_answer(DescribeGroupsRequest(groups=(group,))):
            return False
        log_is_read = self._copy.manager.log.partitions.count is not None
        if log_is_read or self._views[group].state is not GroupState.DEAD:
            return True
        return self._versions.lacks_api(_DESCRIBE_GROUPS)

    def _find(self, described: Iterable[DescribedGroup]) -> _BrokerSteps[None]:
        """Asks the broker where groups are coordinated.

        One request serves all groups that have the same coordinator. If its reply has an error, the broker is asked for
        each of the other groups.
        """
        alike: dict[int | str, list[str]] = {}
        for group in described:
            if group.error_code in (*_COORDINATED_HERE, ErrorCode.NOT_COORDINATOR):
                alike.setdefault(self._coordinator_key(group), []).append(group.group_id)
        first = yield from self._ask_coordinators([groups[0] for groups in alike.values()])
        alone: list[str] = []
        for groups in alike.values():
            place = first.get(groups[0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._coordinators[groups[0]] = place
            if isinstance(place, Kip40Coordinator):
                self._coordinators |= dict.fromkeys(groups, place)
            else:
                alone += groups[1:]
        self._coordinators |= yield from self._ask_coordinators(alone)

    def _coordinator_key(self, group: DescribedGroup) -> int | str:
        """Returns a key that only groups with the same coordinator share: this broker, a partition, or the group id."""
        if group.error_code != ErrorCode.NOT_COORDINATOR:
            return _THIS_BROKER
        partitions = self._copy.manager.log.partitions.count
        return group.group_id if partitions is None else partition_for(group.group_id, partitions)

    def _ask_coordinators(self, groups: Sequence[str]) -> _BrokerSteps[dict[str, Kip40Coordinator | int]]:
        found: dict[str, Kip40Coordinator | int] = {}
        for first in range(0, len(groups), REQUESTS_PER_ROUND):
            some = groups[first : first + REQUESTS_PER_ROUND]
            replies = yield from self._ask([FindCoordinatorRequest(key=group) for group in some], highest=0)
            found |= zip(some, map(self._coordinator, replies), strict=False)  # No replies if any was unreadable.
        return found

    def _ask(self, questions: Sequence[Struct], highest: int) -> _BrokerSteps[Sequence[Struct]]:
        """Returns the replies to requests of at most version `highest`.

        Returns no replies if one of them cannot be decoded or the broker lacks the API.
        """
        if not questions or self._versions.lacks_api(questions[0].KEY):
            return ()
        version = self._versions.request_version(questions[0].KEY, highest)
        try:
            return (yield [BrokerRequest(question, version) for question in questions])
        except UnreadableReply:
            return ()

    def _coordinator(self, reply: Struct) -> Kip40Coordinator | int:
        advertise = self._advertise
        found = address_rewrite.rewrite_addresses(reply, advertise) if advertise else reply
        assert isinstance(found, FindCoordinatorResponse)
        return found.error_code or kip40_coordinator(found)

    # The reply to the client.

    def _group_reply(self, described: DescribedGroup) -> Kip40Group:
        group_id, manager = described.group_id, self._copy.manager
        place = self._coordinators.get(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(place, Kip40Coordinator):
            where = place
        elif described.error_code == ErrorCode.NOT_COORDINATOR:
            return kip40_error(group_id, place)
        else:
            where = Kip40Coordinator()
        group, now = manager.group_metadata_cache.get(group_id), manager.view(group_id, self._at)
        knowledge = known_generation(described, self._views[group_id], group, now)
        return kip40_group_metadata(
            described, knowledge, where, with_members=bool(self._request.include_member_metadata)
        )


def _listing_error(error_code: int) -> Iterator[Kip40Group]:
    """Yields an entry without a group id for an error of ListGroups: the draft has no other field for such an error."""
    if error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        yield kip40_initializing("")
    elif error_code:
        yield kip40_error("", error_code)
