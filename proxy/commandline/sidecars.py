"""What the command line asks of sidecars' admin ports, all at once, and what comes of it together.

Owns: HTTP, which answers are taken where sidecars tell of the same group, what is said of one that cannot be asked.
Must not know: tables, JSON, exit codes.

A group is known to the sidecar of its coordinator. When the coordinator moves, two may tell of it for a while: the
copy that is to be relied on counts, and of two such the one of the later generation.
"""

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import httpx
import trio
from pydantic import TypeAdapter, ValidationError

from group_sidecar.proxy.commandline.answers import (
    Coordinator,
    GroupDescription,
    GroupMember,
    GroupMissing,
    GroupOffsets,
    GroupSummary,
    Listing,
    PartitionOffsets,
    Ranking,
    Timeline,
    Unanswered,
)
from group_sidecar.proxy.commandline.moments import moment
from group_sidecar.proxy.commandline.source import Source

AT_ONCE = 32
"""Sidecars that are asked at the same time."""
PAGE = 1000
"""Groups of one answer."""

_UNKNOWN = -1  # A generation.

_GROUPS = TypeAdapter(list[GroupSummary])
_GROUP = TypeAdapter(GroupSummary)
_MEMBERS = TypeAdapter(list[GroupMember])
_COORDINATOR: TypeAdapter[Coordinator | None] = TypeAdapter(Coordinator | None)
_OFFSETS = TypeAdapter(list[PartitionOffsets])
_UNREACHABLE = TypeAdapter(list[dict[str, str]])
_CELLS = TypeAdapter(list[dict[str, Any]])
_FORGOTTEN = TypeAdapter(dict[str, str | None])

T = TypeVar("T")
Told = Mapping[str, Any]
Forgotten = dict[str, str | None]
"""What an admin port answered."""


class SidecarError(Exception):
    """A sidecar did not answer as asked. The text is one line that names its admin port."""


class SidecarUnreachable(SidecarError):
    """There is no connection to be had, or no reply in time."""


class SidecarRefused(SidecarError):
    """A sidecar answers with an error, or something that is no sidecar answers."""


class BrokerGone(SidecarError):
    """A sidecar answers, and its broker does not: what it tells of groups is as it was before."""


class _Page(NamedTuple):
    """A part of one sidecar's groups; how many match, how many it has in all, and what is wrong with its broker."""

    groups: list[GroupSummary]
    total: int
    all: int
    problems: list[BrokerGone]


