"""Makes the pictures of docs/report.md: runs three jobs, and opens their reports in Chromium.

It needs Chromium and its driver, and py-spy, which the development tools have.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "launcher"), str(ROOT / "tests")]

from distrun.jobstore import JobStore  # noqa: E402
from harness.browser import browser, open_page, run  # noqa: E402

WIDTH, HEIGHT = 1000, 1500
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


def main() -> None:
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
            for name in ("success", "restart", "stall"):
                open_page(driver, folder / f"{name}.html", WIDTH)
                height = min(HEIGHT, run(driver, "return document.body.scrollHeight"))
                clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
                options = {"clip": clip, "captureBeyondViewport": True}
                taken = driver.execute_cdp_cmd("Page.captureScreenshot", options)
                (pictures / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def launch(name: str, folder: Path, *args: str, kills: bool = False) -> None:
    """Run a job, and write its report; `kills`: its second worker, in the middle of training."""
    command = args if args[0] == "run" else ("launch", *args)
    command = (command[0], "--name", name, "--report", str(folder / f"{name}.html"), *command[1:])
    job = subprocess.Popen([sys.executable, "-m", "distrun", *command], cwd=folder)
    if kills:
        kill_worker(job)
    job.wait()


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
