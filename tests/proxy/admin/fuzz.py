"""Throws random and structured bytes at the admin port of a sidecar, with a Kafka client beside it.

The client has one connection for the whole time and asks as fast as it is answered. By hand, for minutes:

    python -m tests.proxy.admin.fuzz --seconds 600 [--tls] [--upstream HOST:PORT] [--seed 1]

Without --upstream a scripted broker stands behind the sidecar. Everything runs in one process.
"""

import argparse
import random
import resource
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
import trustme

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.runtime.addresses import Address, parse_address
from tests.proxy.admin.attacks import ATTACKS, random_attack
from tests.proxy.test_sidecar import Cluster, get, sidecar

ATTACKERS = 8
PATIENCE_SECONDS = 0.05
"""How long an attacker waits for an answer."""


@dataclass
class ReloadOutcome:
    """What came of it. `delays`: seconds that the client waited for each answer; `answers`: the first bytes."""

    connections: int = 0
    answers: Counter[bytes] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)
    failures: float = 0

    def quantile(self, share: float) -> float:
        """Of the delays."""
        return sorted(self.delays)[int(share * (len(self.delays) - 1))]


class Fuzzer:
    """Attackers of one port."""

    def __init__(self, address: Address, seed: int, tls: ssl.SSLContext | None = None) -> None:
        self.outcome = ReloadOutcome()
        self._address = address
        self._dice = random.Random(seed)
        self._tls = tls

    async def attack(self, payload: bytes) -> None:
        """One connection."""
        self.outcome.connections += 1
        try:
            plain = await trio.open_tcp_stream(*self._address)
        except OSError:
            self.outcome.answers[b"refused"] += 1
            return
        # Some of those who attack a port with TLS do not speak TLS.
        secured = self._tls is not None and self._dice.random() < 0.8
        stream: trio.abc.Stream = plain
        if secured:
            assert self._tls is not None
            stream = trio.SSLStream(plain, self._tls, server_hostname="localhost", https_compatible=True)
        async with plain:
            try:
                await self._send(stream, payload)
                with trio.move_on_after(PATIENCE_SECONDS):
                    while data := await stream.receive_some(65_536):
                        self.outcome.answers[bytes(data[:12])] += 1
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                self.outcome.answers[b"reset"] += 1

    async def _send(self, stream: trio.abc.Stream, payload: bytes) -> None:
        cuts = sorted(self._dice.randrange(len(payload) + 1) for _ in range(self._dice.randrange(3)))
        for begin, end in zip([0, *cuts], [*cuts, len(payload)], strict=True):
            with trio.fail_after(10):
                await stream.send_all(payload[begin:end])

    async def run(self, payloads: "AsyncIterator[bytes]") -> None:
        """Attacks with these, several at a time."""
        async with trio.open_nursery() as nursery:
            places = trio.Semaphore(ATTACKERS)

            async def one(payload: bytes) -> None:
                try:
                    await self.attack(payload)
                finally:
                    places.release()

            async for payload in payloads:
                await places.acquire()
                nursery.start_soon(one, payload)

    async def payloads(self, seconds: float = 0.0, count: int = 0) -> AsyncIterator[bytes]:
        """The known attacks, and then random ones for so long, or so many."""
        until = trio.current_time() + seconds
        for payload in ATTACKS.values():
            yield payload
        while trio.current_time() < until or self.outcome.connections < count:
            yield random_attack(self._dice)


async def bystand(client: KafkaClient, outcome: ReloadOutcome, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    """Asks the broker over one connection until cancelled. Raises where the connection does not hold."""
    task_status.started()
    while True:
        asked_at = time.perf_counter()
        await client.ask(ListGroupsRequest(), 0)
        outcome.delays.append(time.perf_counter() - asked_at)
        await trio.sleep(0.001)


def certificates(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """Settings of a server, and a client that trusts it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"certificate_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem")}, context


async def fuzz(
    *, seconds: float = 0.0, count: int = 0, seed: int = 1, tls: bool = False, upstream: Address | None = None
) -> ReloadOutcome:
    """Runs a sidecar, attacks it, and gives what came of it. Raises where the client or the sidecar fails."""
    with tempfile.TemporaryDirectory() as folder:
        settings, context = certificates(Path(folder)) if tls else ({}, None)
        async with trio.open_nursery() as nursery, _standing(nursery, upstream, settings) as at:
            assert at.admin is not None
            fuzzer = Fuzzer(at.admin, seed, context)
            async with connect(*at.listen) as client, trio.open_nursery() as beside:
                await beside.start(bystand, client, fuzzer.outcome)
                await fuzzer.run(fuzzer.payloads(seconds, count))
                await client_goes_on(fuzzer.outcome)
                beside.cancel_scope.cancel()
            if not tls:
                _, metrics = await get(at.admin, "/metrics")
                line = b'group_sidecar_task_failures_total{task="admin"} '
                fuzzer.outcome.failures = float(metrics.split(line)[1].split(b"\n")[0])
            nursery.cancel_scope.cancel()
        return fuzzer.outcome


async def client_goes_on(outcome: ReloadOutcome) -> None:
    """Waits until the client has had another answer."""
    before = len(outcome.delays)
    with trio.fail_after(10):
        while len(outcome.delays) < before + 2:  # noqa: ASYNC110
            await trio.sleep(0.01)


@asynccontextmanager
async def _standing(nursery: trio.Nursery, upstream: Address | None, settings: dict[str, str]) -> AsyncIterator[Any]:
    broker = upstream or await Cluster().start(nursery, 1)
    access = {"admin_access": settings} if settings else {}
    async with sidecar(broker, **access) as (at, _):
        yield at


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--upstream", type=parse_address, default=None)
    asked = parser.parse_args()

    async def run() -> ReloadOutcome:
        return await fuzz(seconds=asked.seconds, seed=asked.seed, tls=asked.tls, upstream=asked.upstream)

    outcome = trio.run(run)
    delays = ", ".join(f"p{100 * share:g} {1000 * outcome.quantile(share):.1f} ms" for share in (0.5, 0.99, 1.0))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{outcome.connections} connections; answers: {dict(outcome.answers.most_common(12))}\n"
        f"failures of the admin port: {outcome.failures:g}\n"
        f"a client beside it: {len(outcome.delays)} answers, none failed; {delays}\n"
        f"most memory: {memory:.0f} MB, attackers included\n"
    )


if __name__ == "__main__":
    main()
