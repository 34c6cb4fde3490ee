"""A real browser (headless Chromium), and a server that runs an application in another thread.

The browser records its log messages and the addresses that pages request. The server thread runs trio, so that a test
without trio can use the server.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
from group_sidecar.proxy.listeners.ports import listen
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.fakes import ANY_PORT

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = "tbody th a"
"""The CSS selector of the links that contain the group names of a table."""


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
        # With an explicit path, Selenium does not search for a driver or download one.
        service = Service(executable_path=shutil.which("chromedriver") or "")
        self.driver = webdriver.Chrome(options=self._options, service=service)
        self.size(1280, 900)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.quit()

    def size(self, width: int, height: int) -> None:
        """Sets the window's size in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefers(self, **media: str) -> None:
        """Emulates media features, such as ``prefers_color_scheme="dark"``."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def offline(self, offline: bool) -> None:
        """Disconnects the browser from the network, or connects it again."""
        conditions = {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)

    def one(self, selector: str) -> WebElement:
        """Waits for an element that a CSS selector matches, and returns the first one."""
        return WebDriverWait(self.driver, GIVE_UP_SECONDS).until(
            lambda driver: driver.find_element(By.CSS_SELECTOR, selector)
        )

    def all(self, selector: str) -> list[WebElement]:
        """The elements that a CSS selector matches now."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The texts of all matching elements. One script reads them all, because a live page may change."""
        told: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((found) => found.textContent.trim())", selector
        )
        return told

    def until(self, condition: Any, what: str) -> None:
        """Waits until `condition()` returns a true value. Fails the test with a screenshot after GIVE_UP_SECONDS."""
        try:
            WebDriverWait(self.driver, GIVE_UP_SECONDS, poll_frequency=0.1).until(lambda _: condition())
        except TimeoutException:
            self.picture("timeout")
            pytest.fail(
                f"gave up after {GIVE_UP_SECONDS} s waiting until {what}; the page: {' '.join(self.texts('body'))}"
            )

    def run(self, script: str, *arguments: object) -> Any:
        """Runs the body of a JavaScript function in the page, and returns its result."""
        return self.driver.execute_script(script, *arguments)

    def picture(self, name: str, folder: Path = SCREENSHOTS) -> None:
        """Saves a screenshot of the window as a PNG."""
        folder.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(folder / f"{name}.png"))

    def complaints(self) -> list[str]:
        """The browser's log messages since the last call: errors, and requests that a policy blocked."""
        return self._log("browser")

    def asked(self) -> set[str]:
        """The URLs that pages requested since the last call. Requests of the browser itself are not included."""
        events = [json.loads(message)["message"] for message in self._log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {params["request"]["url"] for params in sent}

    def _log(self, name: str) -> list[str]:
        entries: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]


def group_page(address: str, group_id: str) -> str:
    """The URL of a group's page."""
    return f"{address}/group?group={quote(group_id, safe='')}"


@contextmanager
def served_aside(app: ASGIApp) -> Iterator[str]:
    """Serves an application in another thread until the with block ends. Yields its URL."""
    started = threading.Event()
    inside: dict[str, Any] = {}

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(serve_admin, app, listen(ANY_PORT)[0])
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
