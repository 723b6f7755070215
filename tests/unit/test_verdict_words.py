"""What one task says of its end, replayed as a history: which of its words count.

Also errors as loggers, pretty printers and native code write them: the cause, and the user's line.
"""

from __future__ import annotations

import errno
import json
import time

import pytest

from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.strategies import Role
from distrun.verdict.log_analysis import LogAnalysis, LogTail
from distrun.verdict.lone_calls import find_lone_calls
from distrun.verdict.model import Kind, Verdict
from distrun.verdict.task_failures import missing_checkpoint
from distrun.words.causes import cause_advice, cause_text
from distrun.words.formats import clip, wrapped
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


# Errors as loggers, pretty printers and native code write them ------------------------------------


PLAIN = (
    'Traceback (most recent call last):\n  File "/u/t.py", line 12, in <module>\n    main()\n'
    '  File "/u/t.py", line 6, in load\n    return rows["target"]\nKeyError: \'target\'\n'
)
RICH = """\
{0}──── Traceback (most recent call last) ────{1}
│ /u/t.py:12 in <module>                    │
│                                           │
│ ❱ 12 main()                               │
│ /usr/lib/python3.11/json/decoder.py:6 in raw │
│ /u/t.py:6 in load                         │
│ ❱  6 │   return rows["target"]            │
│ ╭─ locals ─╮                              │
╰───────────────────────────────────────────╯
KeyError: 'target'
"""
LOGURU = """\
2026-11-25 10:00:00.123 | ERROR    | __main__:<module>:12 - An error has been caught
Traceback (most recent call last):

> File "/u/t.py", line 12, in <module>
    main()
    └ <function main at 0x7f>

  File "/u/t.py", line 6, in load
    return rows["target"]
           └ {'label': 3}

KeyError: 'target'
"""
IPYTHON = """\
---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
File /u/t.py:12
     10 def main():
---> 12 main()

File /u/t.py:6, in load(rows)
      4 def load(rows):
----> 6     return rows["target"]

KeyError: 'target'
"""
TF = "tensorflow.python.framework.errors_impl."
PREFIXED = "".join(f"[1,0]<stderr>: {line}\n" for line in PLAIN.splitlines())
LATER = "".join(f"wandb: summary {number}\n" for number in range(120))
IPYTHON_7 = """\
KeyError                                  Traceback (most recent call last)
~/u/t.py in <module>
     10 def main():
---> 12 main()

~/u/t.py in load(rows)
      4 def load(rows):
----> 6     return rows["target"]

KeyError: 'target'
"""
REMOTE = (
    'multiprocessing.pool.RemoteTraceback:\n"""\n' + PLAIN + '"""\n\n'
    "The above exception was the direct cause of the following exception:\n\n"
    'Traceback (most recent call last):\n  File "/u/main.py", line 3, in <module>\n'
    "    pool.map(load, rows)\nKeyError: 'target'\n"
)
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/u/main.py", line 3, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/u/t.py", line 6, in load
    |     return rows["target"]
    | KeyError: 'target'
    +------------------------------------
"""
PYTEST = """\
_________________________________ test_a _________________________________

    def load(rows):
>       return rows["target"]
E       KeyError: 'target'

t.py:6: KeyError
========================= short test summary info =========================
FAILED t.py::test_a - KeyError: 'target'
"""
STACKPRINTER = """\
File "/u/t.py", line 12, in <module>
    10   def main():
--> 12       main()

File "/u/t.py", line 6, in load
    4    def load(rows):
--> 6        return rows["target"]
    ..................................................
     rows = {'label': 3, }
    ..................................................

KeyError: 'target'
"""
PRETTY_ERRORS = """\
-------------------------------------------------------------------------------

t.py 12 <module>
main()

t.py 6 load
return rows["target"]

