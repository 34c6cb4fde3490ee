"""Compares TLS to the sidecar with TLS to the broker itself and to HAProxy.

    python -m benchmarks.tls [--quick]

All clients speak TLS. The broker's own listener with TLS is the direct connection. The sidecar and HAProxy terminate
TLS in front of a plain listener of the broker on the loopback. A second listener of the same sidecar re-encrypts.
"""

import argparse
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.markdown_tables import cpu_table, ratio_table, target_table
from benchmarks.rounds import Row, measured
from benchmarks.section import Section
from benchmarks.targets import BROKER, CONNECTIONS, DIRECT, JAVA_OPTIONS, Target
from benchmarks.workloads import HEARTBEAT, RECORD, Asker, consume, one_by_one, produce, side_by_side
from scripts.bootstrap import haproxy
from tests.certificates import Authority, Certificate
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, ChildProcess, host_port
from tests.kafka.sidecar_process import SidecarProcess

SECONDS, QUICK_SECONDS = 4 * 60.0, 40.0
AT_LEAST = 2
TO_READ, TO_WRITE = "to-read", "to-write"
RECORDS, MANY, FEW, OPENED = 200_000, 10_000, 4_000, 300
QUICK_SHARE = 4
AGAIN = "sidecar, re-encrypted"
SHORT = {"retention.bytes": "200000000", "segment.bytes": "100000000"}


@dataclass(frozen=True)
class Keys:
    """The certificates of all servers, and the authority that clients trust."""

    authority: Authority
    server: Certificate

    @property
    def client(self) -> dict[str, str]:
        """The settings of a librdkafka client."""
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.authority.file)}

    @property
    def context(self) -> ssl.SSLContext:
        """The context of a client that sends frames."""
        return ssl.create_default_context(cafile=self.authority.file)


