"""What one task says of its end, replayed as a history: which of its words count."""

import errno
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.histories import MWM, Job
from harness.parts.formats import clip, format_names, format_time, install_command, wrapped
from harness.parts.job import events
from harness.parts.protocol import Cause, Code
from harness.parts.top import Role
from harness.parts.verdict import (
    Kind,
    LogAnalysis,
    LogTail,
    Verdict,
    find_lone_calls,
    missing_checkpoint,
)
from harness.parts.words import cause_advice, cause_text, evidence_lines, formats
from harness.parts.words import events as event_words
from harness.scenarios import play, verdicts
from harness.tables import read_table
from harness.values import not_none

TB = 'Traceback (most recent call last):\n  File "/u/t.py", line 9, in <module>\n    train()\n'
HANDLED = TB + "FileNotFoundError: [Errno 2] No such file or directory: 'cache'\n"
ABORTED = "terminate called after throwing an instance of 'std::runtime_error'\n"
ECHO = (
    TB + "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: "
    "Socket closed\n"
)
DUMP = (
    "Fatal Python error: Segmentation fault\n\n"
    "Current thread 0x00007f (most recent call first):\n"
    '  File "/u/t.py", line 9 in train\n'
    '  File "/u/t.py", line 12 in <module>\n'
)


def test_advice_for_several_hosts_names_none_in_its_commands() -> None:
    causes = [
        Cause(Code.HOST_UNUSABLE, host=host, within=(Cause(code, commands=(f"ssh {host}",)),))
        for host, code in (("a", Code.ACCOUNT_RUNS_NO_COMMANDS), ("b", Code.PYTHON_MISSING))
    ]
    advice = not_none(cause_advice(Cause(Code.HOSTS_UNUSABLE, within=tuple(causes))))
    assert "give it a login shell" in advice
    assert "`ssh HOST exec true`" in advice
    lacks = Cause(Code.MODULES_MISSING, name="python3", text="numpy, tensorflow")
    assert ": python3 -m pip install numpy tensorflow, or" in not_none(cause_advice(lacks))


def alone(log: str, code: int | None = 1, signal: int | None = None) -> Verdict:
    job = play(["mwm worker:2"])
    job.gone("worker:1", code, signal)
    job.gone("worker:0", signal=15)
    (verdict,) = verdicts(job, worker1=log)
    assert verdict.task == (None if verdict.kind is Kind.COLLECTIVE_MISMATCH else "worker:1")
    return verdict


def raised(line: str) -> str:
    return TB + line + "\n"


ROWS = Path(__file__).with_name("verdict_rows.txt")


def rows(section: str, names: str) -> pytest.MarkDecorator:
    """Parametrize a test by a section of the rows. What is known is split at `|>`."""
    table = read_table(ROWS, section).items()
    found = [(said, *known.replace("<< ", TB).split("|>")) for known, said in table]
    return pytest.mark.parametrize(names.split(), found)


LOGS = Path(__file__).parent / "verdict_logs"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/u/t.py", line 12, in <module>\n    main()\n'
    '  File "/u/t.py", line 6, in load\n    return rows["target"]\n'
)
PLAIN = f"{TRACEBACK}KeyError: 'target'\n"


def cases(name: str) -> Iterator[Any]:
    """Yield the logs of a file, each with its exit code or signal, its kind and its words.

    `<< error` and `<<< error` are tracebacks with that error, `9 x line {}` nine lines.
    """
    for case in (LOGS / f"{name}.txt").read_text(encoding="utf-8").split("\n=== ")[1:]:
        head, _, log = case.partition("\n")
        title, how, kind, said = not_none(
            re.fullmatch(r"(.+): (-?\d+) -> (\w+)(?:: (.+))?", head)
        ).groups()
        times = re.compile(r"^(\d+) x (.*\n)", re.MULTILINE)
        log = times.sub(
            lambda m: "".join(m[2].replace("{}", str(n)) for n in range(int(m[1]))), f"{log}\n"
        )
        log = log.replace("<<< ", TRACEBACK).replace("<< ", TB).replace("␛", "\x1b")
        code, signal = (int(how), None) if int(how) >= 0 else (None, -int(how))
        yield pytest.param(log, code, signal, Kind(kind), said or "", id=title)


