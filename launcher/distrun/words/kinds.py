"""The kinds of verdicts and the exit codes of launch and wait, explained: in Markdown."""

from __future__ import annotations

from distrun.agent.protocol.causes import Cause, Code
from distrun.verdict.model import Kind
from distrun.words.causes import cause_advice
from distrun.words.formats import one_line

_LOOKS: dict[Kind, str] = {
    Kind.EXCEPTION: "a Python traceback, at the user's line",
    Kind.EXIT: "the program itself exited with a code other than 0",
    Kind.KILLED: "a signal from outside; nothing in the log",
    Kind.PREEMPTED: "SIGTERM from outside, or exit 42 or 143",
    Kind.CRASH: "SIGSEGV, SIGABRT, SIGILL, SIGBUS, SIGFPE: an error in native code",
    Kind.HOST_MEMORY: """SIGKILL, and the cgroup or the kernel counted an out-of-memory kill;
        `MemoryError`""",
    Kind.GPU_MEMORY: "`CUDA_ERROR_OUT_OF_MEMORY`, OOM on a GPU",
    Kind.LIMIT: """a limit on open files, processes or threads, of the user or of the machine, is
        reached""",
    Kind.DISK_FULL: """`No space left on device`, a quota, or the disk of distrun's own folder is
        full""",
    Kind.PERMISSION: "`PermissionError`, exit 126, no login for a service",
    Kind.PORT_TAKEN: "`Address already in use`, or an address in `cluster` that is taken",
    Kind.SCRIPT_NOT_FOUND: "the program, script or module does not exist; exit 127",
    Kind.FILE_NOT_SENT: """a file or module that exists on this machine is missing on a host:
        .gitignore or `program.sync` leave it out""",
    Kind.NOT_STARTED: "it could not be executed at all, or its folder or log was removed",
    Kind.IMPORT_ERROR: "`ModuleNotFoundError`, `ImportError`, a missing shared library",
    Kind.ARGUMENTS: "the program did not accept its arguments",
    Kind.NO_INPUT: """`EOFError` at `input()`, `BdbQuit` at `breakpoint()`: a task's standard input
        is empty""",
    Kind.TENSORFLOW1: """code that only TensorFlow 1 runs: `tf.Session`, `tf.placeholder`,
        `tf.contrib`""",
    Kind.KERAS3: """code for Keras 2 that runs with Keras 3; `Model.fit` with Keras 3 under several
        workers or parameter servers""",
    Kind.COLLECTIVES_LATE: "`Collective ops must be configured at program startup`",
    Kind.COLLECTIVE_MISMATCH: """workers call different collectives: another order, shape or type,
        or one of them skips a call; `task` is null""",
    Kind.CLUSTER_MISMATCH: """tasks see different clusters, share an index, [serve at each other's
        ports](#tasks-that-serve-elsewhere), or join groups of different sizes; the script's own
        cluster lacks a role""",
    Kind.PROXY: "tasks wait without end because of `http_proxy` or `https_proxy`",
    Kind.DATA_RAN_OUT: "`OutOfRangeError`, the end of a data set on one worker; no files",
    Kind.NOT_FINITE: "NaN or Inf, if the script checks for them",
    Kind.LEFT_EARLY: "a task exited 0 while others still needed it",
    Kind.UNRESPONSIVE: """a task did not run: SIGSTOP, a debugger, a sleeping machine; or it
        called a collective later than `timeout_seconds` allows""",
    Kind.CONNECTION_LOST: "the errors of lost connections, but no other task ended before",
    Kind.HOST_LOST: """a host's agent was killed, or its link was lost for `timeouts.link`, also if
        other tasks exited at about the same time; exit code 69""",
    Kind.LOGIN_REFUSED: """ssh refused the login to a host: its key, this machine's keys, or its
        configuration""",
    Kind.HOST_UNKNOWN: "a host's name has no address",
    Kind.HOST_DOWN: """a host did not answer: it is down, no sshd listens, or the network does not
        lead there""",
    Kind.HOST_UNFIT: """a host answers and cannot run the tasks: its folder, files, versions, clock
        or free ports""",
    Kind.NO_PYTHON: "a host has no Python, a too old one, or not the one that the spec names",
    Kind.NO_TENSORFLOW: "the interpreter of a host has no TensorFlow, and others have it",
    Kind.NETWORK: "hosts do not reach each other's ports, or an address leads to another machine",
    Kind.NO_ROOM: "the tasks need more slots or GPUs than the hosts have",
    Kind.SCHEDULER: "Slurm or Kubernetes did not give what the job needs, or took it back",
    Kind.RECORD: "the job's record or plan could not be written",
    Kind.DEFECT: "distrun itself failed; exit code 70",
    Kind.TIMEOUT: """`timeouts.start` or `timeouts.run` expired; the evidence is what the tasks
        printed last""",
    Kind.STALLED: "no progress for `timeouts.stall`: see [Jobs that hang](#jobs-that-hang)",
    Kind.QUALIFIED: "every task exited 0, but a warning says that something went wrong",
    Kind.OTHER: "any other failure",
}
_ADVICE: dict[Kind, str | Code] = {
    Kind.EXCEPTION: Code.EXCEPTION_RAISED,
    Kind.EXIT: Code.EXITED_BY_ITSELF,
    Kind.KILLED: Code.KILLED_FROM_OUTSIDE,
    Kind.PREEMPTED: """`restart`: a preempted task [costs no restart](#preemption) after a minute or
        a step""",
    Kind.CRASH: Code.CRASHED,
    Kind.HOST_MEMORY: Code.KILLED_FOR_MEMORY,
    Kind.GPU_MEMORY: Code.GPU_MEMORY_EXHAUSTED,
    Kind.LIMIT: "`ulimit -n`, `ulimit -u`, `pids.max`",
    Kind.DISK_FULL: Code.JOB_DISK_FULL,
    Kind.PERMISSION: Code.PERMISSION_REFUSED,
    Kind.PORT_TAKEN: """counts instead of addresses in `cluster`; SO_REUSEPORT for a server of your
        own at the task's port""",
    Kind.SCRIPT_NOT_FOUND: Code.SCRIPT_NOT_FOUND,
    Kind.FILE_NOT_SENT: Code.FILE_NOT_SENT,
    Kind.NOT_STARTED: Code.TASK_NOT_STARTED,
    Kind.IMPORT_ERROR: Code.MODULE_NOT_IMPORTED,
    Kind.ARGUMENTS: Code.ARGUMENTS_REFUSED,
    Kind.NO_INPUT: Code.INPUT_EMPTY,
    Kind.TENSORFLOW1: Code.TENSORFLOW_1_CODE,
    Kind.KERAS3: Code.KERAS_2_CODE,
    Kind.COLLECTIVES_LATE: Code.COLLECTIVES_LATE,
    Kind.COLLECTIVE_MISMATCH: Code.COLLECTIVES_MISMATCHED,
    Kind.CLUSTER_MISMATCH: Code.TF_CONFIG_MISMATCH,
    Kind.PROXY: Code.PROXY_ANSWERED,
    Kind.DATA_RAN_OUT: Code.DATA_EXHAUSTED,
    Kind.NOT_FINITE: Code.VALUES_NOT_FINITE,
    Kind.LEFT_EARLY: Code.EXITED_WHILE_NEEDED,
    Kind.UNRESPONSIVE: Code.NOT_ANSWERING,
    Kind.CONNECTION_LOST: Code.PEERS_LOST,
    Kind.HOST_LOST: Code.HOST_LOST,
    Kind.LOGIN_REFUSED: Code.LOGIN_REFUSED,
    Kind.HOST_UNKNOWN: Code.SSH_NAME_NOT_RESOLVED,
    Kind.HOST_DOWN: Code.SSH_TIMED_OUT,
    Kind.HOST_UNFIT: "`distrun doctor` with the spec shows each host's state",
    Kind.NO_PYTHON: Code.INTERPRETER_UNUSABLE,
    Kind.NO_TENSORFLOW: Code.TENSORFLOW_MISSING,
    Kind.NETWORK: Code.CONNECTION_REFUSED,
    Kind.NO_ROOM: Code.TOO_FEW_SLOTS,
    Kind.SCHEDULER: "see its own words",
    Kind.RECORD: Code.JOB_FOLDER_NOT_CREATED,
    Kind.DEFECT: "`distrun bundle` has what a report of the defect needs",
    Kind.TIMEOUT: "see where its tasks wait, or raise the timeout",
    Kind.STALLED: Code.STALLED,
    Kind.QUALIFIED: "see the warning; `--strict` makes it a failure",
    Kind.OTHER: "see the cause",
}
"""What to do: own words, or the code whose advice it is."""

