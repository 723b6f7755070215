"""What `ps`, `status` and `launch` show, on terminals and in pipes, and what they leave out."""

import itertools
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

from harness.command import Distrun
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until

VALUES = "STEP=120 EPOCH=1 EPOCHS=1 LOSS=0.123456 EXAMPLES_PER_SEC=1800"
LIVE = re.compile("\x1b\\[1m[^\n\x1b]*\x1b\\[0m\r|\r\x1b\\[[JK]")
LONG = "a job with a name that is rather longer than any that one would give it by hand"


def test_status_shows_progress_and_fits_80_columns(
    distrun: Distrun, reporting: Callable[..., Path], terminal: OpenTerminal
) -> None:
    distrun("launch", "-d", reporting(VALUES))
    wait_until(lambda: all(e["progress"] and e["usage"] for e in distrun.status()["tasks"]))
    windows = {columns: terminal("status", columns=columns) for columns in (80, 160)}
    for columns, window in windows.items():
        window.finish()
        lines = window.text().splitlines()
        assert max(map(len, lines)) <= columns
        assert "2 running" in lines[0]
        assert "epoch 1/1 step 120 loss 0.1235 1,800/s" in lines[2]
    assert "CPU" in windows[80].text()
    assert "\x1b[38;5;28mrunning" in windows[80].seen
    titles = windows[160].text().splitlines()[1].split()
    assert " ".join(titles) == "TASK STATE HOST PID ATTEMPT CPU MEM TIME SEEN PROGRESS"
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    assert "epoch 1/1, step 120" in distrun("events").stdout


def test_many_tasks_and_a_long_name(distrun: Distrun, terminal: OpenTerminal) -> None:
    """A name is folded, and never cut."""
    job_id = distrun.detached("exec sleep 600", "--name", LONG, workers=20)
    shown = {}
    for command, columns in (("ps", 80), ("ps", 40), ("status", 80)):
        window = terminal(command, columns=columns)
        assert window.finish() == 0
        shown[command, columns] = window.text().splitlines()
        assert max(map(len, shown[command, columns])) <= columns
    assert "20/20" in "".join(shown["ps", 80])
    assert any("worker:19" in line for line in shown["status", 80])
    lines = [line[: len(job_id)] for line in shown["ps", 40][1:] if line.strip()]
    assert "".join(line.split()[0] for line in lines) == job_id
    distrun("kill")


def test_the_status_line_shows_progress_and_damages_no_output(
    reporting: Callable[..., Path], terminal: OpenTerminal, distrun: Distrun
) -> None:
    spec = reporting(VALUES)
    window = terminal("launch", spec, "--all-output", columns=100)
    said = "2/2 tasks up  epoch 1/1  step 120  loss 0.1235  1,800 examples/s  "
    # Below all output: else the line may be gone for a moment when the window shrinks.
    wait_until(lambda: said in window.read().partition("reported")[2].partition("reported")[2])
    window.resize(24, 10)
    wait_until(lambda: "\x1b[1m2/2 tasks up  epoch 1/1\x1b[0m\r" in window.read())
    assert window.seen.count("\x1b[J") == 1, "only of a folded line: tmux keeps each such screen"
    window.resize(200, 10)
    (distrun.cwd / "go").touch()
    assert window.finish() == 0
    assert LIVE.findall(window.seen)[-1] == "\r\x1b[K", "it is still there at the end"
    left = LIVE.sub("", window.seen).replace("\r\n", "\n")
    lines = re.sub("\x1b\\[[0-9;]*m", "", left).splitlines()
    assert sorted(lines[:-1]) == ["worker:0 | reported", "worker:1 | reported"]
    result = r"(job-\w+) succeeded in \S+ s · epoch 1/1, loss 0\.123 · logs: distrun logs \1"
    assert re.fullmatch(result, lines[-1])
    piped = distrun("launch", spec)
    assert sorted(piped.stdout.splitlines()) == sorted(lines[:-1])
    assert "tasks up" not in piped.stdout + piped.stderr


