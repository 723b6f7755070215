"""Restarts on other hosts: also then two attempts of a task are never alive at once."""

from __future__ import annotations

import re
from pathlib import Path

from harness.command import Distrun, recorded_events
from harness.network import CutOff, HasEnded, Hosts, RemoteSpec
from harness.waiting import wait_until

SOON = {"max": 3, "backoff": "50ms"}
# The first attempt counts until it is stopped; worker:0's fails once it is told to.
LOCKED = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
i=0
while [ $DISTRUN_ATTEMPT = 0 ] || [ $i -lt 30 ]; do
    i=$((i+1)); echo line $i
    if [ $DISTRUN_TASK-$DISTRUN_ATTEMPT = worker:0-0 ] && [ -e {folder}/fail ]; then exit 3; fi
    sleep 0.02
done
"""


def test_a_group_starts_again_across_a_cut_and_only_when_all_of_it_has_ended(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    cut_off: CutOff,
    has_ended: HasEnded,
    tmp_path: Path,
) -> None:
    h1, h2 = hosts(2)
    script = LOCKED.format(folder=tmp_path)
    spec = remote_spec(script, [h1, h2], timeouts={"link": "60s"}, restart=SOON)
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: len(re.findall(r"worker:\d \| line 5\n", distrun("logs").stdout)) == 2)
    cut_off(h2)
    wait_until(lambda: "the link to h2 is lost" in distrun("events").stdout)
    tmp_path.joinpath("fail").touch()
    wait_until(lambda: "worker:0, worker:1 start again" in distrun("events").stdout)
    wait_until(lambda: has_ended("worker:0"))
    # Its backoff is over long ago; what it waits for is a task that nobody can reach.
    assert "attempt 1" not in distrun("logs", "-t", "worker:0").stdout
    h2.mend()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr
    record = recorded_events(distrun)
    ended = [e["at"] for e in record if e["event"] == "TaskEnded" and e["attempt"] == 0]
    again = [e["at"] for e in record if e["event"] == "TaskStarted" and e["attempt"] == 1]
    assert len(ended) == len(again) == 2
    assert max(ended) <= min(again)
    for task in ("worker:0", "worker:1"):
        log = distrun("logs", "--raw", "-t", task).stdout
        assert "TWO AT ONCE" not in log
        first, _, second = log.partition("--- attempt 1, ")
        assert "restarted after worker:0 exited 3 ---" in second
        for part, last in ((first, None), (second, 30)):
            numbers = [int(number) for number in re.findall(r"^line (\d+)$", part, re.MULTILINE)]
            assert numbers == list(range(1, (last or len(numbers)) + 1))
