"""Following the logs of tasks that are still writing."""

from __future__ import annotations

import shlex
import sys

from harness.command import Distrun

LINES = 20_000
# Writes numbered lines, in pieces that end anywhere.
WRITER = """
import os, random
seed = int(os.environ["DISTRUN_RANK"])
text = b"".join(b"%d:%d:%s\\n" % (seed, i, b"x" * (i % 90)) for i in range(20_000))
pieces = random.Random(seed)
at = 0
while at < len(text):
    at += os.write(1, text[at : at + pieces.choice((1, 7, 80, 900, 9000, 90000))])
"""


def test_no_line_of_four_writers_is_damaged_or_missing(distrun: Distrun) -> None:
    writer = f"exec {shlex.quote(sys.executable)} -S -c {shlex.quote(WRITER)}"
    job = distrun.detached(writer, workers=4)
    followed = distrun("logs", "-f", job).stdout
    for shown in (followed, distrun("logs", job).stdout):
        by_task: dict[str, list[str]] = {}
        for line in shown.splitlines():
            task, _, text = line.partition(" | ")
            by_task.setdefault(task, []).append(text)
        assert by_task == {
            f"worker:{seed}": [f"{seed}:{i}:{'x' * (i % 90)}" for i in range(LINES)]
            for seed in range(4)
        }
