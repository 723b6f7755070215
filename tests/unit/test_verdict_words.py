"""What one task says of its end, replayed as a history: which of its words count."""

from __future__ import annotations

import errno

import pytest

from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.strategies import Role
from distrun.verdict.log_analysis import LogAnalysis, LogTail
from distrun.verdict.model import Kind, Verdict
from distrun.words.causes import cause_advice, cause_text
from harness.values import not_none

from .histories import MWM, Job, running
from .scenarios import verdicts

TB = 'Traceback (most recent call last):\n  File "/u/t.py", line 9, in <module>\n    train()\n'
HANDLED = TB + "FileNotFoundError: [Errno 2] No such file or directory: 'cache'\n"
EPOCHS = "".join(f"epoch {number}\n" for number in range(100))
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
ABORTED = "terminate called after throwing an instance of 'std::runtime_error'\n"
REFUSED = "metrics server: Connection refused (will go on without)\n"
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


def alone(log: str, code: int | None = 1, signal: int | None = None) -> Verdict:
    job = running(MWM, "worker:0", "worker:1")
    job.gone("worker:1", code, signal)
    job.gone("worker:0", signal=15)
    (verdict,) = verdicts(job, worker1=log)
    assert verdict.task == "worker:1"
    return verdict


def raised(line: str) -> str:
    return TB + line + "\n"


SAID = {
    "refused, then a crash": (REFUSED + "epoch 1 done\n", None, 11, Kind.CRASH),
    "refused, then an abort": (REFUSED + ABORTED, None, 6, Kind.CRASH),
    "an abort for want of memory": (
        ("terminate called after throwing an instance of 'std::bad_alloc'\n"
         "  what():  std::bad_alloc\n"), None, 6, Kind.HOST_MEMORY),
    "refused, then an exit": (
        ("data server: Connection refused, falling back to local files\n"
         "final accuracy too low, giving up\n"), 3, None, Kind.EXIT),
    "handled long ago, then an exit": (HANDLED + EPOCHS, 3, None, Kind.EXIT),
    "handled long ago, then an exit 1": (HANDLED + EPOCHS, 1, None, Kind.EXIT),
    "shown, then an exit": (HANDLED + "giving up\n", 3, None, Kind.EXCEPTION),
    "a port by the way": (
        "tensorboard: Address already in use, metrics off\nloss diverged, giving up\n",
        3, None, Kind.EXIT),
    "a full disk, as a tool says it": (
        ("tar: out: Cannot write: No space left on device\n"
         "tar: Error is not recoverable: exiting now\n"), 2, None, Kind.DISK_FULL),
    "TensorFlow's log": (
        "E0000 00:00:1.5 11 x.cc:2] Coordination service: Connection refused\nbye\nbye\n",
        3, None, Kind.CONNECTION_LOST),
    "one of two arguments": (
        ("usage: t.py [-h] (--a A | --b B)\n"
         "t.py: error: one of the arguments --a --b is required\n"), 2, None, Kind.ARGUMENTS),
    "a library": (
        ("/u/train: error while loading shared libraries: libcudart.so.12: cannot open shared "
         "object file: No such file or directory\n"), 127, None, Kind.IMPORT_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_without_an_exception_only_the_last_words_count(what: str) -> None:
    log, code, signal, kind = SAID[what]
    assert alone(log, code, signal).kind is kind


RAISED = {
    "a proxy in the source": (
        TB + "    raise ValueError('bad url ' + str(os.environ.get('http_proxy')))\n"
        "ValueError: bad url None\n"
    ),
    "another type in the source": (
        TB + '    except StopIteration: raise RuntimeError("bad shape")\nRuntimeError: bad shape\n'
    ),
    "a type that ends alike": raised("mylib.SharedMemoryError: bad handle"),
    "a type in a message": raised("AssertionError: expected OutOfRangeError not raised"),
    "asyncio's": raised("asyncio.exceptions.CancelledError"),
    "words of TensorFlow's": raised("RuntimeError: Shutdown barrier config missing"),
    "a cause that was handled": (
        raised("ImportError: no x") + HANDLING + raised("ValueError: invalid literal: 'abc'")
    ),
    "a group": (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/u/t.py", line 9, in <module>\n'
        "  |     train()\n"
        "  | ExceptionGroup: two (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/u/t.py", line 3, in one\n'
        "    | ValueError: bad\n"
        "    +---------------- 2 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/u/t.py", line 4, in two\n'
        "    | ConnectionResetError: [Errno 104] Connection reset by peer\n"
        "    +------------------------------------\n"
    ),
    "refused afterwards": raised("ValueError: bad") + REFUSED,
}


@pytest.mark.parametrize("what", RAISED)
def test_of_an_exception_its_own_words_count(what: str) -> None:
    assert alone(RAISED[what]).kind is Kind.EXCEPTION


def test_a_direct_cause_counts_as_the_exception_does() -> None:
    verdict = alone(raised("MemoryError") + CAUSED + raised("RuntimeError: no batch"))
    assert verdict.kind is Kind.HOST_MEMORY


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
    Cause(Code.PROGRAM_FORMAT_UNKNOWN, name="x"): "check `program`",
}


@pytest.mark.parametrize("cause", UNABLE)
def test_what_could_not_be_started_has_the_advice_for_its_cause(cause: Cause) -> None:
    job = Job()
    job.created(MWM)
    job.planned("worker:0")
    job(events.TaskNotStarted, task="worker:0", attempt=0, cause=cause)
    job.ended("worker:0")
    (verdict,) = verdicts(job)
    assert verdict.kind is Kind.NOT_STARTED
    assert UNABLE[cause] in not_none(cause_advice(verdict.cause))
    assert ("the folder of its log was removed" in cause_text(verdict.cause)) == (
        cause.code is Code.LOG_NOT_OPENED
    )


@pytest.mark.parametrize(
    ("error", "is_own"),
    [
        ("OSError: [Errno 98] Address already in use: ('127.0.0.1', 41783)", True),
        ("OSError: [Errno 98] Address already in use: ('127.0.0.1', 8080)", False),
        ("OSError: [Errno 98] Address already in use", True),
    ],
)
def test_of_a_tasks_own_port_the_advice_names_who_holds_it(error: str, is_own: bool) -> None:
    job = Job()
    job.created(MWM)
    job.planned()
    record = events.TaskRecord(
        name="worker:0", role=Role.WORKER, index=0, host="localhost", address="localhost:41783"
    )
    job(events.JobPlanned, tasks=(record,))
    job.started("worker:0")
    job.gone("worker:0", 1)
    (verdict,) = verdicts(job, worker0=raised(error))
    assert (verdict.kind, "SO_REUSEPORT" in not_none(cause_advice(verdict.cause))) == (
        Kind.PORT_TAKEN,
        is_own,
    )


def test_a_message_that_is_longer_than_what_was_read_asks_for_more() -> None:
    long = LogTail(b"n" * 1000 + b"\n", is_whole=False)
    assert not long.is_enough
    assert LogTail(long.raw).is_enough
    assert LogTail(b"cut\nwhole\n", is_whole=False).is_enough
