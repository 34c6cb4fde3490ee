"""A real browser, and something to show it.

Owns: headless Chromium's life, what it complained of and whom it asked; a trio server beside a test that is not trio's.
Must not know: what is on a page.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pytest
import trio
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait
from starlette.types import ASGIApp

from group_sidecar.proxy.admin.http_server import serve_admin
from tests.kafka.processes import GIVE_UP_SECONDS

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = "tbody th a"
"""Where the groups of a table are named."""


class Browser:
    """Headless Chromium. Use as a context manager."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--lang=en"):
            options.add_argument(argument)
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._options = options

    def __enter__(self) -> Self:
        # With a path selenium looks for no driver itself, and fetches none.
        service = Service(executable_path=shutil.which("chromedriver") or "")
        self.driver = webdriver.Chrome(options=self._options, service=service)
        self.size(1280, 900)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.quit()

    def size(self, width: int, height: int) -> None:
        """The window's size in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefers(self, **media: str) -> None:
        """What the reader prefers, by media feature: ``prefers_color_scheme="dark"``."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def offline(self, offline: bool) -> None:
        """Takes the network away, or gives it back."""
        conditions = {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)

    def one(self, selector: str) -> WebElement:
        """The element of a CSS selector, as soon as there is one."""
        return WebDriverWait(self.driver, GIVE_UP_SECONDS).until(
            lambda driver: driver.find_element(By.CSS_SELECTOR, selector)
        )

    def all(self, selector: str) -> list[WebElement]:
        """The elements of a CSS selector that are there."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """What elements say, read at once: between two reads a live page may change."""
        told: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((found) => found.textContent.trim())", selector
        )
        return told

    def until(self, condition: Any, what: str) -> None:
        """Waits until a function of nothing gives something true."""
        try:
            WebDriverWait(self.driver, GIVE_UP_SECONDS, poll_frequency=0.1).until(lambda _: condition())
        except TimeoutException:
            self.picture("waited-in-vain")
            pytest.fail(
                f"{what}: not so after {GIVE_UP_SECONDS} s, on a page that says: {' '.join(self.texts('body'))}"
            )

    def run(self, script: str, *arguments: object) -> Any:
        """What a function's body gives in the page."""
        return self.driver.execute_script(script, *arguments)

    def picture(self, name: str, folder: Path = SCREENSHOTS) -> None:
        """Keeps what is to be seen, as a PNG."""
        folder.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(folder / f"{name}.png"))

    def complaints(self) -> list[str]:
        """What the browser said since it was last asked: errors, and what a policy kept it from."""
        return self._log("browser")

    def asked(self) -> set[str]:
        """Addresses that pages asked for since this was last called; what the browser itself does is not among them."""
        events = [json.loads(message)["message"] for message in self._log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {params["request"]["url"] for params in sent}

    def _log(self, name: str) -> list[str]:
        entries: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]


def group_page(address: str, group_id: str) -> str:
    """The address of a group's page."""
    return f"{address}/group?group={quote(group_id, safe='')}"


@contextmanager
def served_aside(app: ASGIApp) -> Iterator[str]:
    """The address of an application that another thread serves, until the block ends."""
    started = threading.Event()
    inside: dict[str, Any] = {}

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(partial(serve_admin, app, "127.0.0.1", 0))
            inside.update(
                address=f"http://{host}:{port}", token=trio.lowlevel.current_trio_token(), stop=nursery.cancel_scope
            )
            started.set()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert started.wait(GIVE_UP_SECONDS), "the server did not start"
    try:
        yield inside["address"]
    finally:
        inside["token"].run_sync_soon(inside["stop"].cancel)
        thread.join(GIVE_UP_SECONDS)