def test_a_new_attempt_does_not_go_on_with_the_steps_of_the_former(
    distrun: Distrun, terminal: OpenTerminal
) -> None:
    steps = printing("step 11 loss 1", "step 12 loss 1")
    script = (
        f"[ $DISTRUN_ATTEMPT = 1 ] && exec sleep 600\n{steps}until test -e go; do sleep 0.02; done"
    )
    window = terminal("launch", distrun.write_spec(f"{script}; exit 3", 1, restart={"max": 1}))
    wait_until(lambda: "1/1 tasks up  step 12" in window.read())
    (distrun.cwd / "go").touch()
    bare = re.compile(r"1/1 tasks up  [\d.]+ s")
    wait_until(lambda: bare.search(window.read().rpartition("step 12")[2]))
    window.type("\x03")
    assert window.finish() == 130


def test_many_metrics_leave_room_for_the_rest(
    distrun: Distrun, reporting: Callable[..., Path], terminal: OpenTerminal
) -> None:
    spec = reporting(f"{VALUES} VAL_LOSS=0.5 LEARNING_RATE=0.001")
    launched = terminal("launch", spec, columns=70)
    line = re.compile(r"epoch 1/1  step 120  loss 0\.1235  [\d.]+ s  (job-\w{6})\x1b")
    wait_until(lambda: line.search(launched.read()))
    assert re.search(r"distrun: job job-\w{6}: 2 tasks on localhost\r", launched.seen)
    wait_until(lambda: all(task["usage"] for task in distrun.status()["tasks"]))
    for command, title in (("status", " CPU "), ("ps", " SEEN")):
        window = terminal(command, columns=80)
        wait_until(window.ended)
        assert title in window.text(), command
        assert max(map(len, window.text().splitlines())) <= 80
    (distrun.cwd / "go").touch()
    wait_until(launched.ended)


def test_a_pipe_is_never_coloured_and_its_end_shows_no_traceback(distrun: Distrun) -> None:
    distrun.launch("seq 200000", workers=1)
    forced = {**os.environ, "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}
    for args in (("ps", "-a"), ("status",), ("logs",), ("events",)):
        assert "\x1b" not in distrun(*args, env=forced).stdout
        read, write = os.pipe()  # that nobody reads
        os.close(read)
        done = distrun(*args, stdout=write)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, ""), args


def test_a_dumb_terminal_gets_no_escapes(terminal: OpenTerminal, distrun: Distrun) -> None:
    terms = itertools.cycle(["dumb", "unknown", ""])
    script = "printf '\\033[31mred\\033[0m text\\n'; until test -e go; do sleep 0.1; done; exit 3"
    spec = distrun.write_spec(script, workers=1)
    launch = terminal("launch", spec, term=next(terms))
    wait_until(lambda: "red text" in launch.read())
    others = [terminal("logs", "-f", term=next(terms))]
    wait_until(lambda: "red text" in others[0].read())
    (distrun.cwd / "go").touch()
    assert launch.finish() == 3
    commands = ("ps -a", "status", "logs", "events", f"plan {spec}", f"doctor {spec}", "--help")
    others += [terminal(*command.split(), term=next(terms)) for command in commands]
    for window in (launch, *others):
        window.finish()
        assert window.seen
        assert "\x1b" not in window.seen
        assert "\r" not in window.seen.replace("\r\n", "")


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


def test_a_failure_shows_its_traceback_once(distrun: Distrun, terminal: OpenTerminal) -> None:
    script = failing(f"cat <<'E'\n{TRACEBACK}E", 1)
    window = terminal("launch", distrun.write_spec(script), columns=80)
    window.finish()
    shown = window.text()
    assert shown.count("Traceback (most ") == shown.count("modle.fit()") == 1
    assert shown.count('NameError: name "modle" is ') == 2, "in the log, and the cause"
    labels = re.findall(r"^  (\w+(?: \w+)*)  ", shown[shown.index("\njob job-") :], re.MULTILINE)
    assert labels == ["cause", "evidence", "try", "also stopped", "logs"]