@pytest.mark.parametrize(
    ("log", "code", "signal", "kind", "said"),
    [*cases("endings"), *cases("causes"), *cases("wrapped")],
)
def test_log_causes(log: str, code: int | None, signal: int | None, kind: Kind, said: str) -> None:
    verdict, (text, _, advice) = alone(log, code, signal), said.partition(" => ")
    assert (verdict.kind, text in cause_text(verdict.cause)) == (kind, True), verdict
    assert advice in (cause_advice(verdict.cause) or "")
    assert " in None" not in cause_text(verdict.cause)


def test_a_kill_at_the_limit_of_processor_time_is_of_that_limit() -> None:
    job = play(["mwm worker"])
    spent = Cause(Code.RESOURCE_LIMIT, name="RLIMIT_CPU", total=9)
    job.gone("worker:0", None, 9, found=(spent,))
    assert verdicts(job)[-1].kind is Kind.LIMIT


ASIDES = {
    "ignored": "Exception ignored in: <function Loader.__del__ at 0x7f>\n",
    "at exit": "Error in atexit._run_exitfuncs:\n",
    "a thread's": "Exception in thread Thread-1 (load):\n",
    "a process's": "Process SpawnProcess-1:\n",
}


@pytest.mark.parametrize("what", ASIDES)
def test_an_exception_by_the_way_does_not_hide_the_one_before(what: str) -> None:
    aside = ASIDES[what] + raised("AttributeError: 'NoneType' object has no attribute 'close'")
    assert "ValueError: bad" in cause_text(alone(raised("ValueError: bad") + aside).cause)
    assert "AttributeError" in cause_text(alone(aside).cause)


def test_what_an_earlier_attempt_raised_does_not_count() -> None:
    earlier = raised("ValueError: earlier").encode()
    tail = LogTail(earlier + b"epoch 1\n", begin=len(earlier))
    assert LogAnalysis(tail, 1).raised is None
    assert LogAnalysis(tail, 1).line_number(0) == earlier.count(b"\n") + 1


UNABLE = {
    Cause(Code.LOG_NOT_OPENED, path="/h/logs/w.log", errno=errno.ENOENT): "DISTRUN_HOME",
    Cause(Code.WORKDIR_NOT_ENTERED, path="/u/job", errno=errno.ENOENT): "program.workdir",
    Cause(Code.PROGRAM_FORMAT_UNKNOWN, name="x"): "`--dry-run` shows each task",
}


@pytest.mark.parametrize("cause", UNABLE)
def test_what_could_not_be_started_has_the_advice_for_its_cause(cause: Cause) -> None:
    job = play(["mwm worker | planned"])
    job(events.TaskNotStarted, task="worker:0", attempt=0, cause=cause)
    job.ended("worker:0")
    (verdict,) = verdicts(job)
    assert verdict.kind is Kind.NOT_STARTED
    assert UNABLE[cause] in not_none(cause_advice(verdict.cause))
    assert ("the folder of its log was removed" in cause_text(verdict.cause)) == (
        cause.code is Code.LOG_NOT_OPENED
    )


