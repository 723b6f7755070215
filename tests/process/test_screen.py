"""The screen of a launch, in real terminals: how it ends, what it leaves out, its live line."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

from harness.command import Detach, Distrun, Status, WriteSpec
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


def lines_of(window: Terminal) -> list[str]:
    """The lines that a person sees, without the live line."""
    lines = window.text().rstrip("\n").split("\n")
    return [line.rpartition("\x1b[K")[2] for line in lines]


def last(text: str) -> str:
    return text.splitlines()[-1]


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
    assert shown.count("Traceback (most recent call last)") == 1
    assert shown.count("modle.fit()") == 1
    assert shown.count('File "/home/user/train.py", line 3') == 1
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


def test_startup_lines_are_left_out_and_counted(
    terminal: OpenTerminal, write_spec: WriteSpec, distrun: Distrun, status: Status
) -> None:
    text = printing(INITIALIZE, NOTICE, f"my own: {NOTICE}", "ready")
    spec = write_spec(text, 1)
    window = terminal("launch", spec, columns=200)
    wait_until(window.ended)
    shown = window.text()
    assert f"worker:0 | my own: {NOTICE}\n" in shown
    assert f"| {NOTICE}" not in shown
    assert INITIALIZE not in shown
    assert last(shown).endswith(" · 2 start-up lines left out (see --all-output)")
    job = status()
    assert NOTICE in Path(job["tasks"][0]["log"]).read_text().splitlines()
    whole = distrun("launch", "--all-output", spec)
    assert f"worker:0 | {NOTICE}\n" in whole.stdout, whole.stderr
    assert "left out" not in whole.stderr


def test_logs_leave_them_out_as_well(distrun: Distrun, detached: Detach) -> None:
    job = detached(printing("first", NOTICE, "second", INITIALIZE, NOTICE), workers=1)
    distrun("wait", job)
    kept = "worker:0 | first\nworker:0 | second\n"
    for options in ((), ("-f",), ("-n", "2")):
        done = distrun("logs", *options)
        assert done.stdout == kept, options
        counted = "distrun: 3 start-up lines left out (see --all-output)\n"
        if options == ("-f",):
            assert done.stderr.startswith(f"{job} succeeded in ")
            assert f" · {counted.removeprefix('distrun: ')}" in done.stderr
        else:
            assert done.stderr == ("" if "-n" in options else counted)
    assert distrun("logs", "--tail", "1").stdout == "worker:0 | second\n"
    for options in (("--all-output",), ("--raw",), ("--json",), ("--grep", ".")):
        done = distrun("logs", *options)
        assert done.stdout.count("cudart_stub.cc") == 2, options
        assert done.stderr == ""
    assert distrun("logs", "--all-output", "-n", "1").stdout == f"worker:0 | {NOTICE}\n"
    distrun("wait", detached(printing(NOTICE)))
    assert distrun("logs").stderr.endswith("; worker:0, worker:1 printed nothing else\n")


def test_start_up_lines_among_a_failed_task_s_last_lines_are_in_the_report(
    terminal: OpenTerminal, distrun: Distrun, write_spec: WriteSpec
) -> None:
    script = failing(printing(INITIALIZE, *map(str, range(20)), NOTICE, "a", "b") + "kill -SEGV $$")
    window = terminal("launch", write_spec(script), columns=200)
    wait_until(window.ended)
    shown = window.text()
    assert "last lines    of worker:1:\n" in shown
    assert f"    | {NOTICE}\n    | a\n    | b\n" in shown
    assert f"worker:1 | {NOTICE}" not in shown
    assert INITIALIZE not in shown
    assert "2 start-up lines left out" in shown
    logs = distrun("logs")
    assert logs.stdout.splitlines()[-2:] == [f"worker:1 | {each}" for each in "ab"]
    assert distrun("logs", "-n", "2").stdout.endswith("worker:1 | a\nworker:1 | b\n")


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
    lines = [line for line in lines_of(window) if " | " in line]
    for number in range(1, 9):
        joined = lines.count(f"worker:* | same {number} (2 tasks)")
        assert 2 * joined + sum(line.endswith(f" | same {number}") for line in lines) == 2
    assert any("(2 tasks)" in line for line in lines)
    for task in ("worker:0", "worker:1"):
        assert lines.count(f"{task} | own {task}") == 1
    assert sum(2 if "(2 tasks)" in line else 1 for line in lines) == 20
    assert {line.index(" | ") for line in lines} == {8}
    whole = terminal("launch", "--all-output", spec, columns=80)
    wait_until(whole.ended)
    piped = distrun("launch", spec)
    for text in (whole.text(), piped.stdout):
        assert text.count("| same 5\n") == 2
        assert "tasks)" not in text


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
    assert " succeeded in " in last(window.text())
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
