"""A real browser, Chromium without a window, for the tests of pages."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.requirements import missing

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def lacking() -> str | None:
    return missing(("chromium", "chromedriver"))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Chrome]:
    """Start a browser; it ends with the context. `folder`: for its own files."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--disable-dev-shm-usage", f"--user-data-dir={folder}"),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def open_page(driver: Chrome, page: Path | str, width: int) -> None:
    """Open a page, a file or an address, in a viewport of so many CSS pixels."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(page if isinstance(page, str) else page.as_uri())


def run(driver: Chrome, script: str, *args: Any) -> Any:
    """Run JavaScript in the page, and return what it returns."""
    return driver.execute_script(script, *args)


def complaints(driver: Chrome) -> list[str]:
    entries: list[dict[str, str]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries]
