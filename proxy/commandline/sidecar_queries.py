"""Queries the admin ports of several sidecars at once over HTTP, and merges their answers.

The sidecar of a group's coordinator knows the group. After the coordinator has moved, two sidecars may report the group
for a while. A copy that can answer for the group wins, then a copy that knows all members, then the later generation.
"""

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx
import trio
from pydantic import TypeAdapter, ValidationError

from group_sidecar.proxy.broker.port_protocol import PortProtocol, protocol_of
from group_sidecar.proxy.commandline.results import (
    Coordinator,
    GroupDescription,
    GroupMember,
    GroupNotFound,
    GroupOffsets,
    GroupSummary,
    Listing,
    NoAnswer,
    PartitionOffsets,
    Ranking,
    Timeline,
)
from group_sidecar.proxy.commandline.target import QueryTarget
from group_sidecar.proxy.commandline.times import parse_time
from group_sidecar.proxy.runtime.addresses import Address

AT_ONCE = 32
"""Maximum number of sidecars that are queried at the same time."""
PAGE_SIZE = 1000
"""Maximum number of groups in one reply."""

_HTTP_PORT = 80
_UNKNOWN = -1  # Stands for an unknown generation in the JSON.

_GROUPS = TypeAdapter(list[GroupSummary])
_GROUP = TypeAdapter(GroupSummary)
_MEMBERS = TypeAdapter(list[GroupMember])
_COORDINATOR: TypeAdapter[Coordinator | None] = TypeAdapter(Coordinator | None)
_OFFSETS = TypeAdapter(list[PartitionOffsets])
_UNREACHABLE = TypeAdapter(list[dict[str, str]])
_CELLS = TypeAdapter(list[dict[str, Any]])
_FORGOTTEN = TypeAdapter(dict[str, str | None])

T = TypeVar("T")
JsonObject = Mapping[str, Any]
"""The body of an admin port's reply."""
Forgotten = dict[str, str | None]
"""By kind of event, the time up to which events are no longer kept; None if all events are kept."""


class SidecarError(Exception):
    """A sidecar gave no usable answer. The text is one line that names its admin port."""


class SidecarUnreachable(SidecarError):
    """The connection failed, or no reply arrived in time."""


class SidecarRefused(SidecarError):
    """A sidecar replied with an error, or the server is not a sidecar."""


class SidecarBrokerUnreachable(SidecarError):
    """A sidecar replied, but its broker does not answer. The sidecar's data about groups may be old."""


class _Page(NamedTuple):
    """A part of one sidecar's groups.

    Attributes:
        total: how many of the sidecar's groups match the query.
        all: how many groups the sidecar has.
        problems: one error for each broker that does not answer this sidecar.
    """

    groups: list[GroupSummary]
    total: int
    all: int
    problems: list[SidecarBrokerUnreachable]