@pytest.mark.parametrize(
    ("address", "owners", "told", "is_own"),
    [
        (": ('127.0.0.1', 41783)", {}, [], True), (": ('127.0.0.1', 8080)", {}, [], False),
        ("", {}, [], True), ("", {9090: 0}, [], True), ("", {9090: 1}, [9090], False),
        (": ('127.0.0.1', 8080)", {9090: 1, 8080: 0}, [8080], False),
    ],
)  # fmt: skip
def test_of_a_tasks_own_port_the_advice_names_who_holds_it(
    address: str, owners: dict[int, int], told: list[int], is_own: bool
) -> None:
    """By the ports that others have there: whether the program's arguments name them."""
    job = Job()
    job.created(MWM)
    job.planned()
    about: Any = {"role": Role.WORKER, "index": 0, "host": "localhost"}
    record = events.TaskRecord(name="worker:0", address="localhost:41783", **about)
    job(events.JobPlanned, tasks=(record,))
    job.started("worker:0")
    found = (Cause(Code.PORT_TAKEN, port=port, count=owners[port]) for port in owners)
    job.gone("worker:0", 1, found=tuple(found))
    error = f"OSError: [Errno 98] Address already in use{address}"
    (verdict,) = verdicts(job, worker0=raised(error))
    assert verdict.kind is Kind.PORT_TAKEN
    assert [each.port for each in verdict.cause.within] == told
    assert ("SO_REUSEPORT" in not_none(cause_advice(verdict.cause))) is is_own


def test_a_message_that_is_longer_than_what_was_read_asks_for_more() -> None:
    long = LogTail(b"n" * 1000 + b"\n", is_whole=False)
    assert (long.is_enough, LogTail(long.raw).is_enough) == (False, True)
    assert LogTail(b"cut\nwhole\n", is_whole=False).is_enough


def test_lines_that_are_counted_from_the_end_are_told_apart() -> None:
    log = LogAnalysis(LogTail(PLAIN.encode(), is_whole=False), 1, "worker:0")
    cause = Cause(Code.EXCEPTION_RAISED, text="KeyError: 'target'", name="t.py:6 in load")
    shown = tuple(map(log.evidence, (3, 4, 5)))
    told = "\n".join(evidence_lines(Verdict(kind=Kind.EXCEPTION, cause=cause, evidence=shown)))
    assert re.search(r"1 line before the end: .*\n.* 2 lines before the end\n.*last line\n", told)


# Errors as loggers, pretty printers and native code write them ------------------------------------


@pytest.mark.parametrize(
    "log", [pytest.param(each.values[0], id=each.id) for each in cases("forms")]
)
def test_a_traceback_in_any_form(log: str) -> None:
    verdict = alone(log)
    assert verdict.kind is Kind.EXCEPTION
    assert verdict.cause.text.replace("'", "") == "KeyError: target"
    assert verdict.cause.name == "t.py:6 in load"
    assert verdict.evidence[-1].text.strip("'") in ("KeyError: 'target", "target")


def test_boxes_of_blanks_are_read_in_linear_time() -> None:
    begin = time.process_time()
    alone(f"── Error ──\n| {' ' * 7900}\n" * 6)
    assert time.process_time() - begin < 4


def test_a_line_of_the_log_is_quoted_by_its_own_number() -> None:
    log = "start\n" + json.dumps({"exception": PLAIN}) + "\nend\n"
    assert {each.line for each in alone(log).evidence} == {2}


@rows("successors of names", "successor said")
def test_a_name_that_was_replaced_gets_its_successor(said: str, successor: str) -> None:
    verdict = alone(PLAIN.replace("KeyError: 'target'", f"AttributeError: {said}"))
    assert successor in (cause_advice(verdict.cause) or "")


@rows("calls of one task alone", "found text")
def test_a_call_of_one_task_alone_is_found(text: str, found: str) -> None:
    assert [*map(str, find_lone_calls(text))][:1] == [found][: bool(found)]


@pytest.mark.parametrize("text", ["x = " + "-" * 200_000 + "1", "x = " + "1 + " * 100_000 + "1"])
def test_a_script_that_nests_too_deeply_has_no_lone_call(text: str) -> None:
    assert find_lone_calls(text) == []