@dataclass(frozen=True, slots=True)
class SidecarsQuery:
    """Questions to sidecars.

    Args:
        http: is closed by whoever opened it.
        urls: their admin ports.
        patience: seconds to wait for each answer.

    The methods raise Unanswered where nobody could tell: with a SidecarError for each that could not be asked, and
    GroupMissing where others do not know the group.
    """

    http: httpx.AsyncClient
    urls: Sequence[str]
    patience: float
    limiter: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(AT_ONCE))

    async def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Listing:
        """The groups of all sidecars, or those in one of these states and of one of these types."""
        told, problems = await self._each(self.urls, self._all_groups)
        groups = _best(group for page in told.values() for group in page.groups)
        wanted = [
            group
            for group in sorted(groups, key=lambda group: group.group)
            if (not states or group.state in states) and (not types or group.protocol in types)
        ]
        return Listing(groups=wanted, problems=_with_gone(problems, told.values()))

    async def ranked(self, sort: str, descending: bool, search: str, limit: int) -> Ranking:
        """The first `limit` groups by one of the admin port's own orders, of those whose name has `search` in it."""

        async def first(url: str) -> _Page:
            order = "desc" if descending else "asc"
            return await self._page(url, search=search, sort=sort, order=order, limit=limit)

        told, problems = await self._each(self.urls, first)
        pages = told.values()
        return Ranking(
            groups=_best(group for page in pages for group in page.groups),
            total=sum(page.total for page in pages),
            all=sum(page.all for page in pages),
            problems=_with_gone(problems, pages),
        )

    async def group(self, group_id: str) -> GroupDescription:
        """One group, as the sidecar that knows it best describes it."""
        told, problems = await self._knowing(self.urls, "group", group_id, _described)
        return replace(max(told.values(), key=_reliability), problems=problems)

    async def offsets(self, group_id: str) -> GroupOffsets:
        """What a group has committed, as the sidecar tells it that knows the group best."""
        group = await self.group(group_id)
        known_best = [url for url in self.urls if _shown(url) == group.sidecar]
        told, _ = await self._knowing(known_best, "offsets", group_id, _committed)
        [offsets] = told.values()
        return GroupOffsets(
            group=group_id, state=group.state, offsets=offsets, sidecar=group.sidecar, problems=group.problems
        )

    async def timeline(self, group_id: str) -> Timeline:
        """What happened to a group, as all sidecars have seen it."""
        told, problems = await self._knowing(
            self.urls, "timeline", group_id, lambda url, told: (_cells(url, told), _forgotten(told))
        )
        cells = sorted((cell for cells, _ in told.values() for cell in cells), key=lambda cell: moment(cell["at"]))
        forgotten: Forgotten = {}
        for _, each in told.values():
            for kind, at in each.items():
                forgotten[kind] = max(filter(None, (at, forgotten.get(kind))), default=None)
        return Timeline(group=group_id, timeline=cells, forgotten=forgotten, problems=problems)

    async def _all_groups(self, url: str) -> _Page:
        groups: list[GroupSummary] = []
        while True:
            page = await self._page(url, sort="group", order="asc", limit=PAGE, offset=len(groups))
            groups += page.groups
            if not page.groups or len(groups) >= page.total:
                return page._replace(groups=groups)

    async def _page(self, url: str, **query: str | int) -> _Page:
        told = await self._get(url, "groups", **query)
        return _read(url, lambda: _Page(_summaries(url, told), int(told["total"]), int(told["all"]), _gone(url, told)))

    async def _knowing(
        self, urls: Sequence[str], what: str, group_id: str, read: Callable[[str, Told], T]
    ) -> tuple[dict[str, T], list[SidecarError]]:
        """The answers of those that know the group. Raises Unanswered where none does.

        A sidecar whose broker is away is a problem in both cases: it may know less of the group for that.
        """

        async def ask(url: str) -> tuple[T | None, list[BrokerGone]]:
            reply = await self._reply(url, what, group=group_id)
            if reply.status_code == HTTPStatus.NOT_FOUND and "group" in (missing := _object(reply)):
                return None, _read(url, lambda: _gone(url, missing))
            told = _accepted(url, reply)
            return _read(url, lambda: (read(url, told), _gone(url, told)))

        answers, problems = await self._each(urls, ask)
        problems += sorted((gone for _, each in answers.values() for gone in each), key=str)
        known = {url: answer for url, (answer, _) in answers.items() if answer is not None}
        if not known:
            raise Unanswered([GroupMissing(group_id), *problems])
        return known, problems

    async def _each(
        self, urls: Iterable[str], ask: Callable[[str], Awaitable[T]]
    ) -> tuple[dict[str, T], list[SidecarError]]:
        """All answers by URL, and one problem for each sidecar that gave none. Raises these where none gave any."""
        told: dict[str, T] = {}
        problems: list[SidecarError] = []

        async def try_one(url: str) -> None:
            try:
                async with self.limiter:
                    told[url] = await ask(url)
            except SidecarError as error:
                problems.append(error)

        async with trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(try_one, url)
        problems.sort(key=str)
        if not told:
            raise Unanswered(problems)
        return told, problems

    async def _get(self, url: str, what: str, **query: str | int) -> Told:
        return _accepted(url, await self._reply(url, what, **query))

    async def _reply(self, url: str, what: str, **query: str | int) -> httpx.Response:
        try:
            with trio.fail_after(self.patience):
                return await self.http.get(f"{url}/api/v1/{what}", params=query)
        except (trio.TooSlowError, httpx.TimeoutException):
            raise SidecarUnreachable(f"{_shown(url)} did not answer within {self.patience:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # The last two: no such name can exist.
            raise SidecarUnreachable(f"{_shown(url)} cannot be reached: {_reason(error)}") from None


@asynccontextmanager
async def opened(source: Source) -> AsyncIterator[SidecarsQuery]:
    """What asks this source's admin ports, for the length of a with statement."""
    headers = {"accept": "application/json", "user-agent": "kafka-group-sidecar"}
    if source.token:
        headers["authorization"] = f"Bearer {source.token}"
    # Without proxies of the environment: these see the token, and admin ports are near.
    async with httpx.AsyncClient(
        headers=headers,
        verify=source.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=False,
        timeout=source.timeout,
    ) as http:
        yield SidecarsQuery(http, source.sidecars, source.timeout)


def _object(reply: httpx.Response) -> Told:
    """What stands in a reply; nothing where it is no JSON object."""
    try:
        told = reply.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _accepted(url: str, reply: httpx.Response) -> Told:
    """What stands in a reply that is no error. Raises SidecarRefused."""
    if reply.status_code == HTTPStatus.OK:
        return _object(reply)
    path = reply.url.path
    if reply.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        sent = "authorization" in reply.request.headers
        said = "does not take this token" if sent else "wants a token: --token-file FILE"
    elif reply.status_code == HTTPStatus.NOT_FOUND:
        said = f"has no {path}: it is older, or not the admin port of a sidecar"
    else:
        reason = _object(reply).get("error")
        said = f"answers {path} with status {reply.status_code}{f': {reason}' if reason else ''}"
    raise SidecarRefused(f"{_shown(url)} {said}")


def _read(url: str, read: Callable[[], T]) -> T:
    """What is read from an answer. Raises SidecarRefused where it is not in the answer."""
    try:
        return read()
    except (ValidationError, LookupError, TypeError, ValueError):
        raise SidecarRefused(f"{_shown(url)} does not answer as a sidecar's admin port") from None


def _summaries(url: str, told: Told) -> list[GroupSummary]:
    return [_named(url, group) for group in _GROUPS.validate_python(told["groups"])]


def _gone(url: str, told: Told) -> list[BrokerGone]:
    brokers = _UNREACHABLE.validate_python(told.get("unreachable", []))  # Older sidecars do not tell it.
    return [
        BrokerGone(f"{_shown(url)}: broker {each['broker']} unreachable since {each['since']}: {each['reason']}")
        for each in brokers
    ]


def _with_gone(problems: list[SidecarError], pages: Iterable[_Page]) -> list[SidecarError]:
    return [*problems, *sorted((gone for page in pages for gone in page.problems), key=str)]


def _named(url: str, group: GroupSummary) -> GroupSummary:
    """With who told it. A generation that is not known is None, as it is of brokers."""
    return replace(group, sidecar=_shown(url), generation=None if group.generation == _UNKNOWN else group.generation)


def _described(url: str, told: Told) -> GroupDescription:
    summary = asdict(_named(url, _GROUP.validate_python(told)))
    members = _MEMBERS.validate_python(told["member_list"])
    where = _COORDINATOR.validate_python(told.get("coordinator"))  # Older sidecars do not tell it.
    return GroupDescription(**summary, coordinator=where, leader=told["leader"], member_list=members)


def _committed(_: str, told: Told) -> list[PartitionOffsets]:
    return _OFFSETS.validate_python(told["offsets"])


def _cells(url: str, told: Told) -> list[dict[str, Any]]:
    cells = _CELLS.validate_python(told["timeline"])
    for cell in cells:
        moment(cell["at"])
        cell["what"] = str(cell["what"])
    return [cell | {"sidecar": _shown(url)} for cell in cells]


def _forgotten(told: Told) -> Forgotten:
    """What a sidecar no longer keeps; older ones do not tell."""
    found = _FORGOTTEN.validate_python(told.get("forgotten", {}))
    for at in filter(None, found.values()):
        moment(at)
    return found


def _best(groups: Iterable[GroupSummary]) -> list[GroupSummary]:
    """Each group once."""
    best: dict[str, GroupSummary] = {}
    for group in groups:
        known = best.get(group.group)
        if known is None or _reliability(group) > _reliability(known):
            best[group.group] = group
    return list(best.values())


def _reliability(group: GroupSummary) -> tuple[bool, bool, int]:
    generation = _UNKNOWN if group.generation is None else group.generation
    return group.lacking is None, group.members_known, generation


def _shown(url: str) -> str:
    return url.removeprefix("http://")


def _reason(error: BaseException) -> str:
    """The innermost reason: each library around the socket puts its own error before it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return f"no TLS: {error.reason}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError(strerror=str(text)):  # Name resolution has negative numbers and good texts.
            return text
    return str(error) or type(error).__name__