KeyError:
target
"""
RAY = (
    "ray::load() (pid=35968, ip=10.0.0.1)\n"
    '  File "python/ray/_raylet.pyx", line 1813, in ray._raylet.execute_task\n'
    + "".join(PLAIN.splitlines(keepends=True)[3:])
)
OF_RAY = "ERROR worker.py:409 -- Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): "
FORMS = {
    "plain": PLAIN,
    "stackprinter": STACKPRINTER,
    "pretty_errors": PRETTY_ERRORS,
    "Ray's log": f"2026-02-13 00:18:05,398\t{OF_RAY}{RAY}",
    "Ray's get": TB + "ray.exceptions.RayTaskError(KeyError): " + RAY,
    "rich": RICH.format("╭", "╮"),
    "rich without letters": RICH.translate(str.maketrans("╭╮╰╯─│", "++++-|")).format("+", "+"),
    "one JSON object a line": "start\n"
    + json.dumps({"severity": "CRITICAL", "exception": PLAIN})
    + "\n",
    "JSON in JSON": json.dumps({"log": {"exc": [PLAIN]}}) + "\n",
    "logfmt": 'level=error msg="crash" exc="' + PLAIN.replace("\n", "\\n") + '"\n',
    "loguru": LOGURU,
    "IPython": IPYTHON,
    "a prefix for each line": PREFIXED,
    "set in by a logger": "".join(f"    {line}\n" for line in PLAIN.splitlines()),
    "followed by 120 lines": PLAIN + LATER,
    "the time before each line": "".join(
        f"2026-11-25 10:00:0{second}.5 {line}\n" for second, line in enumerate(PLAIN.splitlines())
    ),
    "Python's repr": f"ERROR training failed: {PLAIN!r}\n",
    "structlog's frames": json.dumps({"event": "boom", "exception": [{
        "exc_type": "KeyError", "exc_value": "'target'", "frames": [
            {"filename": "/u/t.py", "lineno": 12, "name": "<module>"},
            {"filename": "/u/t.py", "lineno": 6, "name": "load"}]}]}) + "\n",
    "IPython 7": IPYTHON_7,
    "another process's": REMOTE,
    "a terminal's links": PLAIN.replace(
        "/u/t.py", "\x1b]8;id=1;file:///u/t.py\x1b\\/u/t.py\x1b]8;;\x1b\\"),
    "a group": GROUP,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_traceback_in_any_form(form: str) -> None:
    verdict = alone(FORMS[form])
    assert verdict.kind is Kind.EXCEPTION
    assert verdict.cause.text.replace("'", "") == "KeyError: target"
    assert verdict.cause.name == "t.py:6 in load"
    assert [each.text.strip("'") for each in verdict.evidence][-1] in (
        "KeyError: 'target",
        "target",
    )


def test_boxes_of_blanks_are_read_in_linear_time() -> None:
    begin = time.process_time()
    alone(f"── Error ──\n| {' ' * 7900}\n" * 6)
    assert time.process_time() - begin < 4


def test_a_line_of_the_log_is_quoted_by_its_own_number() -> None:
    log = "start\n" + json.dumps({"exception": PLAIN}) + "\nend\n"
    assert {each.line for each in alone(log).evidence} == {2}


def aborted(why: str) -> tuple[str, None, int]:
    return f"step 3\n{why}\n", None, 6


def opens(error: str) -> str:
    return "".join(
        f"OpenBLAS blas_thread_init: pthread_create failed for thread {number} of 64: {error}\n"
        "OpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 513046 max\n"
        for number in range(1, 9)
    )


def py(error: str, above: str = "") -> str:
    return PLAIN.replace("KeyError: 'target'", f"{above}{error}")


EAGAIN = "Resource temporarily unavailable"
FORKED = '  File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 6, in _launch\n'
THREADS, MEMORY, PORT = "process or thread", "out of memory", "found a port taken"
FULL_GRPC = (
    'E1002 06:05:36.396187488 1574 ev_poll.cc:9] pollset: {"description":"Too many open files",'
    '"errno":24,"syscall":"eventfd"}\n'
)
NATIVE = {
    what: (log, code, signal, kind, said)
    for kind, said, logs in (
        (Kind.LIMIT, THREADS, {
            "OpenBLAS interrupts its program": (opens(EAGAIN) + py("KeyboardInterrupt"), None, 2),
            "OpenBLAS, and a shell": (opens(EAGAIN) + py("KeyboardInterrupt"), 130, None),
            "OpenBLAS in Chinese": (opens("资源暂时不可用"), None, 11),
            "libstdc++'s thread": aborted(f"  what():  thread constructor failed: {EAGAIN}"),
            "libc++": aborted("libc++abi: terminating due to uncaught exception of type std::"
                              f"system_error: thread constructor failed: {EAGAIN}"),
            "Intel's OpenMP": aborted("OMP: Error #34: System unable to allocate necessary "
                                      "resources for OMP thread:\nOMP: System error #11: x"),
            "Rust": (py('Panic: ThreadPoolBuildError { kind: IOError(Os { code: 11 }) }'), 1, None),
            "Java": ("java.lang.OutOfMemoryError: unable to create new native thread\n", 1, None),
            "os.fork of one's own": (
                py(f"BlockingIOError: [Errno 11] {EAGAIN}",
                   '  File "/u/t.py", line 7, in f\n    os.fork()\n'), 1, None),
        }),
        (Kind.LIMIT, "too many files", {
            "gRPC, then an abort": aborted(FULL_GRPC + "F1002 06:05:36.3 1 x.cc:9] Check failed"),
            "gRPC, then lost peers": (
                FULL_GRPC + py(f"{TF}UnavailableError: Socket closed"), 1, None),
            "gRPC, then no server": (
                FULL_GRPC + py(f"{TF}UnknownError: Could not start gRPC server"), 1, None),
            "accept": aborted("E0809 07:14:29.02 1 tcp.cc:2] Failed accept4: Too many open files"),
            "descriptors that do not arrive": (
                py("RuntimeError: received 0 items of ancdata"), 1, None),
        }),
        (Kind.LIMIT, "a limit of its host", {
            "a file's size": (py("OSError: [Errno 27] File too large"), 1, None),
            "SIGXFSZ": ("step 3\n", None, 25),
            "processor time": ("step 3\n", 152, None),
            "watches": (py("OSError: [Errno 28] inotify watch limit reached"), 1, None),
        }),
        (Kind.PERMISSION, "may not create threads", {
            "seccomp": (opens("Operation not permitted") + py("RuntimeError: can't start new "
                                                              "thread"), 1, None),
        }),
        (Kind.HOST_MEMORY, MEMORY, {
            "absl": aborted("[low_level_alloc.cc : 575] RAW: mmap error: 12"),
            "tcmalloc": aborted("tcmalloc.cc:6] MmapAligned() failed (size, alignment) 1073741"),
            "tcmalloc's null": ("tcmalloc: large alloc 8589934592 bytes == (nil) @\n", 1, None),
            "libc++'s bad_alloc": aborted("libc++abi: terminating due to uncaught exception of "
                                          "type std::bad_alloc: std::bad_alloc"),
            "Python itself": (
                "Fatal Python error: _PyRuntimeState_Init: memory error\n", 1, None),
            "a fork": (py("OSError: [Errno 12] Cannot allocate memory", FORKED), 1, None),
            "shared memory": (py("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus "
                                 "error. It is possible that workers are out of shared memory"),
                              1, None),
        }),
        (Kind.DISK_FULL, "disk full", {
            "TensorFlow's own words": (
                py(f"{TF}ResourceExhaustedError: /m/p-0; No space left on device [Op:SaveV2]"),
                1, None),
            "a quota": (
                py(f"{TF}ResourceExhaustedError: disk quota exceeded [Op:SaveV2]"), 1, None),
        }),
        (Kind.PORT_TAKEN, PORT, {
            "TensorBoard": (
                "ERROR: TensorBoard could not bind to port 6006, it was already in use\n", 1, None),
            "gRPC, then a crash": (
                "E0727 11:38:35.7 2 tcp.c:2] bind [::]:2223: Address already in use\n", None, 11),
            "gloo": aborted("  what():  [enforce fail at d.cc] . bind: Address already in use"),
            "Flask": (
                "Address already in use\nPort 5000 is in use by another program. Stop\n", 1, None),
        }),
        (Kind.PORT_TAKEN, "could not bind its port", {
            "gRPC of Python": (
                py("RuntimeError: Failed to bind to address [::]:50051; set GRPC"), 1, None),
        }),
        (Kind.NETWORK, "could not use an address", {
            "another host's address": (
                py("OSError: [Errno 99] Cannot assign requested address"), 1, None),
        }),
        (Kind.KILLED, "process 9 was killed by SIGKILL", {
            "a loader's process": (
                py("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed."),
                1, None),
        }),
        (Kind.EXIT, "exited 3 by itself", {
            "a large allocation that went well": (
                "tcmalloc: large alloc 8589934592 bytes == 0x5581e6 @ 0x7f\nbad loss\n", 3, None),
            "files that were retried": (
                "warning: Too many open files, waiting\nbad loss\n", 3, None),
        }),
    )
    for what, (log, code, signal) in logs.items()
}  # fmt: skip
"""As libraries say what they lack: public reports have these lines."""
CAUSES = {
    "threads in C++": (
        *aborted("terminate called after throwing an instance of 'std::system_error'\n"
                 "  what():  Resource temporarily unavailable"), Kind.LIMIT, "process or thread"),
    "OpenBLAS": (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 4\n", 1, None,
        Kind.LIMIT, "process or thread"),
    "TensorFlow's allocator": (
        *aborted("F1125 10:00:00.123 139 mem.cc:9] Check failed: ptr != nullptr Failed to allocate "
                 "8589934592 bytes"), Kind.HOST_MEMORY, "out of memory"),
    "two writers of an HDF5 file": (
        PLAIN.replace("KeyError: 'target'", '  File "h5py/h5f.pyx", line 122, in h5py.h5f.create\n'
                      "BlockingIOError: [Errno 11] Unable to create file (unable to lock file)"),
        1, None, Kind.EXCEPTION, "lock file), at t.py:6 in load"),
    "conda": (
        "\nCommandNotFoundError: Your shell has not been properly configured to use 'conda'."
        "\nTo initialize your shell, run\n\n    $ conda init <SHELL_NAME>\n" + "  - bash\n" * 6
        + "IMPORTANT: You may need to close and restart your shell after running 'conda init'.\n",
        1, None, Kind.SCRIPT_NOT_FOUND, "configured to use 'conda'"),
    "module": (
        "t.sh: line 3: module: command not found\n", 127, None, Kind.SCRIPT_NOT_FOUND,
        "only an interactive shell has: t.sh: line 3: module"),
    "an error before its hint": (
        "config error: no key 'lr'\nerror: bad config\nSee the help\nGood luck\n", 4, None,
        Kind.EXIT, "exited 4 by itself"),
    **NATIVE,
    "a checkpoint that is none": (
        py(f"{TF}DataLossError: Unable to open table file /r/m-1.data-00000-of-00001: DATA_LOSS: "
           "not an sstable (bad magic number)"), 1, None, Kind.EXCEPTION, "or of another format"),
    "weights that are cut off": (
        py("OSError: Unable to synchronously open file (truncated file: eof = 100, base = 0)"), 1,
        None, Kind.EXCEPTION, "is incomplete or of another format"),
    "a message that begins with a new line": (
        py("papermill.exceptions.PapermillExecutionError: \n-------\nno cell 3"), 1, None,
        Kind.EXCEPTION, "failed with PapermillExecutionError: no cell 3, at t.py:6"),
    "a script that each of its processes runs": (
        py("RuntimeError: \n        An attempt has been made to start a new process before the\n"
           "        current process has finished its bootstrapping phase."), 1, None,
        Kind.EXCEPTION, "starts processes that run the whole script again: RuntimeError: An att"),
    "shared memory that is full": (
        py("OSError: [Errno 28] No space left on device: '/psm_8c0b4f21'"), 1, None,
        Kind.HOST_MEMORY, "out of memory"),
    "cuDNN's memory": (
        py(f"{TF}InternalError: Dst tensor is not initialized. [Op:_EagerConst]"), 1, None,
        Kind.GPU_MEMORY, "out of GPU memory"),
    "a child's own exception": (
        "Process Feeder-1:\n" + py("FileNotFoundError: shard-3") + py("_queue.Empty"), 1, None,
        Kind.EXCEPTION, "failed with FileNotFoundError: shard-3, at t.py:6 in load"),
    "pytest": (PYTEST, 1, None, Kind.EXCEPTION, "failed with KeyError: 'target', at t.py:6"),
    "click, after its hint": (
        "Usage: t.py [OPTIONS]\nTry 't.py --help' for help.\n\nError: Invalid value for '--lr'\n",
        2, None, Kind.ARGUMENTS, "Error: Invalid value for '--lr'"),
    **{
        f"no data: {error}": (py(error), 1, None, Kind.DATA_RAN_OUT, "found no data: ")
        for error in (
            f"{TF}InvalidArgumentError: No files matched pattern: data/*.tfrecord [Op:Assert]",
            "ValueError: No files match ['/data/train.tfrecords']",
            "ValueError: Unexpected result of `train_function` (Empty Logs).",
            "ValueError: num_samples should be a positive integer value, but got num_samples=0",
            "ValueError: No objects to concatenate",
            "ValueError: Expected input data to be non-empty.",
            "ValueError: Expect x to be a non-empty array or dataset.",
            "ValueError: No images found in directory data. Allowed formats: ('.jpg',)",
        )
    },
    **{
        f"not of data: {error}": (py(error), 1, None, Kind.EXCEPTION, error)
        for error in (
            "FileNotFoundError: No config file found in /home/user",
            "FileNotFoundError: No files found in /home/user/checkpoints",
            "ValueError: the name of a layer must be non-empty.",
            "ValueError: reduce() needs a non-empty array",
        )
    },
    "of a program that another one runs": (
        PLAIN + py("subprocess.CalledProcessError: Command '['python3', 'own.py']' returned "
                   "non-zero exit status 1."), 1, None, Kind.EXCEPTION, "KeyError: 'target'"),
    "a command that fails, after an exception that was handled": (
        PLAIN + py("subprocess.CalledProcessError: Command '['make', 'data']' returned "
                   "non-zero exit status 2."), 1, None, Kind.EXCEPTION, "CalledProcessError"),
    "click, in a box": (
        ("Usage: t.py [OPTIONS]\nTry 't.py --help' for help.\n╭─ Error ─────────────────╮\n"
         "│ No such option: --epoch │\n╰─────────────────────────╯\n"),
        2, None, Kind.ARGUMENTS, "did not accept its arguments: Error: No such option: --epoch"),
    "an exit after an exception": (
        PLAIN, 3, None, Kind.EXCEPTION, "exited 3 by itself, after it had printed KeyError"),
    "a typo that Python corrects": (
        PLAIN.replace("KeyError: 'target'", "AttributeError: 'Adam' object has no attribute "
                      "'aply_gradients'. Did you mean: 'apply_gradients'?"), 1, None,
        Kind.EXCEPTION, "Did you mean: 'apply_gradients'?"),
    "Keras 2's class": (
        PLAIN.replace("KeyError: 'target'",
                      "AttributeError: 'Sequential' object has no attribute 'reset_states'"), 1,
        None, Kind.KERAS3, "'Sequential' object"),
    "Keras 2's module": (
        PLAIN.replace("KeyError: 'target'", "ImportError: `keras.optimizers.legacy` is not "
                      "supported in Keras 3. When using `tf.keras`, install tf_keras"), 1, None,
        Kind.KERAS3, "keras.optimizers.legacy"),
    "Estimator": (
        PLAIN.replace("KeyError: 'target'",
                      "ModuleNotFoundError: No module named 'tensorflow.python.estimator'"), 1,
        None, Kind.TENSORFLOW1, "tensorflow.python.estimator"),
}  # fmt: skip


@pytest.mark.parametrize("what", CAUSES)
def test_the_cause_in_native_and_other_words(what: str) -> None:
    log, code, signal, kind, said = CAUSES[what]
    verdict = alone(log, code, signal)
    assert (verdict.kind, said in cause_text(verdict.cause)) == (kind, True), verdict


IN_CODE = """\