_EXIT_CODES = {
    "0": "the job succeeded",
    "a task's code": """the job failed: the exit code of the task that failed first, or 128 + the
        signal that killed it""",
    "2": "wrong usage",
    "65": "the YAML file is invalid, or the program certainly fails (`--force` starts it)",
    "69": """a host could not be reached or prepared, or a port there is taken; a command could not
        print its result; a job's record is damaged""",
    "70": "a defect in distrun, or its supervisor was killed or does not answer",
    "75": """the job could not start in time, ran for longer than `timeouts.run`, or stalled; its
        tasks cannot form their cluster; or it succeeded with a warning and `--strict` was given""",
    "124": "`distrun wait --timeout` ran out",
    "129": "stopped by SIGHUP (the terminal closed), or its launch command was killed",
    "130": "stopped by SIGINT (Ctrl-C)",
    "131": "stopped by SIGQUIT",
    "137": "stopped by `distrun kill`",
    "138": "stopped by SIGUSR1",
    "140": "stopped by SIGUSR2",
    "141": "the program that reads the output has exited (broken pipe)",
    "143": "stopped by SIGTERM",
}


ENDS: dict[str, tuple[str, str]] = {
    "supervisor_died": (
        "the job is lost: its supervisor was killed, or its machine was restarted",
        "`distrun resume JOB` continues it; `distrun kill JOB` ends what may be left of it",
    ),
    "record_damaged": (
        "the job is lost: its record cannot be read, so its end is not known",
        "`distrun logs JOB` shows what its tasks printed",
    ),
    "unknown_to_scheduler": (
        "the job is lost: Slurm or Kubernetes does not know it any more, and its record has no end",
        "`distrun resume JOB` queues it again",
    ),
    "launch_command_died": (
        "the launch command was killed, so the job was stopped; exit code 129",
        "`launch -d` leaves the job to its supervisor",
    ),
    "kill": ("`distrun kill`, or another command, stopped the job; exit code 137", ""),
}
"""What else than a kind of verdict, or a signal, `ps` shows as a job's cause."""


def exit_codes() -> dict[str, str]:
    """The meanings of the exit codes of `launch` and `wait`."""
    return {codes: one_line(text) for codes, text in _EXIT_CODES.items()}


def kinds() -> dict[str, tuple[str, str]]:
    """What each kind of verdict looks like, and what to do about it."""
    return {kind.value: (one_line(text), _advice(_ADVICE[kind])) for kind, text in _LOOKS.items()}


def _advice(words: str | Code) -> str:
    if not isinstance(words, Code):
        return one_line(words)
    example = Cause(words, task="worker:1", hosts=("gpu1",), commands=("ssh HOST",), signal=9)
    return cause_advice(example) or ""
