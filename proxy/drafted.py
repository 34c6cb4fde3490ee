"""The GroupMetadata request of KIP-40's draft, answered.

Owns: what is asked of the broker to answer one, in which order, and when the connection is ended instead. Must not
know: what each state shows (`coordinator.answers_draft`), how questions get to the broker (`relaying`), whether the
copy may be used (`answering`).

No broker knows the request: to Kafka its bytes are another. So it is never forwarded, whatever is wrong with it.

Where the coordinator is only the broker can say, and so it is asked each time, on the client's own connection. All
groups that it describes are its own, and have the same coordinator.
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
    DRAFT_VERSION,
    DraftCoordinator,
    DraftGroup,
    GroupMetadataRequest,
    GroupMetadataResponse,
)
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.schema import Struct, decode
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.answers_draft import coordinator, drafted, initializing, known, refused
from group_sidecar.coordinator.partitions import partition_for
from group_sidecar.coordinator.views import GroupState, GroupView
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy import rewrite
from group_sidecar.proxy.answering import Answering
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.closing import Closing
from group_sidecar.proxy.disposals import Answer, HangUp, Origin
from group_sidecar.proxy.framing import Look
from group_sidecar.proxy.learning import Learning
from group_sidecar.proxy.relaying import Asked, Steps, Unanswered, relay

ASKED_AT_ONCE = 500
"""Questions that are put to the broker together."""
DESCRIBED = 5
"""The DescribeGroups version up to which a group that is not there is merely Dead."""

T = TypeVar("T")
_Exchanged = Generator[Sequence[Asked], Sequence[Struct], T]
_DESCRIBE_GROUPS = DescribeGroupsRequest.KEY
_OWN = -1
"""Among the partitions of the offsets topic: all groups that this broker coordinates."""
_SERVED = (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND)
"""What a group's own coordinator says of it, and no other broker."""


class Drafted:
    """Answers the draft's requests to one broker."""

    def __init__(self, copy: BrokerCopy, learning: Learning, answering: Answering, closing: Closing) -> None:
        self._copy = copy
        self._learning = learning
        self._answering = answering
        self._closing = closing

    def takes(self, version: int) -> bool:
        """Whether a request with the API key of FindCoordinator is one of the draft's."""
        return version == DRAFT_VERSION and self._copy.config.group_metadata_request

    def glance(self, size: int) -> Look | HangUp:
        """What is to become of one of `size` bytes: one that is too long to be looked into can only end here."""
        if size <= self._copy.config.limits.inspected_frame:
            return Look.TAKE
        return self._closing.because(CloseReason.REQUEST_TOO_LONG, FindCoordinatorRequest.KEY, f"{size} bytes")

    def consider(self, frame: bytes, origin: Origin, now: float) -> Answer | HangUp:
        """What is to become of one. `frame`: without its length."""
        try:
            header, body = decode_request_header(frame, flexible=False)
            request = decode(GroupMetadataRequest, DRAFT_VERSION, body)
        except DecodeError as error:
            return self._closing.because(CloseReason.MALFORMED_REQUEST, FindCoordinatorRequest.KEY, str(error))
        correlation, client_id = header.correlation_id, header.client_id or ""
        exchange = self._learning.exchange(request, DRAFT_VERSION, correlation, client_id, origin, now)

        def answer(at: float) -> Answer:
            def served(question: Struct) -> bool:
                asked = replace(exchange, request=question, version=DESCRIBED)
                return self._answering.lacking(asked, origin, at) is None

            return relay(_Telling(request, self._copy, served, at).steps(), exchange, header, self._copy, at)

        return Answer(answer)


