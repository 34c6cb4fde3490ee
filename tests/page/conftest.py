"""One browser for all tests of the pages, and a large fleet for the tests that only read."""

from collections.abc import Iterator

import pytest

from tests.page.browser import Browser, served_aside
from tests.page.fleet import COUNT, fleet


@pytest.fixture(scope="session")
def opened() -> Iterator[Browser]:
    """One browser for all tests, because its start takes longer than most tests."""
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Iterator[Browser]:
    """The browser in its initial state. The fixture fails the test if the browser has logged an error at the end."""
    opened.size(1280, 900)
    opened.prefers()
    opened.offline(False)
    opened.driver.get("about:blank")
    opened.complaints()
    opened.asked()
    yield opened
    complaints = opened.complaints()
    opened.driver.get("about:blank")
    assert complaints == []


@pytest.fixture(scope="session")
def large() -> Iterator[str]:
    """The address of a sidecar that knows ten thousand groups."""
    with served_aside(fleet(COUNT)) as address:
        yield address
