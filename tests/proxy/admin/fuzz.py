"""Sends random and malformed requests to the admin port of a sidecar that serves a Kafka client at the same time.

The Kafka client sends one request after the other over one connection. To run the fuzzer for minutes:

    python -m tests.proxy.admin.fuzz --seconds 600 [--tls] [--upstream HOST:PORT] [--seed 1]

Without --upstream, the sidecar's broker is a scripted one. Everything runs in one process.
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
from tests.proxy.whole_sidecar import Cluster, get, sidecar

ATTACKERS = 8
PATIENCE_SECONDS = 0.05
"""Seconds that an attacker waits for a reply."""


@dataclass
class FuzzOutcome:
    """The results of a run.

    Attributes:
        connections: the number of attacks.
        answers: how often each reply came, by its first bytes.
        delays: seconds that the Kafka client waited for each reply.
        failures: how often the admin port's task failed.
    """

    connections: int = 0
    answers: Counter[bytes] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)
    failures: float = 0

    def quantile(self, share: float) -> float:
        """Returns this quantile of the delays."""
        return sorted(self.delays)[int(share * (len(self.delays) - 1))]


class Fuzzer:
    """Several attackers of one port."""

    def __init__(self, address: Address, seed: int, tls: ssl.SSLContext | None = None) -> None:
        self.outcome = FuzzOutcome()
        self._address = address
        self._dice = random.Random(seed)
        self._tls = tls

    async def attack(self, payload: bytes) -> None:
        """Sends one attack over its own connection, and counts the reply."""
        self.outcome.connections += 1
        try:
            plain = await trio.open_tcp_stream(*self._address)
        except OSError:
            self.outcome.answers[b"refused"] += 1
            return
        # Some attackers of a port with TLS do not use TLS.
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
        """Sends all attacks, several at a time."""
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
        """Yields the known attacks, and then random ones until `seconds` have passed and `count` attacks were made."""
        until = trio.current_time() + seconds
        for payload in ATTACKS.values():
            yield payload
        while trio.current_time() < until or self.outcome.connections < count:
            yield random_attack(self._dice)


async def bystand(client: KafkaClient, outcome: FuzzOutcome, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    """Sends requests to the broker over one connection until cancelled. Raises if the connection fails."""
    task_status.started()
    while True:
        asked_at = time.perf_counter()
        await client.ask(ListGroupsRequest(), 0)
        outcome.delays.append(time.perf_counter() - asked_at)
        await trio.sleep(0.001)


def certificates(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """Returns the settings of a server with TLS, and the TLS context of a client that trusts the server."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"certificate_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem")}, context


async def fuzz(
    *, seconds: float = 0.0, count: int = 0, seed: int = 1, tls: bool = False, upstream: Address | None = None
) -> FuzzOutcome:
    """Runs a sidecar and attacks it. Returns the results. Raises if the client or the sidecar fails."""
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


async def client_goes_on(outcome: FuzzOutcome) -> None:
    """Waits until the client has got a reply to a request that it sent after this call."""
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
    """Runs the fuzzer with the flags of the command line, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--upstream", type=parse_address, default=None)
    options = parser.parse_args()

    async def run() -> FuzzOutcome:
        return await fuzz(seconds=options.seconds, seed=options.seed, tls=options.tls, upstream=options.upstream)

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
