"""The page of `distrun report` in Chromium: wide, narrow, dark, without JavaScript, on paper."""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from harness.browser import browser, complaints, lacking, open_page, run
from harness.long_job import write_long_job
from harness.parts.cli import make_page
from harness.parts.records import JobFolder
from harness.parts.report import LivePage, PageServer, Run, render
from harness.waiting import wait_until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

WIDTHS = (400, 1400)
SHOWN = """return [...document.querySelectorAll('svg.plot')]
    .filter((each) => each.getBoundingClientRect().width > 0)"""
PATHS = """return [...document.querySelectorAll('svg.plot.wide .data > path')]
    .map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.right])"""
SMALLEST = """return Math.min(...[...arguments[0].querySelectorAll('text')]
    .map((text) => text.getBoundingClientRect().height))"""
TICKS = "return [...document.querySelectorAll('svg.wide > g:last-child')].map((g) => g.textContent)"
LINES = """return [...document.querySelectorAll('svg.wide .task[data-task="1"]')]
    .filter((each) => each.getBoundingClientRect().width > 0).length"""
CELLS = "return [...document.querySelectorAll('td')].map((td) => td.getBoundingClientRect().right)"
PLOTS = ("Tasks", "Loss", "Steps", "Processor, % of a core", "GPU memory", "GPU load, %")
WORDS = ("succeeded", "4 on 4 hosts", "worker:0 was killed by SIGKILL", "gpu2", "1 d 0 h")


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """A job of a day, restarted three times, on 4 hosts."""
    return write_long_job(tmp_path / "jobs" / "long-aaaaaa", hosts=4)


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Chrome]:
    if why := lacking():
        if os.environ.get("REQUIRE_BROWSER_TESTS"):
            pytest.fail(why)
        pytest.skip(why)
    with browser(tmp_path / "chromium") as driver:
        yield driver


def test_it_is_right_in_a_browser(chromium: Chrome, job: JobFolder, tmp_path: Path) -> None:
    """One browser for all: its start takes seconds."""
    page, compared = tmp_path / "page.html", tmp_path / "compare.html"
    text = make_page(job)
    page.write_text(text)
    long = [("program.script", ["/home/somebody/" * 9, "/data/" * 9]), ("x" * 200, ["1", "2"])]
    compared.write_text(render([Run(job), Run(job)], {"D": long}).replace("Loss", "L" * 200))
    assert len(text.encode()) < 600_000
    assert not re.findall(
        r"""(?:src|href)=["'](?!#)|url\((?!#)|@import|https?://(?!www\.w3)""", text
    )
    narrow, _ = WIDTHS
    open_page(chromium, compared, narrow)
    check_that_it_fits(chromium, narrow)
    assert all(right <= narrow for right in run(chromium, CELLS)), "a path is cut"
    for width in WIDTHS:
        check_that_it_opens_without_an_error_and_fits(chromium, page, width)
    check_that_plots_are_zoomed_together(chromium)
    assert run(chromium, LINES) > 5
    run(chromium, "document.querySelector('#legend input[data-task=\"1\"]').click()")
    assert run(chromium, LINES) == 0, "tasks are not switched off"
    run(chromium, "document.querySelector('[data-tasks=all]').click()")
    assert run(chromium, LINES) > 5
    check_that_it_is_complete_without_javascript_and_on_paper(chromium, page)
    smaller = write_long_job(tmp_path / "served" / "long-aaaaaa", hosts=2)
    check_that_a_served_page_renews_itself_and_keeps_what_is_open(chromium, smaller)


def check_that_it_fits(chromium: Chrome, width: int) -> None:
    assert complaints(chromium) == []
    assert run(chromium, "return document.documentElement.scrollWidth") <= width


def check_that_it_opens_without_an_error_and_fits(chromium: Chrome, page: Path, width: int) -> None:
    open_page(chromium, page, width)
    check_that_it_fits(chromium, width)
    assert run(chromium, "return performance.getEntriesByType('resource').length") == 0
    shown = run(chromium, SHOWN)
    assert {each.get_attribute("aria-label") for each in shown} >= set(PLOTS)
    for each in shown:
        assert ("narrow" if width < 700 else "wide") in each.get_attribute("class").split()
        assert run(chromium, SMALLEST, each) >= 9, "pixels: smaller text cannot be read"
    text = run(chromium, "return document.body.innerText")
    assert [words for words in WORDS if words not in text] == []


def check_that_plots_are_zoomed_together(chromium: Chrome) -> None:
    before = run(chromium, PATHS)
    run(chromium, "document.querySelector('[data-zoom=in]').click()")
    zoomed = run(chromium, PATHS)
    long = [index for index, (left, right) in enumerate(before) if right - left > 100]
    assert len(long) > 20
    for index in long:
        (left, right), (zoomed_left, zoomed_right) = before[index], zoomed[index]
        assert zoomed_right - zoomed_left == pytest.approx(2 * (right - left), rel=0.01)
    (text,) = set(run(chromium, TICKS))
    assert "12 h" in text
    run(chromium, "document.querySelector('[data-zoom=all]').click()")
    assert run(chromium, PATHS) == before


def check_that_it_is_complete_without_javascript_and_on_paper(chromium: Chrome, page: Path) -> None:
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(chromium, page, 1400)
        printed = chromium.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert run(chromium, "return document.getElementById('controls').hidden")
    assert len(run(chromium, SHOWN)) >= 10
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def check_that_a_served_page_renews_itself_and_keeps_what_is_open(
    chromium: Chrome, job: JobFolder
) -> None:
    width = min(WIDTHS)
    record = job.events_file.read_text().splitlines(keepends=True)
    restart = next(at for at, line in enumerate(record) if "RestartPlanned" in line)
    job.events_file.write_text("".join(record[:restart]))  # later, the page has more sections
    live = LivePage(
        job,
        make=lambda _: make_page(job, refresh=1.0, may_stop=True),
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
        wait_until(lambda: chromium.title == "long-aaaaaa: succeeded")
        told = "return document.getElementById('outcome').innerText"
        wait_until(lambda: "succeeded in" in run(chromium, told))
        order = "return [...document.querySelectorAll('main > section')].map((each) => each.id)"
        assert run(chromium, order)[2:5] == ["time", "interruptions", "tasks"]
        assert run(chromium, "return document.activeElement.dataset.zoom") == "in"
        assert run(chromium, "return document.querySelector('#logs details').open")
        assert not run(chromium, "return document.querySelector('#legend input').checked")
        assert run(chromium, shown) == "worker:1 <b>stands</b>"
        assert run(chromium, "return document.querySelector('.times').style.display") == "none"
        check_that_it_fits(chromium, width)
        asked = "return performance.getEntriesByType('resource').map((each) => each.name)"
        assert all(name.startswith(server.url) for name in run(chromium, asked))
        words = "return document.getElementById('connection').innerText"
        with live._lock:  # as at the other end of a tunnel that does not answer
            wait_until(lambda: "cannot be reached" in run(chromium, words))
        wait_until(lambda: not run(chromium, words))
        server.shutdown()
    wait_until(lambda: "has ended" in run(chromium, words))
    make = mock.Mock(return_value="<p>another program</p>")
    live = LivePage(job, make=make, take_stacks=str, may_stop=False)
    with PageServer(live, server.server_port) as other:
        other.token = server.token
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        wait_until(lambda: make.call_count > 1)
        assert "succeeded in" in run(chromium, told), "the last page stays"
        assert "has ended" in run(chromium, words)
        other.shutdown()