in user code:

    File "/u/net.py", line 9, in call  *
        x + y

    TypeError: no operand +: 'int'
"""
NODE = """\
Detected at node 'loss/Sub' defined at (most recent call last):
    File "/u/train.py", line 3, in <module>
      model.fit(x, y)
Node: 'loss/Sub'
"""
CALLED = "Exception encountered when calling N.call()."
OP_ERROR = "tensorflow.python.framework.errors_impl.InvalidArgumentError: "
FULL = "[Errno 28] No space left on device"
WRAPPED = {
    "several errors of a graph": (
        (f"{OP_ERROR}Graph execution error:\n\n{NODE}2 root error(s) found.\n"
         "  (0) INVALID_ARGUMENT:  required broadcastable shapes\n\t [[{{node loss/Sub}}]]\n"
         "  (1) CANCELLED:  Function was cancelled before it was started"),
        "InvalidArgumentError: required broadcastable shapes"),
    "a dataset": (
        (f"{OP_ERROR}Error in user-defined function passed to MapDataset:7 transformation with "
         "iterator: Iterator::Root::Map: not a valid float: two\n\t [[{{node DecodeCSV}}]]"),
        "InvalidArgumentError: not a valid float: two"),
    "Keras": (
        f"ValueError: {CALLED}\n\nIt has rank 1\n\nArguments received by N.call():\n  • x='{FULL}'",
        "ValueError: It has rank 1"),
    "a KeyError of Keras": (
        rf"KeyError: '{CALLED}\n\n\x1b[1mscales\x1b[0m\n\nAr'", "KeyError: 'scales'"),
    "a model that Keras builds": (
        ("RuntimeError: Unable to automatically build the model. Please build it yourself.\n"
         f"Exception encountered:\n'{CALLED}\\n\\nno bias\\n'"), "RuntimeError: no bias"),
    "a shape that is inferred": (
        f"RuntimeError: {CALLED}\n\nCould not infer the shape. Error encountered:\n{IN_CODE}",
        "TypeError: no operand +: 'int'"),
    "a function of one's own in a dataset": (
        (f"{OP_ERROR}Error in user-defined function passed to MapDataset:2 transformation with "
         "iterator: Iterator::Root::Shard::Map: ValueError: label 1 is none\n"
         f"{TB}\nValueError: label 1 is none\n\n\n\t [[EagerPyFunc]]"),
        "ValueError: label 1 is none"),
    "a wrapper of nothing": ("ValueError: in user code:", "ValueError: in user code:"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRAPPED)
def test_what_tensorflow_and_keras_wrap_is_found(what: str) -> None:
    log, message = WRAPPED[what]
    verdict = alone(f"{TB}{log}\n")
    assert (verdict.kind, verdict.cause.text) == (Kind.EXCEPTION, message)


@pytest.mark.parametrize(
    ("said", "successor"),
    [
        ("'MirroredStrategy' object has no attribute 'experimental_run_v2'", "strategy.run"),
        ("'Sequential' object has no attribute 'predict_classes'", "np.argmax("),
        ("'Adam' object has no attribute 'get_updates'", "optimizers.legacy"),
        ("module 'x' has no attribute 'CollectiveHints'", "CommunicationOptions"),
    ],
)
def test_a_name_that_was_replaced_gets_its_successor(said: str, successor: str) -> None:
    verdict = alone(PLAIN.replace("KeyError: 'target'", f"AttributeError: {said}"))
    assert successor in (cause_advice(verdict.cause) or "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if chief:\n    model.evaluate(data)\n", "2 calls evaluate"),
        ("if rank == 0:\n    x = 1\nelse:\n    s.reduce(x)\n", "4 calls reduce"),
        ("if task_id:\n    m.save('a')\nelse:\n    m.save('b')\n", ""),
        ("if epochs > 3:\n    m.save('a')\n", ""),
        ("if chief:\n    print('saved')\n", ""),
        ("if chief:\n  (", ""),
        ("me = int(environ['DISTRUN_RANK'])\nif me == 0:\n    s.gather(x)\n", "3 calls gather"),
        ("def f():\n    s.reduce(x)\nif chief:\n    f()\n", "4 calls f"),
        ("def f():\n    if not chief: return\n    m.save(p)\n", "3 calls save"),
        ("if chief:\n    print(train_loss.result(), future.result())\n", "2 calls result"),
        ("c = [k.ModelCheckpoint(p)] if chief else []\nif chief: m.save(q)\n", "2 calls save"),
        ("c = []\nif chief: c.append(ModelCheckpoint(p))\n", "2 calls ModelCheckpoint"),
        ("if chief:\n    print(future.result())\n", ""),
        ("for x in y:\n    if rank: continue\n    strategy.run(f)\n", "3 calls run"),
        ("chief and m.save(p)\nm.save(q) if step > 3 else None", "1 calls save"),
        ("if random.random() < 0.5:\n    strategy.run(f)\n", "2 calls run"),
        ("if chief:\n    np.save(p, a); subprocess.run(c); fig.save(q)\n", ""),
        ("n = len(cluster['worker'])\nif n > 1:\n    m.fit(d)\n", ""),
        ("if batch_index % 100 == 0 or num_workers > 1:\n    m.save(p)\n", ""),
    ],
)
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
    assert "to DATA or OFF" in cause_text(
        alone(PLAIN.rpartition("KeyError")[0] + f"ValueError: {said}\n").cause
    )


def test_the_evidence_is_the_error_and_not_the_hint_after_it() -> None:
    log, code, *_ = CAUSES["an error before its hint"]
    assert alone(log, code).evidence[0].text == "error: bad config"


MERGE = "[Op:MergeV2Checkpoints]"


@pytest.mark.parametrize(
    ("error", "path"),
    [
        ("NotFoundError: Failed to find any matching files for /t/m.ckpt-13", "/t/m.ckpt-13"),
        ("NotFoundError: /run/m.ckpt-0_temp_5f/part-0.index; No such file or directory "
         + MERGE, "/run/m.ckpt-0_temp_5f/part-0.index"),
        ("NotFoundError: ./m/variables/variables_temp/part-0.index; No such file or directory "
         + MERGE, "./m/variables/variables_temp/part-0.index"),
        ("NotFoundError: when restoring from checkpoint at /x/ckpt-3: not found", "/x/ckpt-3"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/u/my checkpoints/a'",
         "/u/my checkpoints/a"),
        ("NotFoundError: /x/checkpoint; No such file or directory", "/x/checkpoint"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", ""),
        (f"NotFoundError: no data {MERGE}", ""),
        ("ValueError: the checkpoint /x/ckpt-3 has another shape", ""),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_missing(error: str, path: str) -> None:
    assert missing_checkpoint(error) == path


@pytest.mark.parametrize(
    "marked",
    [
        "job j-1 goes on, and it is well; to return: [distrun attach j-1]",
        "  logs          /a/path/of/it   [(distrun logs j-1);] and more",
        "it has begun: it needs jinja2; run ['/my env/python' -m pip install jinja2]",
        "it is not done, for a reason; see [`kubectl describe job j-1`]",
        "Did you mean 'launch', or what? Use ['distrun launch job.yaml'.]",
        "the number of a thing may be said by an option, as in [-n 2] here",
        "a path is whole: [/a/very/long/path/that/is/wider/than/a/row] of it",
        "  cause         it is a notebook; convert it: [jupyter nbconvert --to script note.ipynb]",
        "任务任务 任务任务任务任务 任务任务任务 [任务任务任务任务] 任务任务",
    ],
)
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
