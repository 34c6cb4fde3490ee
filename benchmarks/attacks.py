"""Measures how long a client waits while other clients exceed a limit of the sidecar.

    python -m benchmarks.attacks [--quick] [ATTACK ...]

Starts a real broker, and for each attack a sidecar with the limit that the attack exceeds. The attack comes from
another loopback address than the bystander. The attack runs against the broker's own address, and against the
sidecar's. Each attack runs in a process of its own and ends with its measurement. The broker has no such limits, and no
admin port.
"""

import argparse
import http.client
import multiprocessing
import selectors
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.broker_and_sidecar import BROKER
from benchmarks.bystander import CALM_SECONDS, CONNECTIONS, FLOODS, PARTITIONS, RATE, Round, flood_forever
from benchmarks.load_driver import close, connected, latencies
from benchmarks.many_groups import TOPICS, commit_all, commit_request, create_topics
from benchmarks.markdown_tables import table
from benchmarks.mixed import Latencies
from benchmarks.section import Section
from benchmarks.targets import JAVA_OPTIONS
from benchmarks.workloads import HEARTBEAT, Asker, framed
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from tests.certificates import Authority, Certificate
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess

ATTACKER = "127.0.0.2"
"""The address from which attacks come."""
AT_ONCE = 300
"""Connections that an attack has open at a time."""
HELD = 3_000
"""TLS handshakes that an attack holds open at a time."""
GUESSING = 8
"""Connections that guess the token of the admin port."""
OPENED_PER_SECOND = 1_000
"""Connections that an attack opens per second. With more, the attack itself would fill the cores."""
ROUND_SECONDS = 0.01
OPENED_PER_ROUND = round(OPENED_PER_SECOND * ROUND_SECONDS)
MIB = 1 << 20
OPENED_APART_SECONDS = 0.02
"""Seconds between two TLS connections of a bystander."""
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS ClientHello."""
_HANDSHAKE = framed(SaslHandshakeRequest(mechanism="PLAIN"), 1)


class Targets(NamedTuple):
    """The addresses to which the bystander and an attack connect."""

    bystander: Address
    attack: Address


def _open(address: Address) -> socket.socket:
    opened = socket.socket()
    opened.setblocking(False)
    opened.bind((ATTACKER, 0))
    with suppress(BlockingIOError):
        opened.connect(address)
    return opened


def keep_open(address: Address, first: bytes, done: Any, count: int = AT_ONCE) -> None:
    """Keeps `count` connections open that send only `first`, and replaces connections that the other side closes."""
    opened = 0
    with selectors.EpollSelector() as selector:
        while True:
            for _ in range(min(OPENED_PER_ROUND, count - opened)):
                selector.register(_open(address), selectors.EVENT_READ | selectors.EVENT_WRITE)
                opened += 1
            for key, events in selector.select(0):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    if events & selectors.EVENT_WRITE:
                        connection.send(first)
                        selector.modify(connection, selectors.EVENT_READ)
                        done.value += 1
                    elif not connection.recv(4096):
                        raise ConnectionError
                except OSError:
                    selector.unregister(connection)
                    connection.close()
                    opened -= 1
            time.sleep(ROUND_SECONDS)


def churn(address: Address, done: Any, request: bytes = HEARTBEAT) -> None:
    """Opens connections all the time, and closes each connection after one request."""
    opened: list[socket.socket] = []
    while True:
        opened += [_open(address) for _ in range(OPENED_PER_ROUND)]
        time.sleep(ROUND_SECONDS)
        for connection in opened[:-AT_ONCE]:
            with suppress(OSError):
                connection.send(request)
            connection.close()
            done.value += 1
        del opened[:-AT_ONCE]


def _guess(address: Address, done: Any) -> None:
    while True:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(*address, source_address=(ATTACKER, 0))
            for number in range(1000):
                headers = {"authorization": f"Bearer guess-{number}", "x-forwarded-for": "10.0.0.1"}
                connection.request("GET", "/api/v1/groups", headers=headers)
                connection.getresponse().read()
                done.value += 1


def guess(address: Address, done: Any) -> None:
    """Guesses the token of the admin port on several connections."""
    for _ in range(GUESSING - 1):
        threading.Thread(target=_guess, args=(address, done), daemon=True).start()
    _guess(address, done)


def unfinished_tls(address: Address, done: Any) -> None:
    """Begins TLS handshakes and does not finish them."""
    keep_open(address, _HELLO, done)


def held_tls(address: Address, done: Any) -> None:
    """Begins more TLS handshakes than `unfinished_tls`, and does not finish them."""
    keep_open(address, _HELLO, done, HELD)


def client_hellos(address: Address, done: Any) -> None:
    """Opens connections all the time, and closes each connection after a whole ClientHello."""
    outgoing = ssl.MemoryBIO()
    client = _trusting().wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    churn(address, done, outgoing.read())


def unauthenticated(address: Address, done: Any) -> None:
    """Begins SASL and sends no token."""
    keep_open(address, _HANDSHAKE, done)


def many_from_one(address: Address, done: Any) -> None:
    """Keeps more connections open than one address may have."""
    keep_open(address, HEARTBEAT, done)


def never_reads(address: Address, done: Any) -> None:
    """Asks long questions, and reads no answer."""
    flood_forever(address, FLOODS[0], done)


class Attack(NamedTuple):
    """An attack and the limit that it exceeds.

    Attributes:
        run: attacks an address until it is killed.
        does: the description of the attack for the page.
        limits: the limits of the sidecar.
        listener: the listener that is attacked.
        at_broker: whether the broker can be attacked in the same way.
        opens_tls: whether the bystander opens TLS connections at the attacked listener. Otherwise it sends Heartbeats
            on open connections.
    """

    run: Callable[[Address, Any], None]
    does: str
    limits: Mapping[str, int]
    listener: str = "plain"
    at_broker: bool = True
    opens_tls: bool = False


ATTACKS = {
    "addresses": Attack(many_from_one, f"keeps {AT_ONCE} connections open", {"connections_per_address": 50}),
    "accepts": Attack(churn, "opens connections", {"accept_rate": 200}),
    "tls": Attack(unfinished_tls, f"keeps {AT_ONCE} TLS handshakes open", {"handshake_seconds": 1}, "tls"),
    "hellos": Attack(client_hellos, "sends ClientHellos", {}, "tls"),
    "handshakes": Attack(
        client_hellos, "sends ClientHellos; the client opens TLS connections", {}, "tls", opens_tls=True
    ),
    "held": Attack(held_tls, f"keeps {HELD:,} TLS handshakes open", {}, "tls"),
    "sasl": Attack(unauthenticated, f"keeps {AT_ONCE} SASL handshakes open", {"authentication_seconds": 1}, "sasl"),
    "budget": Attack(never_reads, "asks much and reads nothing", {"buffered_bytes": MIB}),
    "guesses": Attack(guess, "guesses the admin token", {}, "admin", at_broker=False),
}


@contextmanager
def _attacking(attack: Attack, address: Address) -> Iterator[None]:
    """Attacks from a separate process for the length of a with statement."""
    spawning = multiprocessing.get_context("spawn")
    done = spawning.Value("q", 0)
    process = spawning.Process(target=attack.run, args=(address, done), daemon=True)
    process.start()
    try:
        while not done.value and process.is_alive():
            time.sleep(0.01)
        yield
        if not process.is_alive():
            raise RuntimeError("the attack ended")
    finally:
        process.kill()
        process.join()


def _latencies(targets: Targets, attack: Attack, seconds: float, *, attacked: bool) -> Latencies:
    connections = [] if attack.opens_tls else connected(targets.bystander, CONNECTIONS, HEARTBEAT)
    with _attacking(attack, targets.attack) if attacked else nullcontext():
        if attack.opens_tls:
            taken = _tls_connections(targets.attack, seconds)
        else:
            taken = latencies(connections, HEARTBEAT, RATE, seconds)
    close(connections)
    time.sleep(CALM_SECONDS)
    return Latencies([each * 1000 for each in taken])


def _tls_connections(address: Address, seconds: float) -> list[float]:
    """Opens TLS connections one after the other, and sends one request on each. Returns the sorted seconds of each."""
    context, taken, ends = _trusting(), list[float](), time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        with Asker(address, context) as asker:
            asker.ask(HEARTBEAT)
        taken.append(time.perf_counter() - began)
        time.sleep(OPENED_APART_SECONDS)
    return sorted(taken)


def _trusting() -> ssl.SSLContext:
    """Returns the context of a client that accepts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextmanager
