"""What `distrun report --serve` costs while a browser shows the page of 16 tasks that sleep.

Usage: python benchmarks/live_page.py [SECONDS]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import psutil

TASKS = 16
DISTRUN = [sys.executable, "-m", "distrun"]


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DISTRUN_HOME"] = folder
        job = ["run", "-n", str(TASKS), "-d", "sleep", "100000"]
        subprocess.run([*DISTRUN, *job], check=True, cwd=folder)
        serve = [*DISTRUN, "report", "--serve"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = server.stdout.readline().strip()
                show(url, 10)  # the first page imports what it needs
                used, began = cpu(server.pid), time.monotonic()
                pages = show(url, seconds)
                share = (cpu(server.pid) - used) / (time.monotonic() - began)
                print(f"{TASKS} tasks asleep: {100 * share:.2f}% of a core, {pages} pages")
            finally:
                server.terminate()
                subprocess.run([*DISTRUN, "kill", "--all"], check=True)


def show(url: str, seconds: float) -> int:
    """Ask for the page as a browser does, as often as the page says; returns how often."""
    end, pages = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with urllib.request.urlopen(url) as answer:
            refresh = re.search(r'data-refresh="([\d.]+)"', answer.read().decode())
        pages += 1
        time.sleep(float(refresh[1]) if refresh else 2.0)
    return pages


def cpu(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


if __name__ == "__main__":
    main()
