"""The screen of a launch, in real terminals: how it ends, what it leaves out, its live line."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

from harness.command import Distrun, WriteSpec
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until

NOTICE = (
    "I0000 00:00:1795374482.521530    3742 cudart_stub.cc:31] Could not find cuda drivers on your "
    "machine, GPU will not be used."
)
INITIALIZE = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
)


def failing(script: str, code: int = 3) -> str:
    """Let worker:1 run the script and fail once worker:0 is up."""
    return (
        f"test $DISTRUN_TASK = worker:0 && {{ touch up; exec sleep 600; }}\n"
        f"until test -e up; do sleep 0.02; done\n{script}\nexit {code}"
    )


def printing(*lines: str) -> str:
    return "".join(f"echo '{line}'\n" for line in lines)


TRACEBACK = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 3, in <module>
    modle.fit()
NameError: name "modle" is not defined
"""


def test_a_failure_shows_its_traceback_once(terminal: OpenTerminal, write_spec: WriteSpec) -> None:
    script = failing(f"cat <<'E'\n{TRACEBACK}E", 1)
    window = terminal("launch", write_spec(script), columns=80)
    wait_until(window.ended)
    shown = window.text()
    assert shown.count("Traceback (most recent call last)") == shown.count("modle.fit()") == 1
    assert shown.count('NameError: name "modle" is not defined') == 2, "in the log, and the cause"
    labels = re.findall(r"^  (\w+(?: \w+)*)  ", shown[shown.index("\njob job-") :], re.MULTILINE)
    assert labels == ["cause", "evidence", "try", "also stopped", "logs"]


def test_without_the_output_the_report_has_the_traceback(
    distrun: Distrun, write_spec: WriteSpec
) -> None:
    done = distrun("launch", write_spec(failing(f"echo old\ncat <<'E'\n{TRACEBACK}E", 1)))
    report = done.stderr
    assert report.count("Traceback (most recent call last)") == 1
    assert "| old" not in report, "the traceback is enough"
    chosen = distrun("launch", write_spec(failing("echo no data")), "-t", "worker:0")
    assert chosen.stdout == ""
    assert "its log, line 1: no data\n" in chosen.stderr
    assert distrun("launch", write_spec("exit 0"), "-t", "worker:3").returncode == 2


def test_start_up_lines_are_left_out_and_counted(
    terminal: OpenTerminal, write_spec: WriteSpec, distrun: Distrun
) -> None:
    spec = write_spec(printing("first", NOTICE, f"my own: {NOTICE}", INITIALIZE, NOTICE), 1)
    window = terminal("launch", spec, columns=200)
    wait_until(window.ended)
    lines = [line.rpartition("\x1b[K")[2] for line in window.text().splitlines()]
    kept = ["worker:0 | first", f"worker:0 | my own: {NOTICE}"]
    assert [line for line in lines if " | " in line] == kept
    assert lines[-1].endswith(" · 3 start-up lines left out (see --all-output)")
    counted = "distrun: 3 start-up lines left out (see --all-output)\n"
    for words, said in (("logs", counted), ("logs -n 2", "")):
        done = distrun(*words.split())
        assert (done.stdout.splitlines(), done.stderr) == (kept, said)
    assert distrun("logs", "-f").stderr.endswith(f" · {counted.removeprefix('distrun: ')}")
    for option in ("--all-output", "--raw", "--json", "--grep=."):
        done = distrun("logs", option)
        assert (done.stdout.count("cudart_stub.cc"), done.stderr) == (3, ""), option
    assert distrun("logs", "--all-output", "-n", "1").stdout == f"worker:0 | {NOTICE}\n"
    whole = distrun("launch", "--all-output", write_spec(printing(NOTICE)))
    assert f"worker:0 | {NOTICE}\n" in whole.stdout
    assert "left out" not in whole.stderr
    assert distrun("logs").stderr.endswith("; worker:0, worker:1 printed nothing else\n")


def test_equal_lines_are_shown_once_on_a_terminal(
    terminal: OpenTerminal, write_spec: WriteSpec, distrun: Distrun
) -> None:
    # On a busy machine, a task may be late once, but not each time.
    script = (
        "for n in 1 2 3 4 5 6 7 8; do touch up-$DISTRUN_TASK-$n\n"
        "until test -e up-worker:0-$n -a -e up-worker:1-$n; do sleep 0.01; done\n"
        "echo same $n; done; echo own $DISTRUN_TASK; echo last"
    )
    spec = write_spec(script)
    window = terminal("launch", spec, columns=80)
    wait_until(window.ended)
    lines = [line.rpartition("\x1b[K")[2] for line in window.text().splitlines() if " | " in line]
    for number in range(1, 9):
        joined = lines.count(f"worker:* | same {number} (2 tasks)")
        assert 2 * joined + sum(line.endswith(f" | same {number}") for line in lines) == 2
    assert any(line.startswith("worker:* | same ") for line in lines)
    assert {"worker:0 | own worker:0", "worker:1 | own worker:1"} <= set(lines)
    piped = distrun("launch", spec).stdout
    assert (piped.count("| same 5\n"), "tasks)" in piped) == (2, False)


def test_it_is_on_stderr_while_the_output_goes_elsewhere(
    distrun: Distrun, reporting: Callable[..., Path]
) -> None:
    launch = shlex.join([*distrun.argv, "launch", str(reporting("STEP=20 STEPS=40"))])
    window = Terminal(["sh", "-c", f"exec {launch} >output"], str(distrun.cwd), 80, 24)
    wait_until(lambda: "2/2 tasks up  step 20/40 50%" in window.text())
    (distrun.cwd / "go").touch()
    wait_until(window.ended)
    assert window.process.returncode == 0
    output = (distrun.cwd / "output").read_text()
    assert sorted(output.splitlines()) == [f"worker:{n} | reported" for n in (0, 1)]
    assert " succeeded in " in window.text().splitlines()[-1]
    assert "reported" not in window.seen
    assert "\x1b[K" in window.seen
    window.close()


def test_it_says_when_sigkill_is_due(terminal: OpenTerminal, write_spec: WriteSpec) -> None:
    stubborn = "trap '' TERM; echo ready $DISTRUN_TASK; while :; do sleep 0.1; done"
    window = terminal("launch", write_spec(stubborn, timeouts={"grace": "60s"}), columns=80)
    wait_until(lambda: window.read().count("ready") == 2)
    os.kill(window.process.pid, signal.SIGINT)
    due = re.compile(r"stopping, SIGKILL in [1-6]\d s  \d/2 tasks up")
    wait_until(lambda: due.search(window.text()))
    window.type("\x03")
    wait_until(window.ended)
    assert window.process.returncode == 130