def _sidecar(folder: Path, broker: KafkaBroker, certificate: Certificate, attack: Attack) -> Iterator[Targets]:
    """Starts a sidecar with the limit of an attack. Yields the addresses for the bystander and the attack."""
    [tls] = free_addresses(1)
    places = {
        "plain": (broker.sidecar, broker.client, {}),
        "sasl": (broker.sasl_sidecar, broker.sasl_client, {}),
        "tls": (tls, broker.client, {"tls": certificate.settings}),
    }
    listeners = [
        {"name": name, "listen": host_port(listen), "upstream": host_port(upstream), **more}
        for name, (listen, upstream, more) in places.items()
    ]
    settings = {
        "listeners": listeners,
        "answers": {"exclusive": True},
        "limits": dict(attack.limits),
        "admin_access": {"token": "correct horse"},
    }
    with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
        sidecar.wait_for_log()
        attacked = sidecar.admin if attack.listener == "admin" else places[attack.listener][0]
        yield Targets(broker.sidecar, attacked)


def _row(attack: Attack, to: str, rounds: Sequence[Round]) -> list[str]:
    alone, beside = (median(latencies.at(0.99) for latencies in each) for each in zip(*rounds, strict=True))
    limit = ", ".join(f"`{name}: {value}`" for name, value in attack.limits.items()) or "default"
    half = median(each.beside.at(0.5) for each in rounds)
    return [
        attack.does,
        limit if to == "sidecar" else "none",
        to,
        *(f"{each:.2f}" for each in (alone, half, beside, beside / alone)),
    ]