class _Telling:
    """One answer on its way.

    Args:
        request: the client's.
        copy: of the broker.
        served: whether a question of this client's may be answered from the copy.
        now: the shell's clock.
    """

    def __init__(
        self, request: GroupMetadataRequest, copy: BrokerCopy, served: Callable[[Struct], bool], now: float
    ) -> None:
        self._request = request
        self._copy = copy
        self._served = served
        self._at = copy.epoch(now)
        self._before: dict[str, GroupView] = {}
        self._places: dict[str, DraftCoordinator | int] = {}
        """Where groups are coordinated, or the error why that was not told."""

    def steps(self) -> Steps:
        """What to ask, and the reply in the end."""
        untold: list[DraftGroup] = []
        named = self._request.groups
        if self._request.include_all_groups:
            listed = yield from self._list()
            named = (*(group.group_id for group in listed.groups), *named)
            untold += _untold(listed.error_code)
        described = yield from self._describe(tuple(dict.fromkeys(named)))
        yield from self._find(described)
        return GroupMetadataResponse(groups=(*untold, *map(self._told, described)))

    # What the broker is asked.

    def _list(self) -> _Exchanged[ListGroupsResponse]:
        question, manager = ListGroupsRequest(), self._copy.manager
        if self._served(question):
            return decode(ListGroupsResponse, 0, manager.listing(self._at).reply(question, 0))
        for reply in (yield from self._ask([question], highest=0)):
            assert isinstance(reply, ListGroupsResponse)
            return reply
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=())

    def _describe(self, groups: Sequence[str]) -> _Exchanged[list[DescribedGroup]]:
        """Each of the groups, as the copy describes it or the broker."""
        self._before = {group: self._copy.manager.view(group, self._at) for group in groups}
        here = tuple(group for group in groups if self._is_known(group))
        question = DescribeGroupsRequest(groups=here)
        reply = answers.describe_groups(question, DESCRIBED, self._before, true_hosts=self._copy.true_hosts)
        found = {group.group_id: group for group in reply.groups}
        if others := tuple(group for group in groups if group not in found):
            for told in (yield from self._ask([DescribeGroupsRequest(groups=others)], highest=DESCRIBED)):
                assert isinstance(told, DescribeGroupsResponse)
                found |= {group.group_id: group for group in told.groups}
        return [found.get(group) or answers.unfit(group, ErrorCode.COORDINATOR_NOT_AVAILABLE) for group in groups]

    def _is_known(self, group: str) -> bool:
        """Whether the copy may describe a group. One that it never heard of may be another broker's: of that the log
        tells, and else only the broker.
        """
        if not self._served(DescribeGroupsRequest(groups=(group,))):
            return False
        log_tells = self._copy.manager.log.partitions.count is not None
        return log_tells or self._before[group].state is not GroupState.DEAD or self._copy.lacks(_DESCRIBE_GROUPS)

    def _find(self, described: Iterable[DescribedGroup]) -> _Exchanged[None]:
        """Learns where groups are coordinated. One group stands for all that have the same coordinator; where the
        broker has an error for it, each of them is asked for.
        """
        alike: dict[int | str, list[str]] = {}
        for group in described:
            if group.error_code in (*_SERVED, ErrorCode.NOT_COORDINATOR):
                alike.setdefault(self._shared(group), []).append(group.group_id)
        first = yield from self._ask_places([groups[0] for groups in alike.values()])
        alone: list[str] = []
        for groups in alike.values():
            place = first.get(groups[0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._places[groups[0]] = place
            if isinstance(place, DraftCoordinator):
                self._places |= dict.fromkeys(groups, place)
            else:
                alone += groups[1:]
        self._places |= yield from self._ask_places(alone)

    def _shared(self, group: DescribedGroup) -> int | str:
        """What is the same for groups that have the same coordinator: for all of this broker's, and in a partition."""
        if group.error_code != ErrorCode.NOT_COORDINATOR:
            return _OWN
        partitions = self._copy.manager.log.partitions.count
        return group.group_id if partitions is None else partition_for(group.group_id, partitions)

    def _ask_places(self, groups: Sequence[str]) -> _Exchanged[dict[str, DraftCoordinator | int]]:
        found: dict[str, DraftCoordinator | int] = {}
        for first in range(0, len(groups), ASKED_AT_ONCE):
            some = groups[first : first + ASKED_AT_ONCE]
            replies = yield from self._ask([FindCoordinatorRequest(key=group) for group in some], highest=0)
            found |= zip(some, map(self._place, replies), strict=False)  # Of what cannot be read there is none.
        return found

    def _ask(self, questions: Sequence[Struct], highest: int) -> _Exchanged[Sequence[Struct]]:
        """The replies, in the highest version up to `highest`; none where one cannot be read, or put."""
        if not questions or self._copy.lacks(questions[0].KEY):
            return ()
        version = self._copy.version_of(questions[0].KEY, highest)
        try:
            return (yield [Asked(question, version) for question in questions])
        except Unanswered:
            return ()

    def _place(self, reply: Struct) -> DraftCoordinator | int:
        advertise = self._copy.advertise
        found = rewrite.addresses(reply, advertise) if advertise else reply
        assert isinstance(found, FindCoordinatorResponse)
        return found.error_code or coordinator(found)

    # What the client is told.

    def _told(self, described: DescribedGroup) -> DraftGroup:
        group_id, manager = described.group_id, self._copy.manager
        place = self._places.get(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(place, DraftCoordinator):
            where = place
        elif described.error_code == ErrorCode.NOT_COORDINATOR:
            return refused(group_id, place)
        else:
            where = DraftCoordinator()
        group, now = manager.group_metadata_cache.get(group_id), manager.view(group_id, self._at)
        knowledge = known(described, self._before[group_id], group, now)
        return drafted(described, knowledge, where, with_members=bool(self._request.include_member_metadata))


def _untold(error_code: int) -> Iterator[DraftGroup]:
    """What stands for groups that a broker could not list: the draft has no other place for that."""
    if error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        yield initializing("")
    elif error_code:
        yield refused("", error_code)
