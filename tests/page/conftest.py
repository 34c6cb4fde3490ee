"""One browser for all tests of the pages, and a large fleet for those that only look."""

from collections.abc import Iterator

import pytest

from tests.page.browser import Browser, served_aside
from tests.page.fleet import COUNT, fleet


@pytest.fixture(scope="session")
def opened() -> Iterator[Browser]:
    """One browser for all tests; starting it takes longer than most of them."""
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Iterator[Browser]:
    """The browser as if it were new; it must not have had to complain in the end."""
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