@dataclass(frozen=True, slots=True)
class SidecarQueries:
    """Queries the admin ports of sidecars.

    Args:
        http: the HTTP client, which the caller closes.
        urls: the admin ports.
        timeout: seconds to wait for each reply.

    The methods raise NoAnswer if no sidecar has an answer. NoAnswer contains a SidecarError for each sidecar that
    failed, and GroupNotFound if the other sidecars do not know the group.
    """

    http: httpx.AsyncClient
    urls: Sequence[str]
    timeout: float
    limiter: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(AT_ONCE))

    async def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Listing:
        """Returns the groups of all sidecars, filtered by states and types if they are given."""
        answers, problems = await self._ask_each(self.urls, self._all_groups)
        groups = _best(group for page in answers.values() for group in page.groups)
        wanted = [
            group
            for group in sorted(groups, key=lambda group: group.group)
            if (not states or group.state in states) and (not types or group.protocol in types)
        ]
        return Listing(groups=wanted, problems=_with_unreachable_brokers(problems, answers.values()))

    async def ranked(self, sort: str, descending: bool, search: str, limit: int) -> Ranking:
        """Returns the first `limit` groups of each sidecar in the order `sort`. Names must contain `search`."""

        async def first(url: str) -> _Page:
            order = "desc" if descending else "asc"
            return await self._page(url, search=search, sort=sort, order=order, limit=limit)

        answers, problems = await self._ask_each(self.urls, first)
        pages = answers.values()
        return Ranking(
            groups=_best(group for page in pages for group in page.groups),
            total=sum(page.total for page in pages),
            all=sum(page.all for page in pages),
            problems=_with_unreachable_brokers(problems, pages),
        )

    async def group(self, group_id: str) -> GroupDescription:
        """Returns one group and its members from the sidecar with the most reliable copy of the group."""
        answers, problems = await self._ask_about_group(self.urls, "group", group_id, _described)
        return replace(max(answers.values(), key=_reliability), problems=problems)

    async def offsets(self, group_id: str) -> GroupOffsets:
        """Returns a group's committed offsets from the sidecar with the most reliable copy of the group."""
        group = await self.group(group_id)
        most_reliable = [url for url in self.urls if _url_label(url) == group.sidecar]
        answers, _ = await self._ask_about_group(most_reliable, "offsets", group_id, _committed)
        [offsets] = answers.values()
        return GroupOffsets(
            group=group_id, state=group.state, offsets=offsets, sidecar=group.sidecar, problems=group.problems
        )

    async def timeline(self, group_id: str) -> Timeline:
        """Returns the events of a group from all sidecars."""
        answers, problems = await self._ask_about_group(
            self.urls, "timeline", group_id, lambda url, document: (_cells(url, document), _forgotten(document))
        )
        cells = sorted(
            (cell for cells, _ in answers.values() for cell in cells), key=lambda cell: parse_time(cell["at"])
        )
        forgotten: Forgotten = {}
        for _, each in answers.values():
            for kind, at in each.items():
                forgotten[kind] = max(filter(None, (at, forgotten.get(kind))), default=None)
        return Timeline(group=group_id, timeline=cells, forgotten=forgotten, problems=problems)

    async def _all_groups(self, url: str) -> _Page:
        groups: list[GroupSummary] = []
        while True:
            page = await self._page(url, sort="group", order="asc", limit=PAGE_SIZE, offset=len(groups))
            groups += page.groups
            if not page.groups or len(groups) >= page.total:
                return page._replace(groups=groups)

    async def _page(self, url: str, **query: str | int) -> _Page:
        document = await self._get(url, "groups", **query)
        return _read(
            url,
            lambda: _Page(
                _summaries(url, document),
                int(document["total"]),
                int(document["all"]),
                _unreachable_brokers(url, document),
            ),
        )

    async def _ask_about_group(
        self, urls: Sequence[str], what: str, group_id: str, read: Callable[[str, JsonObject], T]
    ) -> tuple[dict[str, T], list[SidecarError]]:
        """Returns the answers of the sidecars that know a group, by URL, and the problems.

        A sidecar whose broker does not answer is a problem in any case, because its data may be old.

        Raises:
            NoAnswer: no sidecar knows the group.
        """

        async def ask(url: str) -> tuple[T | None, list[SidecarBrokerUnreachable]]:
            reply = await self._reply(url, what, group=group_id)
            if reply.status_code == HTTPStatus.NOT_FOUND and "group" in (missing := _object(reply)):
                return None, _read(url, lambda: _unreachable_brokers(url, missing))
            document = _accepted(url, reply)
            return _read(url, lambda: (read(url, document), _unreachable_brokers(url, document)))

        answers, problems = await self._ask_each(urls, ask)
        problems += sorted((gone for _, each in answers.values() for gone in each), key=str)
        known = {url: answer for url, (answer, _) in answers.items() if answer is not None}
        if not known:
            raise NoAnswer([GroupNotFound(group_id), *problems])
        return known, problems

    async def _ask_each(
        self, urls: Iterable[str], ask: Callable[[str], Awaitable[T]]
    ) -> tuple[dict[str, T], list[SidecarError]]:
        """Returns the answers by URL, and a problem for each sidecar that failed. Raises NoAnswer if all failed."""
        answers: dict[str, T] = {}
        problems: list[SidecarError] = []

        async def try_one(url: str) -> None:
            try:
                async with self.limiter:
                    answers[url] = await ask(url)
            except SidecarError as error:
                problems.append(error)

        async with trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(try_one, url)
        problems.sort(key=str)
        if not answers:
            raise NoAnswer(problems)
        return answers, problems

    async def _get(self, url: str, what: str, **query: str | int) -> JsonObject:
        return _accepted(url, await self._reply(url, what, **query))

    async def _reply(self, url: str, what: str, **query: str | int) -> httpx.Response:
        try:
            with trio.fail_after(self.timeout):
                return await self.http.get(f"{url}/api/v1/{what}", params=query)
        except (trio.TooSlowError, httpx.TimeoutException):
            raise SidecarUnreachable(f"{_url_label(url)} did not answer within {self.timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # InvalidURL, ValueError: a wrong host.
            if isinstance(error, httpx.ProtocolError | httpx.ReadError) and (text := await _mismatch(url)):
                raise SidecarUnreachable(f"{_url_label(url)} {text}") from None
            raise SidecarUnreachable(f"{_url_label(url)} cannot be reached: {_reason(error)}") from None


@asynccontextmanager
async def open_sidecars(source: QueryTarget) -> AsyncIterator[SidecarQueries]:
    """Returns a context manager that yields the queries for the admin ports of a target."""
    headers = {"accept": "application/json", "user-agent": "kafka-group-sidecar"}
    if source.token:
        headers["authorization"] = f"Bearer {source.token}"
    # The proxies of the environment are not used, because a proxy would see the token.
    async with httpx.AsyncClient(
        headers=headers,
        verify=source.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=False,
        timeout=source.timeout,
    ) as http:
        yield SidecarQueries(http, source.sidecars, source.timeout)


def _object(reply: httpx.Response) -> JsonObject:
    """Returns the JSON object of a reply, or an empty object if the reply has none."""
    try:
        document = reply.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _accepted(url: str, reply: httpx.Response) -> JsonObject:
    """Returns the JSON object of a successful reply. Raises SidecarRefused for an error."""
    if reply.status_code == HTTPStatus.OK:
        return _object(reply)
    path = reply.url.path
    if reply.status_code == HTTPStatus.UNAUTHORIZED:
        sent = "authorization" in reply.request.headers
        problem = "refuses this token" if sent else "wants a token: --token-file FILE"
    elif reply.status_code == HTTPStatus.NOT_FOUND:
        problem = f"has no {path}: it is older, or not the admin port of a sidecar"
    else:
        reason = _object(reply).get("error")
        problem = f"answers {path} with status {reply.status_code}{f': {reason}' if reason else ''}"
    raise SidecarRefused(f"{_url_label(url)} {problem}")


def _read(url: str, read: Callable[[], T]) -> T:
    """Returns the result of `read`. Raises SidecarRefused if `read` finds the reply invalid."""
    try:
        return read()
    except (ValidationError, LookupError, TypeError, ValueError):
        raise SidecarRefused(f"{_url_label(url)} does not answer as a sidecar's admin port") from None


def _summaries(url: str, document: JsonObject) -> list[GroupSummary]:
    return [_with_sidecar(url, group) for group in _GROUPS.validate_python(document["groups"])]


def _unreachable_brokers(url: str, document: JsonObject) -> list[SidecarBrokerUnreachable]:
    brokers = _UNREACHABLE.validate_python(document.get("unreachable", []))  # Older sidecars have no such key.
    return [
        SidecarBrokerUnreachable(
            f"{_url_label(url)}: broker {each['broker']} unreachable since {each['since']}: {each['reason']}"
        )
        for each in brokers
    ]


def _with_unreachable_brokers(problems: list[SidecarError], pages: Iterable[_Page]) -> list[SidecarError]:
    return [*problems, *sorted((gone for page in pages for gone in page.problems), key=str)]


def _with_sidecar(url: str, group: GroupSummary) -> GroupSummary:
    """Returns the group with its sidecar. An unknown generation becomes None, as in the results from brokers."""
    return replace(
        group, sidecar=_url_label(url), generation=None if group.generation == _UNKNOWN else group.generation
    )


def _described(url: str, document: JsonObject) -> GroupDescription:
    summary = asdict(_with_sidecar(url, _GROUP.validate_python(document)))
    members = _MEMBERS.validate_python(document["member_list"])
    coordinator = _COORDINATOR.validate_python(document.get("coordinator"))  # Older sidecars have no such key.
    return GroupDescription(**summary, coordinator=coordinator, leader=document["leader"], member_list=members)


def _committed(_: str, document: JsonObject) -> list[PartitionOffsets]:
    return _OFFSETS.validate_python(document["offsets"])


def _cells(url: str, document: JsonObject) -> list[dict[str, Any]]:
    cells = _CELLS.validate_python(document["timeline"])
    for cell in cells:
        parse_time(cell["at"])
        cell["what"] = str(cell["what"])
    return [cell | {"sidecar": _url_label(url)} for cell in cells]


def _forgotten(document: JsonObject) -> Forgotten:
    """Returns the `forgotten` times of a timeline. Older sidecars do not report them."""
    found = _FORGOTTEN.validate_python(document.get("forgotten", {}))
    for at in filter(None, found.values()):
        parse_time(at)
    return found


def _best(groups: Iterable[GroupSummary]) -> list[GroupSummary]:
    """Returns the most reliable entry of each group."""
    best: dict[str, GroupSummary] = {}
    for group in groups:
        known = best.get(group.group)
        if known is None or _reliability(group) > _reliability(known):
            best[group.group] = group
    return list(best.values())


def _reliability(group: GroupSummary) -> tuple[bool, bool, int]:
    generation = _UNKNOWN if group.generation is None else group.generation
    return group.lacking is None, group.members_known, generation


def _url_label(url: str) -> str:
    return url.removeprefix("http://")


async def _mismatch(url: str) -> str:
    """Returns a clause about the protocol of a port if it differs from that of the URL, otherwise an empty text."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        return ""
    spoken = await protocol_of(Address(parts.hostname, parts.port or _HTTP_PORT))
    if spoken is PortProtocol.KAFKA:
        return "speaks Kafka, not HTTP: --bootstrap asks a port for Kafka clients"
    if spoken is PortProtocol.TLS:
        return "speaks TLS: if it is an admin port, write https:// before its address"
    return ""


def _reason(error: BaseException) -> str:
    """Returns the text of the innermost error. Each library around the socket wraps the error in its own error."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return f"no TLS: {error.reason}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError(strerror=str(text)):  # Errors of name resolution have negative numbers and clear texts.
            return text
    return str(error) or type(error).__name__
