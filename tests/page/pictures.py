"""Renews the README's pictures of the pages: ``python -m tests.page.pictures``."""

from pathlib import Path

from tests.page.browser import Browser, served_aside
from tests.page.fleet import CHECKOUT, COUNT, fleet

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


def main() -> None:
    """Writes both pictures."""
    with served_aside(fleet(COUNT)) as address, Browser() as browser:
        browser.size(1280, 640)
        browser.prefers(prefers_color_scheme="light")
        browser.driver.get(f"{address}/?sort=lag&order=desc")
        browser.picture("groups", FOLDER)
        browser.size(1280, 980)
        browser.prefers(prefers_color_scheme="dark")
        browser.driver.get(f"{address}/group?group={CHECKOUT}")
        browser.picture("group", FOLDER)


if __name__ == "__main__":
    main()