def test_without_the_output_the_report_has_the_traceback(distrun: Distrun) -> None:
    done = distrun("launch", distrun.write_spec(failing(f"echo old\ncat <<'E'\n{TRACEBACK}E", 1)))
    report = done.stderr
    assert report.count("Traceback (most ") == 1
    assert "| old" not in report, "the traceback is enough"
    chosen = distrun("launch", distrun.write_spec(failing("echo no data")), "-t", "worker:0")
    assert (chosen.stdout, "line 1: no data\n" in chosen.stderr) == ("", True)
    assert distrun("launch", distrun.write_spec("exit 0"), "-t", "worker:3").returncode == 2


def test_start_up_lines_are_left_out_and_counted(terminal: OpenTerminal, distrun: Distrun) -> None:
    spec = distrun.write_spec(printing("first", NOTICE, f"my own: {NOTICE}", INITIALIZE, NOTICE), 1)
    window = terminal("launch", spec, columns=200)
    window.finish()
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
    whole = distrun("launch", "--all-output", distrun.write_spec(printing(NOTICE)))
    assert f"worker:0 | {NOTICE}\n" in whole.stdout
    assert "left out" not in whole.stderr
    assert distrun("logs").stderr.endswith("; worker:0, worker:1 printed nothing else\n")


def test_equal_lines_are_shown_once_on_a_terminal(terminal: OpenTerminal, distrun: Distrun) -> None:
    # On a busy machine, a task may be late once, but not each time.
    script = (
        "for n in 1 2 3 4 5 6 7 8; do touch up-$DISTRUN_TASK-$n\n"
        "until test -e up-worker:0-$n -a -e up-worker:1-$n; do sleep 0.01; done\n"
        "echo same $n; done; echo own $DISTRUN_TASK; echo last"
    )
    spec = distrun.write_spec(script)
    window = terminal("launch", spec, columns=80)
    window.finish()
    lines = [line.rpartition("\x1b[K")[2] for line in window.text().splitlines() if " | " in line]
    for number in range(1, 9):
        joined = lines.count(f"worker:* | same {number} (2 tasks)")
        assert 2 * joined + sum(line.endswith(f" | same {number}") for line in lines) == 2
    assert any(line.startswith("worker:* | same ") for line in lines)
    assert {"worker:0 | own worker:0", "worker:1 | own worker:1"} <= set(lines)
    piped = distrun("launch", spec).stdout
    assert (piped.count("| same 5\n"), "tasks)" in piped) == (2, False)


def test_it_is_on_stderr_beside_output(distrun: Distrun, reporting: Callable[..., Path]) -> None:
    launch = shlex.join([*distrun.argv, "launch", str(reporting("STEP=20 STEPS=40"))])
    window = Terminal(["sh", "-c", f"exec {launch} >output"], str(distrun.cwd), 80, 24)
    wait_until(lambda: "2/2 tasks up  step 20/40 50%" in window.text())
    (distrun.cwd / "go").touch()
    assert window.finish() == 0
    output = (distrun.cwd / "output").read_text()
    assert sorted(output.splitlines()) == [f"worker:{n} | reported" for n in (0, 1)]
    assert " succeeded in " in window.text().splitlines()[-1]
    assert "reported" not in window.seen
    assert "\x1b[K" in window.seen
    window.close()


def test_it_says_when_sigkill_is_due(distrun: Distrun, terminal: OpenTerminal) -> None:
    stubborn = "trap '' TERM; echo ready $DISTRUN_TASK; while :; do sleep 0.1; done"
    window = terminal("launch", distrun.write_spec(stubborn, timeouts={"grace": "60s"}), columns=80)
    wait_until(lambda: window.read().count("ready") == 2)
    os.kill(window.process.pid, signal.SIGINT)
    due = re.compile(r"stopping, SIGKILL in [1-6]\d s  2/2 tasks up")
    wait_until(lambda: due.search(window.text()))
    window.type("\x03")
    assert window.finish() == 130
