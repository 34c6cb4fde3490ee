"""How many wrong tokens a client address may send to the admin port."""

from pathlib import Path

import pytest
import trio

from group_sidecar.metrics.admin_counters import AdminCounters, TokenRefusal
from group_sidecar.proxy.admin import guess_limit
from group_sidecar.proxy.admin.guess_limit import FREE_GUESSES, GuessLimit
from tests.proxy.admin.served_app import ask
from tests.proxy.admin.test_access import ELSEWHERE, TOKEN, bearer, port

PATH = "/api/v1/groups"
OTHER = ("10.0.0.10", 40_000)
PROXY = ("127.0.0.1", 40_000)


class Guesses(GuessLimit):
    """A limit of 60 wrong tokens a minute, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counters = AdminCounters()
        super().__init__(60, self.counters, lambda: self.now)

    def wrong(self, host: str = "10.0.0.1") -> int:
        """Sends a wrong token. Returns the seconds to wait, 0 if the token was compared."""
        if seconds := self.take_guess(host):
            return seconds
        self.was_wrong(host)
        return 0


async def test_address_with_wrong_tokens_must_wait() -> None:
    """After ten wrong tokens, an address gets 429, even with the right token. Other addresses are not affected."""
    app = port(token=TOKEN)
    for _ in range(FREE_GUESSES):
        assert (await ask(app, PATH, client=ELSEWHERE, authorization=bearer("guess"))).status == 401
    for token in ("guess", TOKEN):
        reply = await ask(app, PATH, client=(ELSEWHERE[0], 50_000), authorization=bearer(token))
        assert reply.status == 429
        assert reply.headers["retry-after"] == "1"
    assert (await ask(app, PATH, client=OTHER, authorization=bearer(TOKEN))).status == 200
    assert (await ask(app, "/healthz", client=ELSEWHERE, authorization=bearer("guess"))).status == 200
    assert (await ask(app, PATH, client=ELSEWHERE)).status == 401


async def test_right_tokens_are_not_limited() -> None:
    """A client with the right token may send any number of requests, also after some wrong tokens."""
    app = port(token=TOKEN)
    for _ in range(FREE_GUESSES - 1):
        assert (await ask(app, PATH, client=ELSEWHERE, authorization=bearer("guess"))).status == 401
    for _ in range(10 * FREE_GUESSES):
        assert (await ask(app, PATH, client=ELSEWHERE, authorization=bearer(TOKEN))).status == 200


async def test_loopback_proxy_is_limited() -> None:
    """Wrong tokens that come through a proxy on this machine are limited, and local clients need no token."""
    app = port(token=TOKEN)
    statuses = [
        (await ask(app, PATH, client=PROXY, authorization=bearer("guess"), x_forwarded_for="10.0.0.1")).status
        for _ in range(FREE_GUESSES + 1)
    ]
    assert statuses == [401] * FREE_GUESSES + [429]
    assert (await ask(app, PATH, client=PROXY)).status == 200


async def test_guesses_at_the_same_time_are_limited(tmp_path: Path) -> None:
    """Requests that wait for the token's file at the same time get no more guesses than others."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    app, statuses = port(token_file=file), list[int]()

    async def guess() -> None:
        statuses.append((await ask(app, PATH, client=ELSEWHERE, authorization=bearer("guess"))).status)

    async with trio.open_nursery() as nursery:
        for _ in range(3 * FREE_GUESSES):
            nursery.start_soon(guess)
    assert statuses.count(401) == FREE_GUESSES


def test_guesses_come_back() -> None:
    """After the burst, one guess per second comes back, and all of them in time."""
    guesses = Guesses()
    assert [guesses.wrong() for _ in range(FREE_GUESSES + 2)] == [0] * FREE_GUESSES + [1, 1]
    guesses.now += 1
    assert [guesses.wrong() for _ in range(2)] == [0, 1]
    guesses.now += 100
    assert [guesses.wrong() for _ in range(FREE_GUESSES + 1)] == [0] * FREE_GUESSES + [1]
    assert guesses.counters.token_refusals == {
        TokenRefusal.WRONG: 2 * FREE_GUESSES + 1,
        TokenRefusal.THROTTLED: 4,
    }


@pytest.mark.parametrize(
    ("other", "same"),
    [("2001:db8::2", True), ("2001:db8:0:0:ffff::1", True), ("2001:db8:0:1::1", False), ("10.0.0.1", False)],
)
def test_ipv6_network_counts_as_one_address(other: str, same: bool) -> None:
    """All addresses of an IPv6 network of 64 bits share their guesses."""
    guesses = Guesses()
    for _ in range(FREE_GUESSES):
        assert guesses.wrong("2001:db8::1") == 0
    assert bool(guesses.wrong(other)) is same


def test_table_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table forgets addresses whose guesses have come back, and otherwise the oldest ones."""
    monkeypatch.setattr(guess_limit, "MAX_ADDRESSES", 50)
    guesses = Guesses()
    for number in range(200):
        guesses.wrong(f"10.0.0.{number}")
        assert len(guesses) <= 51
    for _ in range(FREE_GUESSES):
        guesses.wrong("10.0.0.199")
    assert guesses.wrong("10.0.0.199") > 0
    guesses.now += 100
    for number in range(60):
        guesses.wrong(f"10.1.0.{number % 2}")
    assert len(guesses) == 2
