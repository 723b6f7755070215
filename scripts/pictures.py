"""Makes the pictures of README.md, docs/watching.md, docs/report.md and docs/performance.md.

Runs a job in a terminal, watches one, runs three whose reports it opens in Chromium, and compares a
slow job with a faster one. It needs Chromium and its driver, and py-spy, which the development
tools have.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "launcher"), str(ROOT / "tests")]

from PIL import Image  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402
from selenium.webdriver import Chrome  # noqa: E402

from distrun.job.folder import JobStore  # noqa: E402
from harness.browser import browser, open_page, run  # noqa: E402
from harness.terminal import Terminal  # noqa: E402
from harness.waiting import wait_until  # noqa: E402

WIDTH, HEIGHT = 1000, 1500
NARROW_AND_WIDE = (400, 1400)
COLOURS = 256
"""Of a picture in a file: enough for text and curves, and a third of the size."""
TRAINING = ["--epochs", "4", "--steps-per-epoch", "150", "--checkpoint-every", "100"]
STALLING = """\
import os, socket, threading, time
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["DISTRUN_NOTIFY"].replace("@", "\\0"))


def load_batch():
    threading.Event().wait()


def all_reduce():
    threading.Event().wait()


for step in range(100):
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    time.sleep(0.05)
    notify.send(f"STEP={step} LOSS={2 / (step + 1):.4f}".encode())
load_batch() if os.environ["DISTRUN_TASK"] == "worker:2" else all_reduce()
"""
FAILING = """\
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = strategy.cluster_resolver.task_id
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
x = np.random.default_rng(0).normal(size=(6400, 20)).astype("float32")
y = x.sum(axis=1, keepdims=True)
for shard in range(3):
    with open(f"shards/{worker}-{shard}.txt") as file:
        scale = float(file.read())
    model.fit(x * scale, y, batch_size=64, verbose=2)
"""
SLOWER = """\
import os, time

pause = 0.35 if os.environ["DISTRUN_TASK"] == "worker:2" else 0.25
for step in range(1, 2001):
    time.sleep(pause)
    print(f"step {step}/2000 loss={2 / (step + 1):.4f}", flush=True)
