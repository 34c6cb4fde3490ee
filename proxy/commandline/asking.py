"""Puts a question to whomever a Source names, and says what went wrong.

Owns: which of both queries is used; one line for each thing that went wrong, and the exit code for it. Must not know:
what is asked, what is shown.
"""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn, Protocol, TypeVar

import trio
import typer
from outcome import Error, Outcome, Value

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.proxy.client import BrokerClosed, BrokerError, BrokerSilent, BrokerUnreachable
from group_sidecar.proxy.commandline.answers import (
    GroupDescription,
    GroupMissing,
    GroupOffsets,
    Listing,
    Unanswered,
)
from group_sidecar.proxy.commandline.brokers import GroupsQuery
from group_sidecar.proxy.commandline.sidecars import BrokerGone, SidecarsQuery, SidecarUnreachable, opened
from group_sidecar.proxy.commandline.source import Source
from group_sidecar.proxy.commandline.tables import printable

PROGRAM = "group-sidecar"
REFUSED, UNREACHABLE = 1, 2
"""Exit codes."""

_UNREACHABLE = (BrokerUnreachable, BrokerSilent, BrokerClosed, SidecarUnreachable, BrokerGone)

T = TypeVar("T")


class Query(Protocol):
    """What brokers and sidecars can both be asked.

    The methods raise GroupMissing, BrokerError and DecodeError, or Unanswered for more than one of them.
    """

    async def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Listing:
        """All groups, or those in one of these states and of one of these types."""

    async def group(self, group_id: str) -> GroupDescription:
        """One group and its members."""

    async def offsets(self, group_id: str) -> GroupOffsets:
        """What a group has committed, and how far behind the logs' ends that is."""


@asynccontextmanager
async def asking(source: Source) -> AsyncIterator[Query]:
    """What answers for this source, for the length of a with statement."""
    if source.bootstrap:
        yield GroupsQuery(source.bootstrap, source.timeout)
    else:
        async with opened(source) as sidecars:
            yield sidecars


def ask(source: Source, question: Callable[[Query], Awaitable[T]]) -> T:
    """The answer. Where there is none, says why, one line each, and ends the program."""

    async def asked() -> T:
        async with asking(source) as query:
            return await question(query)

    return _or_exit(asked)


def ask_sidecars(source: Source, question: Callable[[SidecarsQuery], Awaitable[T]]) -> T:
    """As `ask`, of what only sidecars know; none but they are named."""

    async def asked() -> T:
        async with opened(source) as query:
            return await question(query)

    return _or_exit(asked)


def finish(problems: Iterable[Exception]) -> None:
    """Prints one line for each problem. Ends the program with the code for the worst, where there is one."""
    code = _complain(problems)
    if code:
        raise typer.Exit(code)


def give_up(problems: Iterable[Exception]) -> NoReturn:
    """As `finish`, where there is a problem."""
    raise typer.Exit(_complain(problems))


def _complain(problems: Iterable[Exception]) -> int:
    code = 0
    for problem in problems:
        typer.echo(f"{PROGRAM}: {printable(str(problem))}", err=True)
        code = max(code, UNREACHABLE if isinstance(problem, _UNREACHABLE) else REFUSED)
    return code


def run(question: Callable[[], Awaitable[T]]) -> T:
    """As `trio.run`; but a Ctrl-C is a KeyboardInterrupt only when the question has been ended in order.

    By itself it would be raised wherever the interpreter is: in a finalizer, where it is lost, or half way into a
    coroutine, which then complains.
    """
    return trio.run(_interruptible, question)


async def _interruptible(question: Callable[[], Awaitable[T]]) -> T:
    answer: Outcome[T] | None = None
    with trio.open_signal_receiver(signal.SIGINT) as pressed:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, pressed, nursery.cancel_scope)
            try:
                answer = Value(await question())
            except Exception as error:  # noqa: BLE001 - the nursery would make a group of it
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
    except Unanswered as error:
        give_up(error.problems)
    except (GroupMissing, BrokerError, DecodeError) as error:
        give_up([error])
