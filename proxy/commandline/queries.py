"""Runs a command's query against its target. Without an answer, ends the program with an exit code for the error."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import trio
from outcome import Error, Outcome, Value

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.proxy.broker.broker_errors import BrokerError
from group_sidecar.proxy.commandline.broker_queries import BrokerQueries
from group_sidecar.proxy.commandline.exit_codes import exit_with_problems
from group_sidecar.proxy.commandline.results import (
    GroupDescription,
    GroupNotFound,
    GroupOffsets,
    Listing,
    NoAnswer,
)
from group_sidecar.proxy.commandline.sidecar_queries import SidecarQueries, open_sidecars
from group_sidecar.proxy.commandline.target import QueryTarget

T = TypeVar("T")


class GroupQueries(Protocol):
    """The queries that brokers and sidecars both support.

    The methods raise GroupNotFound, BrokerError, DecodeError, or NoAnswer with several such errors.
    """

    async def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Listing:
        """Returns all groups, filtered by states and types if they are given."""

    async def group(self, group_id: str) -> GroupDescription:
        """Returns one group and its members."""

    async def offsets(self, group_id: str) -> GroupOffsets:
        """Returns a group's committed offsets and their lag."""


@asynccontextmanager
async def open_queries(source: QueryTarget) -> AsyncIterator[GroupQueries]:
    """Returns a context manager that yields the queries for a target."""
    if source.bootstrap:
        yield BrokerQueries(source.bootstrap, source.timeout, source.client)
    else:
        async with open_sidecars(source) as sidecars:
            yield sidecars


def ask(source: QueryTarget, question: Callable[[GroupQueries], Awaitable[T]]) -> T:
    """Returns the answer to a query. Without an answer, prints one line for each problem and ends the program."""

    async def asked() -> T:
        async with open_queries(source) as query:
            return await question(query)

    return _or_exit(asked)


def ask_sidecars(source: QueryTarget, question: Callable[[SidecarQueries], Awaitable[T]]) -> T:
    """Returns the answer to a query that only sidecars support, like `ask`. The target must name sidecars."""

    async def asked() -> T:
        async with open_sidecars(source) as query:
            return await question(query)

    return _or_exit(asked)


def run(question: Callable[[], Awaitable[T]]) -> T:
    """Runs a query with trio. Ctrl-C cancels the query first, and then raises KeyboardInterrupt.

    Without the cancellation, Python could raise KeyboardInterrupt anywhere: in a finalizer, where it is lost, or inside
    a coroutine, which then prints a warning.
    """
    return trio.run(_interruptible, question)


async def _interruptible(question: Callable[[], Awaitable[T]]) -> T:
    answer: Outcome[T] | None = None
    with trio.open_signal_receiver(signal.SIGINT) as pressed:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, pressed, nursery.cancel_scope)
            try:
                answer = Value(await question())
            except Exception as error:  # noqa: BLE001 - the nursery would wrap it in an exception group
                answer = Error(error)
            nursery.cancel_scope.cancel()
    if answer is None:
        raise KeyboardInterrupt
    return answer.unwrap()


async def _cancel_when(pressed: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in pressed:
        scope.cancel()


def _or_exit(question: Callable[[], Awaitable[T]]) -> T:
    try:
        return run(question)
    except NoAnswer as error:
        exit_with_problems(error.problems)
    except (GroupNotFound, BrokerError, DecodeError) as error:
        exit_with_problems([error])