"""
COLUMNS = 112
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect fill="#292929" width="100%" height="100%" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's own form without its window, its title, and fonts that a browser would have to fetch."""


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        terminal(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary:
        watching(Path(temporary))
    reports()
    with tempfile.TemporaryDirectory() as temporary:
        slow_job(Path(temporary))


def terminal(folder: Path) -> None:
    """Draw what a person sees if one of two workers fails."""
    (folder / "shards").mkdir()
    for shard in ("0-0", "0-1", "0-2", "1-0", "1-1"):
        (folder / "shards" / f"{shard}.txt").write_text("1")
    (folder / "train.py").write_text(FAILING)
    os.environ["DISTRUN_HOME"] = str(folder / "distrun")
    line = ["distrun", "run", "-n", "2", "train.py"]
    shown = Terminal([sys.executable, "-m", *line], str(folder), COLUMNS, 40)
    wait_until(shown.ended, timeout=120)
    text = without_live_line(shown.seen).replace(str(folder), "/home/me/job")
    draw(f"$ {' '.join(line)}\n{text}", COLUMNS, ROOT / "docs" / "failure.svg")


def without_live_line(seen: str) -> str:
    """Return what a terminal has shown without the states of the live line, but for a last one."""
    return re.sub(r"\x1b\[1m[^\n]*\r\r\x1b\[K|\r", "", seen)


def draw(text: str, columns: int, file: Path) -> None:
    console = Console(record=True, width=columns, file=io.StringIO())
    console.print(Text.from_ansi(text))
    console.save_svg(str(file), title="", code_format=SVG)


def watching(folder: Path) -> None:
    """Draw a job of four workers, one slower than the others: `watch`, `attach`, the live page."""
    from distrun.cli.watch_screen import WatchApp

    (folder / "train.py").write_text(SLOWER)
    os.environ["DISTRUN_HOME"] = str(folder / "distrun")
    distrun = [sys.executable, "-m", "distrun"]
    subprocess.run([*distrun, "run", "-n", "4", "-d", "train.py"], cwd=folder, check=True)
    pictures = ROOT / "docs" / "watching"
    pictures.mkdir(exist_ok=True)

    async def watched(columns: int) -> str:
        app = WatchApp(JobStore.default().newest())
        async with app.run_test(size=(columns, 24)) as pilot:
            await asyncio.sleep(20)  # until the rate is known
            await pilot.press("down")
            await asyncio.sleep(2)
            console = Console(record=True, width=columns, height=24, file=io.StringIO())
            console.print(app.screen._compositor.render_update(full=True))  # noqa: SLF001
            return console.export_svg(title="", code_format=SVG)

    try:
        for columns in (120, 80, 60):
            (pictures / f"{columns}.svg").write_text(asyncio.run(watched(columns)))
        shown = Terminal([*distrun, "attach"], str(folder), 80, 24)
        wait_until(lambda: "left" in shown.read(), timeout=60)
        shown.type("\x03")
        wait_until(lambda: "else: go on" in shown.read(), timeout=60)
        text = without_live_line(shown.seen.replace("^C", ""))
        draw(f"$ distrun attach\n{text}", 80, pictures / "attach.svg")
        shown.type("d")
        wait_until(shown.ended, timeout=60)
        serve = [*distrun, "report", "--serve"]
        with (
            subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as served,
            browser(folder / "profile") as driver,
        ):
            assert served.stdout is not None
            url = served.stdout.readline().strip()
            for width in NARROW_AND_WIDE:
                open_page(driver, url, width)
                time.sleep(3)  # it refreshes itself
                screenshot(driver, width, pictures / f"live-{width}.png")
            served.terminate()
    finally:
        subprocess.run([*distrun, "kill", "--all"], check=True)


def reports() -> None:
    pictures = ROOT / "docs" / "report"
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["DISTRUN_HOME"] = str(folder / "home")
        (folder / "hang.py").write_text(STALLING)
        template = str(ROOT / "templates" / "multi_worker_mirrored.yaml")
        for name in ("success", "restart"):
            saves = ("--checkpoint-dir", str(folder / f"checkpoints-{name}"))
            changes = ("--set", "restart.max=1", "--", *TRAINING, *saves)
            launch(name, folder, template, *changes, kills=name == "restart")
        stalls = ("run", "-n", "4", "--set", "timeouts.stall=8s", str(folder / "hang.py"))
        launch("stall", folder, *stalls)
        with browser(folder / "profile") as driver:
            for name in ("success", "stall"):
                open_page(driver, folder / f"{name}.html", WIDTH)
                screenshot(driver, WIDTH, pictures / f"{name}.png")
            for width in NARROW_AND_WIDE:
                open_page(driver, folder / "restart.html", width)
                screenshot(driver, width, pictures / f"restart-{width}.png")


def slow_job(folder: Path) -> None:
    """Draw the slow job of docs/performance.md, what says why, and the same job with a cache."""
    page, pictures = ROOT / "docs" / "performance.md", ROOT / "docs" / "performance"
    pictures.mkdir(exist_ok=True)
    program = page.read_text().partition("```python\n")[2].partition("```")[0]
    (folder / "slow.py").write_text(program)
    (folder / "cached.py").write_text(program.replace(".repeat()", ".cache().repeat()"))
    os.environ["DISTRUN_HOME"] = str(folder / "distrun")
    distrun = [sys.executable, "-m", "distrun"]
    try:
        subprocess.run([*distrun, "run", "-n", "2", "-d", "slow.py"], cwd=folder, check=True)
        job = JobStore.default().newest()
        tasks = job.state().tasks
        wait_until(lambda: all(job.state().tasks[each].first_step_at for each in tasks), 300)
        shown = Terminal([*distrun, "profile"], str(folder), COLUMNS, 40)
        wait_until(shown.ended, timeout=60)
        text = without_live_line(shown.seen)
        draw(f"$ distrun profile\n{text}", COLUMNS, pictures / "profile.svg")
        subprocess.run([*distrun, "wait"], check=True)
        subprocess.run([*distrun, "run", "-n", "2", "cached.py"], cwd=folder, check=True)
    finally:
        subprocess.run([*distrun, "kill", "--all"], check=True)
    for line in ("report slow -o slow.html", "compare slow cached -o compare.html"):
        subprocess.run([*distrun, *line.split()], cwd=folder, check=True)
    with browser(folder / "profile") as driver:
        open_page(driver, folder / "slow.html", WIDTH)
        run(driver, "for (const each of document.querySelectorAll('details')) each.open = true")
        screenshot(driver, WIDTH, pictures / "flames.png", "#profile")
        for width in NARROW_AND_WIDE:
            open_page(driver, folder / "compare.html", width)
            screenshot(driver, width, ROOT / "docs" / "report" / f"compare-{width}.png")


def screenshot(driver: Chrome, width: int, file: Path, part: str = "body") -> None:
    """Draw the beginning of a part of a page that is open."""
    box = f"document.querySelector('{part}').getBoundingClientRect()"
    top, high = run(driver, f"const box = {box}; return [box.top + scrollY, box.height]")
    clip = {"x": 0, "y": top, "width": width, "height": min(HEIGHT, high), "scale": 1}
    options = {"clip": clip, "captureBeyondViewport": True}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", options)
    with Image.open(io.BytesIO(base64.b64decode(taken["data"]))) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


def launch(name: str, folder: Path, *args: str, kills: bool = False) -> None:
    """Run a job, and write its report; `kills`: its second worker, in the middle of training."""
    command = args if args[0] == "run" else ("launch", *args)
    command = (command[0], "--name", name, *command[1:])
    job = subprocess.Popen([sys.executable, "-m", "distrun", *command], cwd=folder)
    if kills:
        kill_worker(job)
    job.wait()
    report = ["report", name, "-o", str(folder / f"{name}.html")]
    subprocess.run([sys.executable, "-m", "distrun", *report], check=True)


def kill_worker(job: subprocess.Popen[bytes]) -> None:
    """Wait until the newest job has trained for some seconds, then kill its second worker."""
    while job.poll() is None:
        time.sleep(0.2)
        folders = JobStore.default().folders()
        state = folders[-1].state() if folders else None
        task = None if state is None else state.tasks.get("worker:1")
        if state is None or task is None or state.name != "restart":
            continue
        if task.first_step_at is not None and time.time() > task.first_step_at + 6:
            os.kill(task.pid or 0, 9)
            return


if __name__ == "__main__":
    main()
