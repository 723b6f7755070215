"""`logs.max_size`: a task's oldest output is given back to the disk."""

from __future__ import annotations

import os
from pathlib import Path

from harness.command import Distrun
from harness.waiting import wait_until

LIMIT = {"max_size": "300KB"}
EXCESS = 64 * 1024
# Pauses while it prints, so that its log is limited before it has ended.
LINES = 'for i in 1 2 3 4; do seq -f "line %08.0f of the task" "$i"0000 "$i"9999; sleep 0.2; done'


def on_disk(path: str | Path) -> int:
    return os.stat(path).st_blocks * 512


def dropped_in(said: str) -> list[str]:
    return [line for line in said.splitlines() if "were dropped" in line]


def numbers(output: str) -> list[int]:
    """The lines' numbers; each line must be whole."""
    found = []
    for line in output.splitlines():
        _, _, text = line.partition("line ")
        number, _, rest = text.partition(" ")
        assert (len(number), rest) == (8, "of the task"), line
        found.append(int(number))
    return found


def test_only_the_newest_output_stays_and_every_command_reads_it(distrun: Distrun) -> None:
    launched = distrun.launch(LINES, 1, logs=LIMIT)
    assert launched.returncode == 0, launched.stderr
    assert len(numbers(launched.stdout)) == 40_000
    assert not dropped_in(launched.stderr)
    log = distrun.status()["tasks"][0]["log"]
    size = os.stat(log).st_size
    assert size == 40_000 * 26
    assert 300_000 <= on_disk(log) <= 300_000 + EXCESS + 4096

    shown = distrun("logs")
    kept = numbers(shown.stdout)
    assert kept == list(range(kept[0], 50_000))
    (said,) = dropped_in(shown.stderr)
    assert said.startswith("distrun: worker:0: the first ")
    assert said.endswith(" kB were dropped (logs.max_size: 300 kB)")
    dropped = size - len(kept) * 26
    assert 0 <= dropped - int(said.split()[4]) * 1000 + 500 < 1100

    last = distrun("logs", "-n", "3")
    assert numbers(last.stdout) == [49_997, 49_998, 49_999]
    assert not last.stderr
    assert numbers(distrun.asked("logs", "--until", "0s", "--raw")) == kept
    found = distrun("logs", "--grep", "9 of", "-t", "worker")
    assert numbers(found.stdout) == [each for each in kept if each % 10 == 9]
    assert len(dropped_in(found.stderr)) == 1
    assert distrun.asked("events", "--json").count('"log_max_size_bytes": 300000') == 1


def test_a_reader_that_is_overtaken_shows_whole_lines_and_says_what_is_missing(
    distrun: Distrun,
) -> None:
    go = distrun.cwd / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; {LINES}"
    launch = distrun.start(
        "launch", distrun.write_spec(script, 1, logs=LIMIT), stdout=-1, stderr=-1
    )
    wait_until(lambda: distrun.asked("ps", "--json").count("job_id") == 1)
    follow = distrun.start("logs", "-f", stdout=-1, stderr=-1)
    go.touch()
    # Nobody reads: the pipes are full, and the task goes on.
    wait_until(lambda: distrun.status()["state"] == "succeeded")
    for process in (follow, launch):
        out, err = process.communicate(timeout=60)
        kept = numbers(out.decode())
        assert kept == sorted(set(kept))
        assert kept[-1] == 49_999
        assert len(kept) < 40_000
        assert len(dropped_in(err.decode())) == 1, err
        assert process.returncode == 0