def rows(keys: Keys, share: int = 1) -> list[Row]:
    """Returns all rows. `share` divides the amount of work."""
    records, many, few, opened = (count // share for count in (RECORDS, MANY, FEW, OPENED))
    rate, gigabytes, client, context = "per second", records * len(RECORD) / 1e9, keys.client, keys.context
    return [
        Row("produce 1 KiB, acks=1", "MB/s", lambda at: produce(at, TO_WRITE, records, client), gigabytes, "GB"),
        Row("consume", "MB/s", lambda at: consume(at, TO_READ, records, client), gigabytes, "GB"),
        Row(
            "Heartbeat, 16 connections",
            rate,
            lambda at: side_by_side(at, HEARTBEAT, 16, many, context),
            many / 1e4,
            "10,000",
        ),
        Row("Heartbeat, 1 connection", rate, lambda at: one_by_one(at, HEARTBEAT, few, context), few / 1e4, "10,000"),
        Row("connect, Heartbeat, close", rate, partial(_open_all, opened, context), opened / 1e4, "10,000"),
    ]


def _open_all(count: int, context: ssl.SSLContext, address: Address) -> float:
    """Returns connections per second. Each connection sends one request, and is closed before the next one opens."""

    def open_one() -> float:
        with Asker(address, context) as asker:
            return asker.ask(HEARTBEAT)

    began = time.perf_counter()
    for _ in range(count):
        open_one()
    return count / (time.perf_counter() - began)


@contextmanager
def running(folder: Path) -> Iterator[tuple[Keys, list[Target], KafkaBroker]]:
    """Runs a broker with and without TLS, and the proxies that terminate TLS, for the length of a with statement."""
    authority = Authority(folder / "ca")
    keys = Keys(authority, authority.issue("127.0.0.1"))
    keystore = folder / "broker.pem"
    keystore.write_bytes(keys.server.java_keystore)
    secure = ("TLS_DIRECT", "AGAIN")
    names = ("CLIENT", "DIRECT", "CONTROLLER", "HAPROXY")
    protocols = [*(f"{name}:PLAINTEXT" for name in names), *(f"{name}:SSL" for name in secure)]
    properties = {**BROKER, "listener.security.protocol.map": ",".join(protocols)}
    for name in secure:
        prefix = f"listener.name.{name.lower()}.ssl.keystore"
        properties |= {f"{prefix}.type": "PEM", f"{prefix}.location": str(keystore)}
    broker = KafkaBroker(
        folder / "broker",
        properties=properties,
        proxies=("AGAIN", "HAPROXY"),
        more=("TLS_DIRECT",),
        java_options=JAVA_OPTIONS,
    )
    with ExitStack() as stack:
        stack.enter_context(broker)
        broker.wait_for_coordinator()
        java = " ".join(JAVA_OPTIONS)
        version = f"Kafka {broker.release.version}"
        targets = [Target(DIRECT, broker.more["TLS_DIRECT"], psutil.Process(broker.pid), version, f"`{java}`")]
        targets += _sidecars(stack, folder, broker, keys)
        if program := haproxy():
            targets.append(_haproxy(stack, program, folder, broker, keys))
        yield keys, targets, broker


def _sidecars(stack: ExitStack, folder: Path, broker: KafkaBroker, keys: Keys) -> list[Target]:
    tls, again = keys.server.settings, broker.proxies["AGAIN"]
    trusted = {"ca_file": str(keys.authority.file)}
    listeners: list[dict[str, Any]] = [
        {"name": "EDGE", "listen": host_port(broker.sidecar), "upstream": host_port(broker.client), "tls": tls},
        {
            "name": "AGAIN",
            "listen": host_port(again),
            "upstream": host_port(broker.upstreams["AGAIN"]),
            "tls": tls,
            "upstream_tls": trusted,
        },
    ]
    settings = {
        "listeners": listeners,
        "policies": {"group_max_size": {"limit": 1}},
        "answers": {"exclusive": True},
        "limits": {"connections": CONNECTIONS},
    }
    sidecar = SidecarProcess(folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=settings)
    stack.enter_context(sidecar)
    sidecar.wait_for_log()
    process = psutil.Process(sidecar.process.running.pid)
    return [
        Target("sidecar", broker.sidecar, process, "this one", "terminates TLS; as in the section on forwarding"),
        Target(AGAIN, again, process, "this one", "another listener of the same process"),
    ]


def _haproxy(stack: ExitStack, program: str, folder: Path, broker: KafkaBroker, keys: Keys) -> Target:
    listen, upstream = broker.proxies["HAPROXY"], broker.upstreams["HAPROXY"]
    pem, file = folder / "haproxy.pem", folder / "haproxy.cfg"
    pem.write_bytes(keys.server.certificate_file.read_bytes() + keys.server.key_file.read_bytes())
    file.write_text(
        f"global\n  maxconn {CONNECTIONS}\n"
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 1h\n  timeout server 1h\n"
        f"listen kafka\n  bind {host_port(listen)} ssl crt {pem}\n  server broker {host_port(upstream)}\n"
    )
    child = stack.enter_context(ChildProcess([program, "-db", "-f", str(file)], folder / "haproxy.log"))
    child.wait_until(lambda: _accepts(listen, keys.context))
    output = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout
    return Target("HAProxy (C)", listen, psutil.Process(child.running.pid), output.split()[2], "terminates TLS")


def _accepts(address: Address, context: ssl.SSLContext) -> bool:
    try:
        with Asker(address, context):
            return True
    except OSError:
        return False


def measure(quick: bool) -> Section:
    """Measures with its own broker and proxies."""
    seconds, share = (QUICK_SECONDS, QUICK_SHARE) if quick else (SECONDS, 1)
    with tempfile.TemporaryDirectory() as place, running(Path(place)) as (keys, targets, broker):
        admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
        topics = [NewTopic(TO_READ, 1, 1), NewTopic(TO_WRITE, 1, 1, config=SHORT)]
        for created in admin.create_topics(topics).values():
            created.result()
        produce(broker.direct, TO_READ, RECORDS // share)
        results = measured(rows(keys, share), targets, seconds, AT_LEAST)
    parts = [
        INTRODUCTION.format(rounds=results.rounds),
        *target_table(targets),
        f"\n{RATIOS}\n",
        *ratio_table(results),
        f"\n{CPU}\n",
        *cpu_table(results),
    ]
    return Section("TLS", "\n".join(parts))


INTRODUCTION = """\
`python -m benchmarks.tls` starts a broker with a TLS listener. It also starts a sidecar and HAProxy, which terminate
TLS in front of a plain listener of the same broker. The same clients send the same load over TLS 1.3 to each of them in
turn, in a warm-up round and in {rounds} rounds that count. Clients, proxies and the broker share the machine.
"""
RATIOS = """\
This table compares each target with TLS to the broker itself. A figure is the target's rate divided by the direct rate
**of the same round**, as minimum, **median** and maximum. More is better. The column `direct` has the median of the
direct rates."""
CPU = """\
This table has the CPU seconds of each process over all rounds. The column `direct` has the broker's CPU seconds under
direct requests. One sidecar process has both listeners, with and without TLS to the broker. Only one of these listeners
had load at a time."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    print(measure(parser.parse_args().quick).text)
