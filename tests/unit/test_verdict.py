"""The first cause and its echoes: what no recorded case shows, replayed as histories."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.histories import MWM, running
from harness.parts.job import Place, events
from harness.parts.lifecycle import STALL
from harness.parts.protocol import Cause, Code
from harness.parts.verdict import Kind, LogTail, Verdict, success_verdict, without_contact
from harness.parts.words import cause_advice, cause_text, evidence_text
from harness.scenarios import check, play, scenarios, verdict_words, verdicts
from harness.values import not_none

from .test_verdict_words import ABORTED, DUMP, ECHO, HANDLED, alone, raised, rows

OWN = (
    "Traceback (most recent call last):\n"
    '  File "/home/user/train.py", line 7, in <module>\n'
    "    load()\n"
    "ValueError: labels must lie in [0, 10), got 17\n"
)
CAUGHT = "W0000 00:00:1.5 11 preemption_notifier.cc:90] SIGTERM caught at 2026-11-21T07:31:15\n"
IGNORED = "Exception ignored in: <function f at 0x7f>\n" + raised("KeyError: 'x'")
FAILED_RPC = "E0000 00:00:1.5 11 x.cc:2] UNAVAILABLE: Failed to send RPC to coordination service.\n"
LOGS = {
    "WATCHDOG": "[rank1]: Watchdog caught collective operation timeout\nterminate called after\n",
    "JAX": "F1130 05:24:40.3 1 client.h:80] JAX distributed service detected fatal errors\n",
    "REFUSED": raised("ConnectionRefusedError: [Errno 111] Connection refused"),
    "NO_DATA": "Your input ran out of data; interrupting training.\n",
    "OF_WORKER1": raised("a.errors_impl.InvalidArgumentError: bad, at /job:worker/task:1"),
    "ECHO": ECHO, "OWN": OWN, "OWN_CAUGHT": OWN + CAUGHT, "OWN_IGNORED": OWN + IGNORED,
    "HANDLED": HANDLED, "ASKED": raised("RuntimeError: asked to end"), "OWN_LINES": OWN + "See 7\n",
    "CAUGHT_ASKED": "epoch 1\n" + CAUGHT + raised("RuntimeError: asked to end"), "DUMP": DUMP,
    "CAUGHT_ABORTED": CAUGHT + ABORTED, "OWN_RPC": OWN + FAILED_RPC, "RPC": "F" + FAILED_RPC[1:],
    "THREAD": "Exception in thread Thread-1:\n" + OWN,
    "REPLACED": ("Process ForkPoolWorker-9:\n" + OWN) * 9,
    "OVER": OWN
    + DUMP.replace("Segmentation fault", "Aborted")
    + '  File "/l/threading.py", line 1590 in _shutdown\n',
    "BEHIND": "Fatal Python error: Aborted\n\n"
    'Thread 0x7f (most recent call first):\n  File "/u/t.py", line 9 in train\n'
    '\nCurrent thread 0x7e (most recent call first):\n'
    '  File "/l/lib/python3.11/threading.py", line 1590 in _shutdown\n',
    "SPAWNED": OWN.replace(
        "  File",
        '  File "<string>", line 1, in <module>\n'
        '  File "/l/multiprocessing/spawn.py", line 122, in spawn_main\n  File',
    ),
    "STACK": DUMP.replace("Segmentation fault", "Aborted"),
    "GONE": f"{OWN}Fatal Python error: Aborted\n\nCurrent thread 0x7f:\n  <no Python frame>\n",
}  # fmt: skip


@scenarios("first_cause.txt")
def test_the_first_cause(scenario: list[str]) -> None:
    """A line `? worker0=OWN -> kind task echoes` has the logs, and the verdict on them."""
    asked = [line for line in scenario if line.startswith("?")]
    at = scenario.index(asked[0])
    job = play(scenario[:at])
    for line in asked:
        named, _, expected = line[1:].partition("-> ")
        logs = {task: LOGS[text] for task, text in (each.split("=") for each in named.split())}
        *_, verdict = verdicts(job, **logs)
        assert verdict_words(verdict) == expected, line
    job(events.VerdictReached, verdict=verdict)
    for line in scenario[at + len(asked) :]:
        check(job, line)


LIMIT = Cause(Code.RESOURCE_LIMIT, name="RLIMIT_NPROC", total=60, count=9)
WITHOUT_THREAD = "Exception in thread Thread-1:\n" + raised("RuntimeError: can't start new thread")
OUT_OF_MEMORY = Cause(Code.OOM_KILL_LOGGED, text="Memory cgroup out of memory")
LOST_CHILD = Cause(Code.CHILD_KILLED, pid=5, signal=9)
STEPS = "step 1: loss 0.5\n" * 9
OF_HANGS: dict[str, tuple[str, dict[str, Any], Kind, str]] = {
    "a limit": (WITHOUT_THREAD, {"found": (LIMIT,)}, Kind.LIMIT, "thread, at t.py:9; `ulimit -u`"),
    "a suspended one": ("", {"suspended": True}, Kind.UNRESPONSIVE, "did not run"),
    "a child": ("", {"child": LOST_CHILD}, Kind.KILLED, "process 5 was killed by SIGKILL"),
    "a thread, and what it had read was used up": (
        f"{LOGS['THREAD']}{STEPS}{LOGS['STACK'].replace('/u/t.py', '/lib/python3/queue.py', 1)}",
        {}, Kind.EXCEPTION, "got 17, at train.py:7"),
    "a thread, although the program has ended": (
        LOGS["BEHIND"], {}, Kind.STALLED, "ended, and waited for a thread at t.py:9 in train"),
    "a program that it has started": (
        LOGS["BEHIND"].replace("threading.py", "subprocess.py") + '  File "/u/run.py", line 3\n',
        {}, Kind.STALLED, 'File "/u/t.py", line 9 in train'),
    "something else, as a thread had ended before": (
        LOGS["THREAD"] + STEPS, {}, Kind.STALLED, ""),
    "interrupted children": (
        "Process Fork-1:\n" + raised("KeyboardInterrupt"), {}, Kind.STALLED, ""),
}  # fmt: skip


@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize("what", OF_HANGS)
def test_what_a_task_waits_for_without_end_is_the_cause(what: str, is_stopped: bool) -> None:
    """Whether `timeouts.stall` ends the job, or a person who sees that it is quiet."""
    log, exit_fields, kind, said = OF_HANGS[what]
    job = play(["mwm worker:2 | stall=9"])
    if is_stopped:
        job(events.TasksQuiet, since=0.0)
        job.stop()
    else:
        job.timed_out("stall")
    job.gone("worker:0", None, 6)
    job.gone("worker:1", None, 6, **exit_fields)
    (verdict,) = verdicts(job, worker1=log + LOGS["STACK"])
    shown = "".join([cause_text(verdict.cause), *(each.text for each in verdict.evidence)])
    assert (verdict.kind, said in shown) == (kind, True), verdict


def test_what_keeps_a_job_from_its_start_or_its_end() -> None:
    job = play(["mwm worker | created"])
    lacking = Cause(Code.POD_UNSCHEDULABLE, name="p", text="no node")
    job(events.PlanFailed, restart=0, cause=lacking)
    job(events.TimedOut, timer=events.Timer(events.TimerKind.START))
    assert [(each.kind, each.cause) for each in verdicts(job)] == [(Kind.NO_ROOM, lacking)]
    job = play(["mwm worker | created"])
    unanswered = Cause(Code.ORDER_NOT_ANSWERED, seconds=9.0)
    late = Cause(Code.HOST_NOT_PREPARED, host="h1", within=(unanswered,))
    job(events.TimedOut, timer=events.Timer(events.TimerKind.START), within=(late,))
    (verdict,) = verdicts(job)
    (line,) = verdict.evidence
    assert (line.host, line.cause) == ("h1", unanswered)
    assert "by `kubectl exec`" in not_none(cause_advice(unanswered))
    ends = ["worker:0 gone 0", "timer run", "evaluator:0 gone -15"]
    job = play(["mwm worker evaluator | run=60 success=ALL", *ends])
    (verdict,) = verdicts(job, worker0="the end", evaluator0="epoch 9")
    assert [each.text for each in verdict.evidence] == ["epoch 9"]


SHOWN_LATE: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "an exception of one": (OWN, "", {}, "timeouts.run, 60 s: worker:1 failed with ValueError"),
    "one of all, which they may have caught": (OWN, OWN, {}, "timeouts.run, 60 s|"),
    "a line after it": (f"{OWN}uploading\n", "", {}, "0, 10), got 17|uploading"),
    "a killed child": ("", "", {"child": LOST_CHILD}, "60 s|lost a child process: process 5"),
    "mixed lines of a pool": (
        OWN.replace("  File", '  File "/lib/python3/multiprocessing/process.py", line 9, in run\n'
                    '  File "/lib/python3/multiprocessing/pool.py", line 9, in worker\n  File', 1),
        "", {}, "worker:1 failed with ValueError: labels"),
}  # fmt: skip


@pytest.mark.parametrize("what", SHOWN_LATE)
def test_what_a_job_that_took_too_long_has_shown(what: str) -> None:
    log, other, exit_fields, said = SHOWN_LATE[what]
    job = play(["mwm worker:2 | run=60", "timer run", "worker:0 gone -15"])
    job.gone("worker:1", None, 15, **exit_fields)
    (verdict,) = verdicts(job, worker0=other, worker1=log)
    shown = "|".join([cause_text(verdict.cause), *map(evidence_text, verdict.evidence)])
    assert said in f"{shown}|", shown


@pytest.mark.parametrize(
    ("log", "signal", "kind", "at", "line"),
    [
        (OWN, 9, Kind.EXCEPTION, -1, "process 5 was killed by SIGKILL"),
        ("setup\n", 0, Kind.EXIT, 0, "lost a child process: python t.py exited 1"),
        (raised("EOFError"), 0, Kind.EXCEPTION, -1, "EOFError"),
        (LOGS["DUMP"] + raised("BrokenProcessPool: gone"), 11, Kind.CRASH, 1, "line 9 in train"),
        *((raised(f"E: {said}"), 9, Kind.KILLED, 0, "lost a child")
          for said in ("A subprocess has died", "\n rank 0 (pid: 5)", "terminated with signal")),
    ],
)  # fmt: skip
def test_a_childs_death_is_evidence(log: str, signal: int, kind: Kind, at: int, line: str) -> None:
    of_shell = {} if signal else {"status": 1, "text": "python t.py"}
    job, child = play(["mwm worker"]), LOST_CHILD._replace(signal=signal, **of_shell)
    job.gone("worker:0", 1, child=child)
    (verdict,) = verdicts(job, worker0=log)
    assert verdict.kind is kind
    assert line in evidence_text(verdict.evidence[at])


def test_of_many_hung_tasks_the_one_that_is_elsewhere_is_named_and_quoted_first() -> None:
    job = play(["mwm worker:7"])
    job(events.TasksQuiet, since=0.0)
    job.stop()
    logs = {f"worker{index}": LOGS["STACK"] for index in range(7)}
    logs["worker5"] = LOGS["STACK"].replace("t.py", "data.py")
    logs["worker6"] = LOGS["GONE"].replace(OWN, ECHO)  # it had begun to exit
    for index in range(7):
        job.gone(f"worker:{index}", None, 6)
    (verdict,) = verdicts(job, **logs)
    assert "; unlike the others, worker:5 was at data.py:" in cause_text(verdict.cause)
    assert [each.task for each in verdict.evidence] == ["worker:5", "worker:0", "worker:1"]


def test_where_a_thread_hangs_that_the_others_do_not_have_is_named() -> None:
    """As the generator of a data set. The bar of Keras has no end of its line."""
    job = play(["mwm worker:2"])
    job(events.TasksQuiet, since=0.0)
    job.stop()
    for index in range(2):
        job.gone(f"worker:{index}", None, 6)
    thread = '\n\nThread 0x7e (most recent call first):\n  File "/u/b.py", line 17 in batches\n\n'
    stack = "29/50 [====>....] - ETA: 2s - loss: 5.2" + LOGS["STACK"]
    (verdict,) = verdicts(job, worker0=stack, worker1=stack.replace("\n\n", thread, 1))
    assert "; unlike the others, worker:1 was at b.py:17 in batches" in cause_text(verdict.cause)
    assert verdict.evidence[0].text == 'File "/u/b.py", line 17 in batches'


@pytest.mark.parametrize(
    ("tasks", "busy", "stood", "said"),
    [
        ("worker:2", ("worker:0",), ["worker:0 at evaluate, t.py:3", "worker:1 at recv, t.py:9"],
         "; worker:0 was busy (evaluate, t.py:3) while the others waited"),
        # The first worker waits for all others, by another call; an evaluator always waits.
        ("worker:5 evaluator", (),
         ["worker:0 at recv, t.py:7", "evaluator:0 at sleep, eval.py:3",
          "worker:4 at load, data.py:2", "worker:1 worker:2 worker:3 at recv, t.py:7"],
         "; unlike the others, worker:4 was at load, data.py:2"),
    ],
)  # fmt: skip
def test_where_hung_tasks_stood(tasks: str, busy: Any, stood: list[str], said: str) -> None:
    job = play([f"mwm {tasks} | stall=9"])
    at = (each.split(" at ") for each in stood)
    places = tuple(Place(tasks=tuple(names.split()), place=place) for names, place in at)
    job(events.TimedOut, timer=STALL, busy=busy, places=places)
    for index in range(int(tasks[7])):
        job.gone(f"worker:{index}", None, 6)
    (verdict,) = verdicts(job)
    assert cause_text(verdict.cause).endswith(said)


def test_the_server_that_is_elsewhere_is_quoted() -> None:
    job, line = play(["mwm worker:2"]), "Started server with target: grpc://h:"
    where = Cause(Code.SERVED_ELSEWHERE, task="worker:0", text="h:1", tasks=("worker:1",))
    job(events.ClusterMismatched, cause=where)
    (verdict,) = verdicts(job, worker0=f"{line}1\n{line}2\n", worker1=f"{line}3\n")
    assert [(each.task, each.text) for each in verdict.evidence] == [("worker:0", f"{line}1")]
    for is_mine in (False, True):  # of one whose sockets nobody has looked at, its log shows it
        job = play(["mwm worker:2 | created"])
        job.placed({"worker:0": "h", "worker:1": "h"}, address="h:2", owns_tf_config=is_mine)
        job.gone("worker:0", 3)
        job.gone("worker:1", None, 15)
        (verdict,) = verdicts(job, worker0=f"{line}1\n{ECHO}")
        assert (verdict.kind is Kind.CLUSTER_MISMATCH) is not is_mine


def test_advice_is_for_its_host() -> None:
    taken = Cause(Code.PORT_TAKEN, port=2000, name="python3", pid=7)
    for host, how in (("h1", "(kill 7 on h1)"), ("localhost", "(kill 7)")):
        assert how in not_none(cause_advice(taken._replace(host=host)))
    login = "XDG_STATE_HOME for its login (at the top of its ~/.bashrc, or in ~/.zshenv)"
    for name, variable in (("DISTRUN_HOME", "DISTRUN_HOME"), ("XDG_STATE_HOME", login)):
        job = play(["mwm worker | planned worker:0@h1"])
        job(events.HostFault, host="h1", cause=Cause(Code.LOG_DISK_FULL, path="/x", name=name))
        (verdict,) = verdicts(job)
        assert verdict.kind is Kind.DISK_FULL
        assert cause_advice(verdict.cause) == f"make room there, or set {variable} to another disk"


@pytest.mark.parametrize(("at_there", "first"), [(1000.0, "worker:1"), (1002.0, "worker:0")])
def test_exits_are_ordered_by_when_they_were(at_there: float, first: str) -> None:
    """The link to `there` was down, so they were heard of later."""
    job = running(MWM, "worker:0", "worker:1", places={"worker:1": "there"})
    for task, at in (("worker:0", 1001.0), ("worker:1", at_there)):
        job.happened(events.TaskExited(at=at, task=task, attempt=0, code=1, was_stopping=False))
    job.ended("worker:0", "worker:1")
    (verdict,) = verdicts(job, worker0=OWN, worker1=OWN.replace("17", "18"))
    assert verdict.task == first
    assert ("got 18" in cause_text(verdict.cause)) == (first == "worker:1")


def test_out_of_memory_by_the_kernels_word() -> None:
    job = play(["mwm worker:2"])
    oom = Cause(Code.OOM_KILL_LOGGED, text="Memory cgroup out of memory: Killed process 7")
    job.gone("worker:1", signal=9, oom=oom)
    job.gone("worker:0", signal=15)
    (verdict,) = verdicts(job)
    assert (verdict.task, verdict.kind) == ("worker:1", Kind.HOST_MEMORY)
    assert "kernel: Memory cgroup" in evidence_text(verdict.evidence[0])
    assert "batch" in not_none(cause_advice(verdict.cause))


HEAD = "Traceback (most recent call last):"


@pytest.mark.timeout(60)  # the time of these patterns grows with the square of the line's length
@pytest.mark.parametrize(
    "lines",
    [
        f'  File "a.py", line 1, in f{" " * 60_000}x\nValueError: x',
        f"ValueError: {'Invalid value for argument `reduction` ' * 25_000}",
        # Python's marks below a line of a program: they were read for each traceback.
        "ValueError: x\n" + f"{HEAD}\nValueError: x\n" * 50 + "^\n" * 450_000 + "^" * 70_000,
        # It took minutes when each error was compared with all others.
        "SyntaxError: \n" * 4_900,
        f"{HEAD}\nValueError: in user code:\n" * 1_200,
    ],
    ids=["frame", "message", "marks", "syntax", "errors"],
)
def test_a_long_line_in_a_log_delays_no_verdict(lines: str) -> None:
    assert alone(f"{HEAD}\n{lines}\n").task == "worker:1"


# What speaks against a success --------------------------------------------------------------------


HIDDEN = (
    "worker:0 exited 0 although the log ends in an exception: ValueError: batch size 0, at t.py:9"
)
RAISED = raised("ValueError: batch size 0")


def judged(
    *scenario: str, script: str = "", program: str = "", text: str = "", **logs: str
) -> Verdict | None:
    """What speaks against the success of a scenario whose tasks run a shell script."""
    texts = {name: text.encode() for name, text in logs.items()}
    return success_verdict(
        play(scenario).state,
        lambda name: LogTail(texts.get(name.replace(":", ""), b"")),
        {"sh -c": script} if script else {},
        [program] if program else (),
        read_program=lambda _: text,
    )


def found(*scenario: str, script: str = "", **logs: str) -> str:
    verdict = judged(*scenario, script=script, **logs)
    return "" if verdict is None else cause_text(verdict.cause)


def bash(script: str, folder: Path) -> int:
    command = ["bash", "-c", script]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True).returncode


@rows("hidden by a line of the script", "hider script after")
def test_a_line_that_hides_an_error(script: str, after: str, hider: str, tmp_path: Path) -> None:
    verdict = judged("mwm worker", "worker:0 gone 0", script=script, worker0=RAISED + after)
    (cause,) = not_none(verdict).cause.within
    assert f"{HIDDEN}; its exit code is hidden at sh -c:{hider}" in cause_text(cause)
    advice = cause_advice(cause) or ""
    failing = script.replace("python own.py", "false")
    assert bash(failing, tmp_path) == 0
    option = re.search(r"write `(set -.*?)`", advice)
    is_told = "let the shell script exit with the program's code" in advice
    assert bash(f"{option[1]}\n{failing}", tmp_path) if option else is_told


@rows("a script that goes on", "hider script text after")
def test_a_script_that_goes_on(script: str, text: str, after: str, hider: str) -> None:
    line = text.partition("t.main()")[0].count("\n") + 1 if text else 2
    run_as = f'{HEAD}\n  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    head = run_as if " -m " in script else f"{HEAD}\n"
    error = f'{head}  File "/u/a.py", line {line}, in <module>\n    t.main()\nOSError: none\n'
    lines = f"begins\n{error}{after}" + "printed by another command\n" * 5
    verdict = judged("mwm worker", "worker:0 gone 0", script=script, text=text, worker0=lines)
    said = "" if verdict is None else cause_text(verdict.cause)
    assert f"hidden at sh -c:{hider}" in said if hider else not said


@rows("a program that did not run", "hider log")
def test_a_program_that_did_not_run_is_told(log: str, hider: str) -> None:
    exits = 'if not data:\n    sys.exit(f"no data for seed {seed}")\nsys.exit(f"{kind}: {error}")'
    script = "nvidia-smi\npyhton t.py --bad\necho ended"
    setup = "module load python/3.11\nPYTHON=python3\necho 'with python' > log\n"
    others = setup + script.replace("pyhton", "$PYTHON")
    for text, at in ((script, 2), (others, 5)):
        lines = f"{log.format(at, at + 1, at - 1)}ended\n"
        verdict = judged("mwm worker", "worker:0 gone 0", script=text, text=exits, worker0=lines)
        said = "" if verdict is None else cause_text(verdict.cause)
        hides = f"failed: {lines.splitlines()['usage' in log]}; its exit code is hidden at "
        assert hides + hider.format(at, at + 1) in said if hider else not said


@rows("a command that failed before", "is_told line said")
def test_a_command_that_failed_before_is_told(line: str, said: str, is_told: str) -> None:
    for text, is_before in ((f"#\n{line}\npython t.py\n", True), (f"#\n{line}\n", False)):
        verdict = success_verdict(
            play(("mwm worker", "worker:0 gone 0")).state,
            lambda _: LogTail(b""),
            {"t.sh": text},
            read_begin=lambda _: LogTail(f"begins\n{said}epoch 1\n".encode()),
        )
        told = "" if verdict is None else cause_text(verdict.cause)
        is_expected = bool(is_told) and (is_before or "python" in line)
        assert ("its exit code is hidden at t.sh:2: " + line in told) is is_expected, told


OF_MAKE = "make: [Makefile:2: train] Error 1 (ignored)"


@pytest.mark.parametrize("after", ["", "training finished\n"])
def test_an_error_that_make_ignores_is_told(after: str) -> None:
    log = {"worker0": f"{RAISED}{OF_MAKE}\n{after}"}
    cause = not_none(judged("mwm worker", "worker:0 gone 0", script="make train", **log)).cause
    assert cause_text(cause).endswith(f"; its exit code is hidden at {OF_MAKE}")
    assert "remove the `-` before that command" in (cause_advice(cause) or "")


@rows("given up after an error", "said reached log")
def test_who_gives_up_after_an_error_is_told(reached: str, log: str, said: str) -> None:
    reports = [f"worker:0 reports {reached}"] if reached else []
    told = found("mwm worker", *reports, "worker:0 gone 0", worker0=log)
    assert said in told if said else not told


CRASHED = "worker:0 exited 0 although {} killed one of its processes"


@rows("a process that was killed, by words", "is_told script log")
def test_a_process_that_was_killed_is_told_by_words(log: str, script: str, is_told: str) -> None:
    said = found("mwm worker", "worker:0 gone 0", script=script, worker0=log)
    name = "SIGTERM" if "Term" in log else "SIGKILL"
    assert (CRASHED.format(name) in said) == bool(is_told) == bool(said)


@pytest.mark.parametrize(
    "log",
    [
        '  File "/home/user/t.py", line 5, in f\n    print_stack()\nKeyError: none\n',
        'Stack (most recent call last):\n  File "/t.py", line 5, in f\n    g()\nOSError: slow\n',
        "sizes:\nmodel.py 340 lines\nUserWarning: slow\n",
        "\nmodel.py 340 lines\nError: 503, trying again\n", f"{RAISED}up\n", "ValueError: none\n",
        "look for\nTraceback (most recent call last):\nin the log.\n",
    ],
)  # fmt: skip
def test_a_stack_a_list_or_an_exception_after_which_it_went_on_is_none(log: str) -> None:
    of_one = ("mwm worker", "worker:0 gone 0")
    assert not found(*of_one, worker0=log)
    assert not found(*of_one, script="python own.py", worker0=log)
    assert not found(*of_one, script="python own.py\necho $?", worker0=f"{log}0\n")


def test_an_exception_after_which_a_shell_script_runs_another_program_is_none() -> None:
    script = "if python own.py; then echo ok; else echo again; python other.py; fi"
    for after, is_told in (("again\nepoch 1 loss 0.4\n", False), ("again\n", True)):
        said = found("mwm worker", "worker:0 gone 0", script=script, worker0=RAISED + after)
        assert bool(said) is is_told


@rows("an exception, by its script", "is_told script log")
def test_an_exception_counts_by_its_script(log: str, script: str, is_told: str) -> None:
    caught = "try:\n" + "    main()\n" * 9 + "except OSError:\n    pass"
    texts = {"import t\nt.main()": True, caught: script != "launch.py"}
    for text, counts in texts.items() if "README" not in log else [("", False)]:
        verdict = judged("mwm worker", "worker:0 gone 0", program=script, text=text, worker0=log)
        assert (verdict is not None) is (bool(is_told) and counts)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        # Perhaps it waited for the other's first connection.
        ({"contact": "silent"}, ""), ({"contact": "met"}, ""), ({"child": LOST_CHILD}, ""),
        ({"child": LOST_CHILD._replace(signal=11)}, CRASHED.format("SIGSEGV")),
        ({"child": LOST_CHILD._replace(within=(OUT_OF_MEMORY,))}, CRASHED.format("SIGKILL")),
        ({"child": LOST_CHILD._replace(signal=None, status=1)}, "an exception ended a thread"),
    ],
)  # fmt: skip
def test_what_a_host_has_seen_of_a_task_that_exited_0(seen: dict[str, Any], said: str) -> None:
    """The other task has ended before anything could be seen of it."""
    job, log = play(["mwm worker:2"]), LogTail(f"{RAISED}saved\n".encode())
    for name, more in (("worker:0", seen), ("worker:1", {})):
        job.gone(name, **more)
    verdict = success_verdict(job.state, lambda _: log, {}, ["t.py"], read_program=lambda _: "go()")
    told = "" if verdict is None else cause_text(verdict.cause)
    assert said in told if said else not told


@pytest.mark.parametrize("tasks", ["mwm worker:2", "ps chief worker ps"])
def test_who_never_listened_is_told(tasks: str) -> None:
    """Those that train with servers need not reach each other."""
    strategy = "MultiWorkerMirrored" if "mwm" in tasks else "ParameterServer"
    for contact, said in (("alone", "alone" if "mwm" in tasks else ""), ("silent", "silent")):
        job = play([tasks])
        for name in job.state.tasks:
            job.gone(name, contact=contact if "mwm" in tasks or name == "chief:0" else "")
        assert without_contact(job.state) == said
    (cause,) = not_none(success_verdict(job.state, lambda _: LogTail(b""), {})).cause.within
    for words in (f"(`tf.distribute.{strategy}Strategy`)", "write `program.tf_config: mine`"):
        assert words in (cause_advice(cause) or "")


def test_an_evaluator_that_failed_is_told() -> None:
    of_one = found("mwm worker evaluator", "evaluator:0 gone 1", "worker:0 gone 0")
    assert of_one == "it succeeded only in part: evaluator:0 exited 1"


def test_a_crash_that_a_program_looks_at_before_its_end_is_not_told() -> None:
    job = play(["mwm worker", "worker:0 reports STEP=9 STEPS=9"])
    job.gone("worker:0", child=Cause(Code.CHILD_KILLED, pid=5, signal=11))
    for text in ("if r.returncode: ...", ""):
        verdict = success_verdict(job.state, lambda _: LogTail(b""), {}, text=text)
        assert bool(verdict) is not bool(text)


@rows("as long as a timeout", "is_told lived script")
def test_a_life_as_long_as_a_timeout_is_told(script: str, lived: str, is_told: str) -> None:
    said = found("mwm worker", f"worker:0 gone 0 after {lived}", script=script)
    assert bool(said) is bool(is_told)


QUICK = ("worker:0 first STEP=49", "worker:1 first STEP=9", "worker:0 worker:1 reports STEP=999")
"""Tasks whose first reports came some steps late."""


@pytest.mark.parametrize(
    ("line", "first", "each", "more"),
    [
        ("step {}: loss 0.5", 1, 1, ()), ("Epoch {}", 1, 1, ()), ("step {}", 41, 1, ()),
        ("step {}", 1, 1, QUICK), ("step {}", 50, 10, ()),  # it prints only each tenth
    ],
)  # fmt: skip
def test_replicas_that_resume_at_different_steps_are_told(
    line: str, first: int, each: int, more: tuple[str, ...]
) -> None:
    logs = {}
    for index, (begin, distance) in enumerate(((41, 1), (first, each))):
        restored = f"Restored from /ckpt/worker:{index}/ckpt-{begin - 1}"
        taken = (line.format(step) for step in range(begin, begin + 20, distance))
        logs[f"worker{index}"] = "\n".join((restored, *taken))
    restarted = ("mwm worker:2 | max=1", "worker:0 exit 1", "again worker:0 worker:1")
    said = found(*restarted, *more, "worker:0 worker:1 gone 0", **logs)
    name = line.partition(" ")[0].lower()
    told = (
        "the tasks began at different steps after the restart, and trained different weights: "
        f"worker:0 at {name} 41 (from /ckpt/worker:0/ckpt-40); worker:1 at {name} 1 "
        "(from /ckpt/worker:1/ckpt-0)"
    )
    assert (told in said) == bool(said) == (first == 1)


def steps(last: int, form: str = "step {}\n", said: str = "") -> str:
    return "".join(form.format(step) for step in range(last + 1)) + said


LOSS = "Iteration {}: loss 0.1\n"
KNOWN = "worker:0 worker:1 reports STEP=20 STEPS=100"
"""How many steps there are is known."""
PREEMPTED = "worker:1 was preempted: it exited 0 at step 20 after a SIGTERM that distrun did not"


@pytest.mark.parametrize(
    ("reports", "first", "second", "told"),
    [
        ([], steps(99), steps(20, said="caught SIGTERM, saved\n"), PREEMPTED),
        ([], steps(99, LOSS), steps(20, LOSS, "preempted\n"), PREEMPTED),
        ([KNOWN], *[steps(20, said="caught SIGTERM, saved\n")] * 2,
         "worker:0, worker:1 were preempted: they exited 0 at step 20 of 100 after a SIGTERM"),
        # Children that say so after each epoch, a handler that is installed, and an early end.
        ([KNOWN], *["".join(f"step {n}\nCaught signal 15. Ending.\n" for n in (9, 20))] * 2, ""),
        ([KNOWN], *["Installed a SIGTERM handler\n" + steps(20)] * 2, ""),
        ([], steps(199), steps(19),
         "worker:1 exited 0 at step 19, long before worker:0, which reached step 199"),
    ],
)  # fmt: skip
def test_who_leaves_early_is_told(reports: list[str], first: str, second: str, told: str) -> None:
    logs = {"worker0": first, "worker1": second}
    ended = ("worker:1 gone 0", "wait 5", "worker:0 gone 0 after 15")
    said = found("mwm worker:2 | rooms worker:1@h2", *reports, *ended, **logs)
    assert told in said if told else not said