def test_children_that_were_forked_are_told_in_a_stall() -> None:
    dump = (
        "Fatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n"
        '  File "/u/t.py", line 12 in main\nFatal Python error: Aborted\n\n'
        "Current thread 0x01 (most recent call first):\n"
        '  File "/usr/lib/python3.11/multiprocessing/pool.py", line 114 in worker\n'
        '  File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 71 in _launch\n'
        '  File "/u/t.py", line 11 in main\n'
    )
    assert LogAnalysis(LogTail(dump.encode())).forks_at == "t.py:11 in main"
    assert LogAnalysis(LogTail(dump.replace("_launch", "poll").encode())).forks_at == ""


def test_a_remedy_is_not_cut() -> None:
    said = "Could not apply FILE based sharding: the dataset only has 1 file(s), which is not " + (
        "enough. " * 30 + "Consider setting the auto sharding policy to DATA or OFF."
    )
    log = PLAIN.rpartition("KeyError")[0] + f"ValueError: {said}\n"
    assert "to DATA or OFF" in cause_text(alone(log).cause)


@pytest.mark.parametrize(("log", "code", "signal", "kind", "said"), [*cases("evidence")])
def test_the_evidence_is_the_error_not_what_follows(
    log: str, code: int | None, signal: int | None, kind: Kind, said: str
) -> None:
    verdict = alone(log, code, signal)
    assert (verdict.kind, verdict.evidence[0].text) == (kind, said)


@rows("checkpoints that are missing", "path error")
def test_a_checkpoint_that_is_missing(error: str, path: str) -> None:
    assert missing_checkpoint(error) == path


@pytest.mark.parametrize("marked", read_table(ROWS, "what a row does not break"))
def test_a_row_ends_within_no_command_path_or_option(marked: str) -> None:
    line = marked.replace("[", "").replace("]", "")
    whole = marked.partition("[")[2].partition("]")[0]
    for columns in range(30, 60):
        rows = wrapped(line, columns).split("\n")
        assert any(whole in row for row in rows), rows
        assert " ".join(rows).split() == line.split()
        assert all(clip(row, columns) == row or row.strip() == whole for row in rows), rows
        assert wrapped(f"    | {line}", columns) == f"    | {line}"
        assert wrapped(" " * 99, columns) == " " * 99, "the name of a file, for example"


def test_how_pip_or_uv_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    command = install_command(sys.executable, "a", "b")
    assert command == f"uv pip install --python {sys.executable} a b"
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert install_command(sys.executable, "a", "b") == command, "a virtual environment"
    monkeypatch.setattr("sys.base_prefix", sys.prefix)
    assert install_command(sys.executable, "a").endswith(" --break-system-packages a")
    assert install_command("/its own/python", "a") == "'/its own/python' -m pip install a"


def test_the_first_names_are_shown_and_the_others_counted_and_missing_results_are_named() -> None:
    names = [f"worker:{number}" for number in [*range(0, 16, 2), *range(20, 60)]]
    assert format_names(names[:8]) == ", ".join(names[:8])
    assert format_names(names) == ", ".join(names[:8]) + " and 40 more"
    missing = Cause(Code.RESULTS_NOT_FETCHED, host="h1", text="a.keras: Permission denied")
    event = events.ResultsFetched(
        at=1.0, folder="/u", files=1, size=2, causes=(missing,), apart=("h1", "h2")
    )
    for said in ("a.keras", "differ between hosts are in h1, h2;"):
        assert said in str(event_words.event_text(event))


def test_a_time_has_its_date_unless_it_is_today() -> None:
    shown = {9.94: "9.9 s", 59.9: "59 s", 60: "1 m 00 s", 3599: "59 m 59 s", 3600: "1 h 00 m",
             86399: "23 h 59 m", 86400: "1 d 0 h"}  # fmt: skip
    assert {seconds: formats.format_duration(seconds) for seconds in shown} == shown
    now, other = time.time(), 1.5 * 86400
    assert "-" not in format_time(now)
    for at in (now - other, now + other, -1e300, 1e300):  # one of the first two is in this month
        assert "-" in format_time(at)
