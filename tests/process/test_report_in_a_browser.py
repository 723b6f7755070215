"""The page of `distrun report` in Chromium: wide, narrow, dark, without JavaScript, on paper."""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distrun.cli.report import make_page
from distrun.report.comparison import Run, render
from distrun.report.server import LivePage, PageServer
from harness.long_job import write_long_job
from harness.waiting import wait_until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

WIDTHS = (400, 1400)
SHOWN = """return [...document.querySelectorAll('svg.plot')]
    .filter((each) => each.getBoundingClientRect().width > 0)"""
PATHS = """return [...document.querySelectorAll('svg.plot.wide .data > path')]
    .map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.right])"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a job of a day, restarted three times, on 16 hosts."""
    folder = tmp_path_factory.mktemp("report")
    job = write_long_job(folder / "jobs" / "long-aaaaaa", hosts=16)
    (folder / "page.html").write_text(make_page(job))
    long = [("program.script", ["/home/somebody/" * 9, "/data/" * 9])]
    (folder / "compare.html").write_text(render([Run(job), Run(job)], {"What differs": long}))
    return folder / "page.html"


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Chrome]:
    from harness import browser

    lacking = browser.lacking()
    if lacking is not None:
        if os.environ.get("REQUIRE_BROWSER_TESTS"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    with browser.browser(tmp_path) as driver:
        yield driver


def test_it_is_small_and_needs_nothing_else(page: Path) -> None:
    text = page.read_text()
    assert len(text.encode()) < 2_000_000
    assert not re.findall(
        r"""(?:src|href)=["'](?!#)|url\((?!#)|@import|https?://(?!www\.w3)""", text
    )


def test_it_is_right_in_a_browser(chromium: Chrome, page: Path) -> None:
    """One browser for all: its start takes seconds."""
    for width in WIDTHS:
        check_that_it_opens_without_an_error_and_fits(chromium, page, width)
        check_that_jobs_side_by_side_fit(chromium, page.parent / "compare.html", width)
    check_that_plots_are_zoomed_together(chromium, page)
    check_that_tasks_can_be_switched_off(chromium, page)
    check_that_it_is_complete_without_javascript_and_on_paper(chromium, page)


def check_that_it_opens_without_an_error_and_fits(chromium: Chrome, page: Path, width: int) -> None:
    from harness.browser import complaints, open_page, run

    open_page(chromium, page, width)
    assert complaints(chromium) == []
    assert run(chromium, "return performance.getEntriesByType('resource').length") == 0
    assert run(chromium, "return document.documentElement.scrollWidth") <= width
    shown = run(chromium, SHOWN)
    assert {each.get_attribute("aria-label") for each in shown} >= {
        *("Tasks", "Loss", "Steps", "Processor, % of a core", "GPU memory", "GPU load, %"),
    }
    for each in shown:
        assert ("narrow" if width < 700 else "wide") in each.get_attribute("class").split()
        height = run(
            chromium,
            "return Math.min(...[...arguments[0].querySelectorAll('text')]"
            ".map((text) => text.getBoundingClientRect().height))",
            each,
        )
        assert height >= 9, "pixels: smaller text cannot be read"
    text = run(chromium, "return document.body.innerText")
    for words in (
        "succeeded",
        "16 on 16 hosts",
        "worker:0 was killed by SIGKILL",
        "gpu2",
        "1 d 0 h",
    ):
        assert words in text, words


def check_that_jobs_side_by_side_fit(chromium: Chrome, page: Path, width: int) -> None:
    from harness.browser import complaints, open_page, run

    open_page(chromium, page, width)
    assert complaints(chromium) == []
    assert run(chromium, "return document.documentElement.scrollWidth") <= width
    cells = (
        "return [...document.querySelectorAll('td')].map((td) => td.getBoundingClientRect().right)"
    )
    assert all(right <= width for right in run(chromium, cells)), "a path is cut"


def check_that_plots_are_zoomed_together(chromium: Chrome, page: Path) -> None:
    from harness.browser import open_page, run

    open_page(chromium, page, 1400)
    before = run(chromium, PATHS)
    run(chromium, "document.querySelector('[data-zoom=in]').click()")
    zoomed = run(chromium, PATHS)
    long = [index for index, (left, right) in enumerate(before) if right - left > 100]
    assert len(long) > 20
    for index in long:
        (left, right), (zoomed_left, zoomed_right) = before[index], zoomed[index]
        assert zoomed_right - zoomed_left == pytest.approx(2 * (right - left), rel=0.01)
    ticks = (
        "return [...document.querySelectorAll('svg.wide > g:last-child')].map((g) => g.textContent)"
    )
    texts = set(run(chromium, ticks))
    assert len(texts) == 1
    assert "12 h" in texts.pop()
    run(chromium, "document.querySelector('[data-zoom=all]').click()")
    assert run(chromium, PATHS) == before


def check_that_tasks_can_be_switched_off(chromium: Chrome, page: Path) -> None:
    from harness.browser import open_page, run

    open_page(chromium, page, 1400)
    lines = (
        "return [...document.querySelectorAll('svg.wide .task[data-task=\"1\"]')]"
        ".filter((each) => each.getBoundingClientRect().width > 0).length"
    )
    assert run(chromium, lines) > 5
    run(chromium, "document.querySelector('#legend input[data-task=\"1\"]').click()")
    assert run(chromium, lines) == 0
    run(chromium, "document.querySelector('[data-tasks=all]').click()")
    assert run(chromium, lines) > 5


def check_that_it_is_complete_without_javascript_and_on_paper(chromium: Chrome, page: Path) -> None:
    from harness.browser import open_page, run

    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(chromium, page, 1400)
        printed = chromium.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert run(chromium, "return document.getElementById('controls').hidden")
    assert len(run(chromium, SHOWN)) >= 10
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_a_served_page_renews_itself_and_keeps_what_is_open(
    chromium: Chrome, tmp_path: Path
) -> None:
    from harness.browser import complaints, open_page, run

    width = min(WIDTHS)
    job = write_long_job(tmp_path / "jobs" / "live-aaaaaa", hosts=2)
    record = job.events_file.read_text().splitlines(keepends=True)
    job.events_file.write_text("".join(record[:-3]))
    live = LivePage(
        job,
        make=lambda samples, _: make_page(job, samples=samples, refresh=0.2, may_stop=True),
        take_stacks=lambda: "worker:1 <b>stands</b>",
        may_stop=True,
    )
    with PageServer(live, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        open_page(chromium, server.url, width)
        run(chromium, "document.querySelector('#logs details').open = true")
        for button in ("#controls [data-zoom=in]", "#legend input"):
            run(chromium, f"document.querySelector('{button}').click()")
        # At once: the page is renewed all the time, and the button with it.
        enable = "const button = document.querySelector('[data-action=stacks]')"
        run(chromium, f"{enable}; button.disabled = false; button.click()")
        run(chromium, "document.querySelector('#controls [data-zoom=in]').focus()")
        shown = "return document.getElementById('answer').textContent"
        wait_until(lambda: run(chromium, shown) == "worker:1 <b>stands</b>")
        job.events_file.write_text("".join(record))
        wait_until(lambda: chromium.title == "live-aaaaaa: succeeded")
        told = "return document.getElementById('outcome').innerText"
        wait_until(lambda: "succeeded in" in run(chromium, told))
        assert run(chromium, "return document.activeElement.dataset.zoom") == "in"
        assert run(chromium, "return document.querySelector('#logs details').open")
        assert not run(chromium, "return document.querySelector('#legend input').checked")
        assert run(chromium, shown) == "worker:1 <b>stands</b>"
        assert run(chromium, "return document.querySelector('.times').style.display") == "none"
        assert run(chromium, "return document.documentElement.scrollWidth") <= width
        foreign = "return performance.getEntriesByType('resource').map((each) => each.name)"
        assert all(name.startswith(server.url) for name in run(chromium, foreign))
        assert complaints(chromium) == []
        server.shutdown()
    words = "return document.getElementById('connection').innerText"
    wait_until(lambda: "has ended" in run(chromium, words))