def _rounds(targets: Targets, attack: Attack, count: int, seconds: float) -> list[Round]:
    measured = partial(_latencies, targets, attack)
    measured(seconds / 2, attacked=True)  # A first load makes the JVM compile the broker's code.
    return [Round(measured(seconds, attacked=False), measured(seconds, attacked=True)) for _ in range(count)]


def _broker(folder: Path, certificate: Certificate) -> KafkaBroker:
    """Returns a broker with a plain listener, one with SASL and one with TLS."""
    folder.mkdir()
    keystore = folder / "keystore.pem"
    keystore.write_bytes(certificate.java_keystore)
    protocols = {**dict.fromkeys(("CLIENT", "DIRECT", "CONTROLLER"), "PLAINTEXT"), "TLS": "SSL"}
    protocols |= dict.fromkeys(("SASL_CLIENT", "SASL_DIRECT"), "SASL_PLAINTEXT")
    properties = {
        **BROKER,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": str(keystore),
    }
    return KafkaBroker(folder / "broker", properties=properties, java_options=JAVA_OPTIONS, sasl=True, more=("TLS",))


def measure(quick: bool, names: Sequence[str] = tuple(ATTACKS)) -> Section:
    """Measures with its own broker and sidecars."""
    count, seconds = (1, 3.0) if quick else (3, 5.0)
    rows = []
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        certificate = Authority(Path(place, "authority")).issue("127.0.0.1")
        broker = stack.enter_context(_broker(Path(place, "kafka"), certificate))
        broker.wait_for_coordinator()
        at_broker = {"plain": broker.direct, "sasl": broker.sasl_direct, "tls": broker.more["TLS"]}
        for name in names:
            attack = ATTACKS[name]
            with _sidecar(Path(place, name), broker, certificate, attack) as targets:
                if name == next(iter(names)):
                    create_topics(broker.direct, TOPICS[:1])
                commit_all(broker.sidecar, [commit_request("flooded", PARTITIONS)])
                if attack.at_broker:
                    direct = Targets(broker.direct, at_broker[attack.listener])
                    rows.append(_row(attack, "direct", _rounds(direct, attack, count, seconds)))
                rows.append(_row(attack, "sidecar", _rounds(targets, attack, count, seconds)))
    head = ["the attack", "limit", "to", "p99 alone, ms", "p50 beside, ms", "p99 beside, ms", "p99, ratio"]
    text = f"""\
In `python -m benchmarks.attacks`, a client sends {RATE} Heartbeats per second over {CONNECTIONS} connections from
127.0.0.1, each at its due time. First there is no other load ("alone"). Then another process attacks from {ATTACKER}
("beside"). The figures are milliseconds from the due time of a request to its reply, as medians of {count} rounds of
{seconds:.0f} s. In two rows, the client opens TLS connections one after the other, and the figures are for a connection
with its first reply. The broker, the sidecar and both clients share the cores. An attack opens at most
{OPENED_PER_SECOND:,} connections per second.

"""
    return Section("A client beside attacks", text + "\n".join(table(head, rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"{', '.join(ATTACKS)}; by default all of them")
    given = parser.parse_args()
    if unknown := set(given.attacks) - ATTACKS.keys():
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    print(measure(given.quick, given.attacks or tuple(ATTACKS)).text)
