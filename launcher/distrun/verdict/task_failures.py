"""Why one task failed, by its exit and its log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import Frozen, replace
from distrun.lifecycle import SIGKILL, SIGTERM, TF_PREEMPTED, TaskState
from distrun.verdict.log_analysis import OF_CHILD, OF_PROGRAM, RESTORED, XARGS_FAILED, LogAnalysis
from distrun.verdict.model import Evidence, Kind, Source
from distrun.verdict.old_names import SUCCESSORS, SUCCESSORS_IN_KERAS
from distrun.verdict.rules import RULES, Excerpt, Rule
from distrun.verdict.tracebacks import without_operation

CRASH_SIGNALS = (4, 5, 6, 7, 8, 11, 31)
"""SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: a program causes these itself."""
SIGTERM_CAUGHT = re.compile(r"SIGTERM caught at|slurmstepd: error: .{0,99} CANCELLED AT ")
_PEER = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
_PORT = re.compile(r"(?<!\d)\d{4,5}(?!\d)")
_NUMBER = re.compile(r"(?<!\d)\d{2,5}(?!\d)")
_PORTS_TAKEN = (Code.PORT_IN_USE, Code.OWN_PORT_IN_USE, Code.SOME_PORT_IN_USE, Code.PORT_NOT_BOUND)
_TENSORFLOW_ERROR = "errors_impl."
_REMOTE = "Additional GRPC error information from remote target /job:worker/"
_OF_COMMAND = "returned non-zero exit status"
_MAKE_FAILED = 2
_OF_MAKE = re.compile(r"g?make(?:\[\d+\])?: \*\*\* \[.*\] Error 1$")
_MISSING = re.compile(
    r"find any matching files for|No such file or directory|(?:NotFoundError|FileNotFoundError):"
)
_CHECKPOINT = re.compile(
    r"'([^']{0,200}(?:ckpt|checkpoint)[^']{0,200})'"
    r"|(?<![\w\[:])[\w.~/=-]{0,200}(?:ckpt[.-]|checkpoint[./_-]|/checkpoints?\b|/variables/|\.data-\d)"
    r"[\w.~/=-]{0,200}|/[\w.~/=-]{0,200}ckpt\b",
    re.IGNORECASE,
)
_OF_CHECKPOINT = re.compile("ckpt|checkpoint|restor|resum", re.IGNORECASE)
OF_SIGNAL = re.compile(
    r"(?:pid (\d{1,7})\) is killed by signal: |exit codes? of the workers .{0,9}SIG|Signals\.SIG"
    r"|terminated with signal SIG|: line \d{1,6}: {1,9}\d{1,7} |(?:exit|return) ?code\W{1,4}-"
    r"|^(?=[A-Z][a-z ]{5,18}(?: \(core.*)?$))"
    r"(KILL|SEGV|BUS|ABRT|Killed|Bus error|Segmentation fault|Aborted|Terminated|(?:6|7|9|11)\b)"
)
"""What a program or a shell says of a signal that has killed its process."""
_SIGNALS = {"K": SIGKILL, "B": 7, "S": 11, "A": 6, "9": SIGKILL, "7": 7, "1": 11, "6": 6, "T": 15}
"""By the first letter of their names, or digit of their numbers."""
_NATIVE = (
    *(Kind.HOST_MEMORY, Kind.LIMIT, Kind.PORT_TAKEN, Kind.DISK_FULL, Kind.PERMISSION),
    *(Kind.IMPORT_ERROR, Kind.GPU_MEMORY, Kind.COLLECTIVE_MISMATCH),
)
"""Kinds that libraries print in a line before they end a program, or before it fails."""
_LIMITS = {
    Code.PROCESSES_EXHAUSTED: (
        *("pids.max", "RLIMIT_NPROC", "kernel.pid_max", "kernel.threads-max", "RLIMIT_AS"),
    ),
    Code.FILES_EXHAUSTED: ("fs.file-max", "RLIMIT_NOFILE"),
    Code.MEMORY_EXHAUSTED: ("/dev/shm", "RLIMIT_AS", "RLIMIT_DATA", "MemTotal"),  # noqa: S108
    Code.KILLED_FOR_MEMORY: ("memory.max", "memory.limit_in_bytes", "MemTotal"),
    Code.LIMIT_HIT: ("RLIMIT_FSIZE", "RLIMIT_CPU"),
}
"""The limits that each may have hit, the most specific first."""
_BY_LIMIT = (24, 25)
"""SIGXCPU and SIGXFSZ: the kernel sends them at a limit."""
_BY_ITSELF = (13, 14)
"""SIGPIPE and SIGALRM: a program causes these itself, too; a child may well get them."""
_OOM = (Code.OOM_KILL_LOGGED, Code.OOM_KILL_COUNTED)
_INTERRUPT = "KeyboardInterrupt"
_SIGINT = 2
_UNSURE = (Code.PORT_NOT_BOUND, Code.PROCESSES_EXHAUSTED)
"""What an exception says without the reason, which a library may have printed before."""
_MAY_BE_CAUGHT = (Code.EXCEPTION_RAISED, Code.MODULE_NOT_IMPORTED, Code.LIBRARY_NOT_LOADED)
_SHOWS_MORE = re.compile(r"\b([A-Z_]{6,40}=1) for a complete stack trace")
"""A variable with which Hydra shows the whole error."""
_WHY_UNUSABLE = re.compile(
    r"Loaded (?:runtime )?CuDNN library: |^error: libdevice not found|: E .{0,200}\bCUDNN_STATUS_"
)
_SAYS_MORE = re.compile(r"CUDA_ERROR|libprotobuf ERROR")
_FAULT = re.compile(r"Fatal Python error: (?!Abor|Bus |Segm|Ille|Floa)")
"""Not of a signal."""
_OF_NCCL = re.compile(r"\bNCCL\b|unhandled (?:cuda|system) error")
_WHY_OF_NCCL = re.compile(r"\bNCCL WARN ")
"""What NCCL prints, if asked to, before an error that does not say why."""
_OF_GRPC = re.compile(r'\{"created":.*"os_error":"([^"]+)".*')
"""JSON in which gRPC hides what the system said."""
_RETURNED = re.compile(
    r"(?:<[\w.]+ object at 0x[0-9a-f]+>|(?:tf\.Tensor)?\(.{0,999}\)|\{['\d].{0,999}\}"
    r"|\[[^]]{0,999}\]|-?\d+\.\d+(?:e-?\d+)?)$"
)
"""A value as Python prints it, which may be what `main` returns."""
_LAST_LINES = 25
_LAST_LINES_OF_CRASH = 60
_LONGEST_QUOTE = 600


class TaskFailure(Frozen):
    """Why one task failed. Its cause names the task.

    Attributes:
        is_echo: whether another task's end explains it, if another task ended.
        peers: the other tasks that its error names.
    """

    kind: Kind
    cause: Cause
    evidence: tuple[Evidence, ...]
    is_echo: bool = False
    peers: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return self.cause.task

    def is_like(self, other: TaskFailure) -> bool:
        """Whether two tasks failed of the same error, which neither has from the other."""
        mine, others = self.cause, other.cause
        is_same = mine.code is others.code
        is_same = is_same and (mine.status, mine.signal) == (others.status, others.signal)
        says_same = mine.text == others.text or (mine.name != "" and mine.name == others.name)
        return is_same and says_same and not (self.is_echo or self.peers or other.peers)


def task_failure(task: TaskState, log: LogAnalysis) -> TaskFailure:
    """Return why a task failed that distrun did not stop, and by which limit or whose port."""
    return with_limit(_task_failure(task, log), task, log)


def with_limit(found: TaskFailure, task: TaskState, log: LogAnalysis) -> TaskFailure:
    """Return a failure with the limit that was hit, or with who has the port, if that is known."""
    shown = _found_on_host(found.cause.code, task, log)
    if not shown:
        return found
    is_sure = found.cause.code is not Code.PORT_NOT_BOUND
    cause = found.cause._replace(code=found.cause.code if is_sure else Code.PORT_IN_USE)
    return replace(found, cause=cause._replace(within=shown))


def _found_on_host(code: Code, task: TaskState, log: LogAnalysis) -> tuple[Cause, ...]:
    """Return the limit that was hit, or who has the port, as the host has shown it."""
    found = task.exit.found
    if code in _PORTS_TAKEN:
        named = set(_NUMBER.findall(log.place_text)) or {(task.address or "").rpartition(":")[2]}
        owners = [each for each in found if each.code is Code.PORT_TAKEN]
        said = [each for each in owners if str(each.port) in named]
        return tuple(said or (each for each in owners if each.count))[:1]
    limits = {each.name: each for each in found}
    return tuple(limits[name] for name in _LIMITS.get(code, ()) if name in limits)[:1]


def _task_failure(task: TaskState, log: LogAnalysis) -> TaskFailure:
    number = signal_of(task)
    if task.exit.oom is not None:
        return _out_of_memory(task)
    if number in (*CRASH_SIGNALS, *_BY_ITSELF):
        return _crash(task, log)
    spent = number == SIGKILL and any(each.name == "RLIMIT_CPU" for each in task.exit.found)
    if number in _BY_LIMIT or spent:
        cause = exit_cause(task)._replace(code=Code.LIMIT_HIT, task=task.name)
        return TaskFailure(Kind.LIMIT, cause, (exit_evidence(task),))
    if number == SIGTERM or task.code == TF_PREEMPTED:
        return _preempted(task, log)
    if task.signal is not None or (number == SIGKILL and log.raised is None):
        return _killed(task, number or SIGKILL, log)
    return _by_log(task, log)


def _by_log(task: TaskState, log: LogAnalysis) -> TaskFailure:
    """Return why a task exited by itself: by its log, and by what happened to its children."""
    found, child = failure_in_log(task, log), task.exit.child
    is_killed = child is not None and child.signal != 0
    text = log.text if found else f" {log.text}"  # a word alone may be of the program's own end
    printed = None if is_killed else child_in(text)
    if printed is not None and (found is None or found.cause.code is Code.EXCEPTION_RAISED):
        oom = tuple(each for each in task.exit.found if each.code in _OOM)
        printed = printed._replace(within=oom if printed.signal == SIGKILL else ())
        where = None if found else log.find_last(OF_SIGNAL)
        shown = () if where is None else (log.evidence(where[0]), exit_evidence(task))
        return child_failure(task, printed, shown or (found or _exit(task, log)).evidence)
    is_reason = is_killed
    if found is not None:
        pid = child.pid if child is not None and is_killed else 0
        said = rf"(?<!\d){pid}(?!\d)|{OF_CHILD.pattern}" if pid else OF_CHILD.pattern
        is_said = re.search(said, log.text if pid else found.cause.text) is not None
        is_reason = is_said and (is_killed or not (found.is_echo or (child and child.text)))
    if child is not None and is_reason:
        is_crash = child.signal in CRASH_SIGNALS and log.interrupted_at is not None
        crashed = log.evidence_at(log.interrupted_at) if is_crash else ()
        return child_failure(task, child, (*crashed, *(() if found is None else found.evidence)))
    code, after = None if found is None else found.cause.code, log.error_after_logged
    is_makes = task.code == _MAKE_FAILED and any(map(_OF_MAKE.match, log.lines[-2:]))
    if found is not None and (
        (code is Code.EXCEPTION_RAISED and (task.code or 1) > 1 and not is_makes)
        or (code in _MAY_BE_CAUGHT and after is not None)
    ):
        # An exception that nothing catches exits 1.
        cause = found.cause._replace(code=Code.EXITED_AFTER_EXCEPTION, status=task.code)
        last = () if after is None else (log.evidence(after),)
        evidence = (*found.evidence, *last, exit_evidence(task))
        found = replace(found, kind=Kind.EXCEPTION, cause=cause, evidence=evidence)
    if found is not None and child is not None and is_killed:  # it may have failed for that
        found = replace(found, evidence=(*found.evidence, death(task, child)))
    if found is None and child is not None and child.text:  # of a shell
        return replace(ended := _exit(task, log), evidence=(death(task, child), *ended.evidence))
    return found or _exit(task, log)


def child_in(text: str) -> Cause | None:
    """Return the death of a child that a program reports, where the kernel does not."""
    match = OF_SIGNAL.search(text)
    if match is None:
        return None
    return Cause(Code.CHILD_KILLED, pid=int(match[1] or 0), signal=_SIGNALS[match[2][0]])


def child_failure(task: TaskState, child: Cause, evidence: Sequence[Evidence] = ()) -> TaskFailure:
    """Return that one of a task's processes was killed or failed, with what the task said of it."""
    is_oom = any(each.code in _OOM for each in child.within)
    kind = Kind.HOST_MEMORY if is_oom else Kind.KILLED if child.signal == SIGKILL else Kind.CRASH
    kind = kind if child.status is None else Kind.EXIT
    seen = (death(task, child),) if child is task.exit.child else ()
    return TaskFailure(kind, child._replace(task=task.name), (*seen, *evidence))


def death(task: TaskState, child: Cause) -> Evidence:
    return Evidence(task=task.name, source=Source.KERNEL, host=task.host, cause=child)


def signal_of(task: TaskState) -> int | None:
    """Return the signal that killed the task, or the program that a shell ran for it."""
    if task.signal is None and task.code is not None and 128 < task.code <= 128 + 64:
        return task.code - 128  # a shell's exit code for a child killed by a signal
    return task.signal


def failure_in_log(task: TaskState, log: LogAnalysis) -> TaskFailure | None:
    """Return why a task, or the first of its processes, failed; None: its log does not show it."""
    last = _failure_in_log(task, log)
    is_later = last is not None and (last.is_echo or OF_PROGRAM.search(str(log.message)))
    is_later = is_later or task.code == XARGS_FAILED
    found = (_failure_in_log(task, each) for each in (log.of_processes() if is_later else ()))
    return next((each for each in found if each is not None and not each.is_echo), last)


def _failure_in_log(task: TaskState, log: LogAnalysis) -> TaskFailure | None:
    known = _by_rules(task, log, log.excerpts)
    message = log.message
    is_interrupt = message is not None and message.type == _INTERRUPT
    is_weak = known is not None and (known.is_echo or known.cause.code in _UNSURE)
    is_weak = is_weak or _OF_NCCL.search(str(message)) is not None
    if is_weak or is_interrupt or (known or message) is None:
        native = _by_rules(task, log, (log.native(_LAST_LINES),), _NATIVE)
        if native is not None and (known is None or native.cause.code != known.cause.code):
            return native
    if known is not None:
        return known
    if message is None:
        return None
    evidence = _error_lines(log, message.index)
    if message.type == _INTERRUPT:
        cause = Cause(Code.INTERRUPTED, task=task.name, name=log.place)
        return TaskFailure(Kind.KILLED, cause, evidence)
    cause = exception_cause(task, log)
    above = log.raised.first - 1 if log.raised and not log.raised.linked else -1
    if _OF_COMMAND in cause.text and above >= 0 and log.takes_no_step_after(above - 1):
        evidence = (log.evidence(above), *evidence)  # the last words of that command
    if log.raised and log.raised.linked and log.raised.is_caused:
        evidence = (log.evidence(log.raised.linked.message.index), *evidence)
    aside = next((e.message.index for e in log.tracebacks[::-1] if e.is_uncaught_aside), None)
    if aside not in (None, message.index) and log.takes_no_step_after(aside):
        evidence = (log.evidence(aside), *evidence)  # what may have led to it
    peers = _peers(log.text, task.name) if _TENSORFLOW_ERROR in message.type else ()
    evidence = (*_remote_target(log, message.index), *evidence)
    return TaskFailure(Kind.EXCEPTION, cause, evidence, peers=peers)


def exception_cause(task: TaskState, log: LogAnalysis) -> Cause:
    """Return what a task raised, and where."""
    text, source = _shorten(str(log.message)), log.excerpts[0].source
    if text == "AssertionError" and source.startswith("assert "):
        text = _shorten(f"{text}: {source}")
    return Cause(Code.EXCEPTION_RAISED, task=task.name, text=text, name=log.place)


def missing_checkpoint(text: str) -> str:
    """Return the checkpoint that is missing by an exception's text; empty if that is not so."""
    path = _CHECKPOINT.search(text) if _MISSING.search(text) else None
    return "" if path is None else (path[1] or path[0]).rstrip(".,;:")


def exit_cause(task: TaskState) -> Cause:
    if task.signal is not None:
        return Cause(Code.TASK_KILLED, signal=task.signal)
    return Cause(Code.TASK_EXITED, status=task.code)


def exit_evidence(task: TaskState, cause: Cause | None = None) -> Evidence:
    return Evidence(task=task.name, source=Source.EXIT, cause=cause or exit_cause(task))


def _by_rules(
    task: TaskState, log: LogAnalysis, excerpts: Sequence[Excerpt], kinds: Sequence[Kind] = ()
) -> TaskFailure | None:
    """Return what the first rule that matches says. `kinds`: only these, and echoes."""
    for rule in RULES:
        if kinds and not rule.is_echo and rule.kind not in kinds:
            continue
        for excerpt in excerpts:
            match = rule.match(excerpt, task.code)
            if match is not None:
                return _by_rule(task, log, rule, *match)
    return None


def _by_rule(task: TaskState, log: LogAnalysis, rule: Rule, index: int, mark: str) -> TaskFailure:
    line = _OF_GRPC.sub(r"\1", log.lines[index])
    text = without_operation(_shorten(log.quote(index, mark) if line is log.lines[index] else line))
    if text.endswith(":"):
        text = " ".join([text, *filter(None, map(str.strip, log.lines[index + 1 : index + 3]))])
    if log.message is not None and log.message.index == index:
        short = _shorten(str(log.message))
        text = short if mark.rpartition(".")[2] in short else text
    elif log.message is not None and text.startswith(("}", ")", "]", "[")):  # lines of a value
        text = f"{log.message} … {text}"
    cause = Cause(rule.code, task=task.name, text=text, name=log.place)
    evidence = _error_lines(log, index, mark)
    if rule.is_echo:
        return TaskFailure(rule.kind, cause, evidence, True, _peers(log.text, task.name))
    evidence = (*_remote_target(log, index), *evidence)
    if rule.code is Code.NAME_REPLACED:
        successors = {**SUCCESSORS, **SUCCESSORS_IN_KERAS}
        cause = cause._replace(expected=successors[re.split(r"\W", mark.rstrip("'"))[-1]])
    if rule.code is Code.FILE_DAMAGED and not _CHECKPOINT.search(text):
        before = log.lines[: index if log.raised is None else log.raised.first]
        said = filter(None, map(RESTORED.search, reversed(before)))
        paths = (each["path"] for each in said if _OF_CHECKPOINT.search(each[0]))
        cause = cause._replace(path=next(paths, "").rstrip(".,;:'\")"))
    if rule.code is Code.GPU_UNUSABLE and (other := log.find_last(_WHY_UNUSABLE)) is not None:
        evidence = (log.evidence(other[0]), *evidence)
    if rule.code is Code.PORT_IN_USE:
        cause = _with_port(cause, task, log)
    return TaskFailure(rule.kind, cause, evidence)


def _with_port(cause: Cause, task: TaskState, log: LogAnalysis) -> Cause:
    own = (task.address or "").rpartition(":")[2]
    named = _PORT.findall(log.text)
    if not own or (named and own not in named):
        return cause
    code = Code.OWN_PORT_IN_USE if named else Code.SOME_PORT_IN_USE
    return cause._replace(code=code, port=int(own))


def _peers(text: str, task: str) -> tuple[str, ...]:
    """Return the other tasks that a text names in TensorFlow's way."""
    named = [f"{role}:{index}" for role, index in _PEER.findall(text)]
    return tuple(dict.fromkeys(name for name in named if name != task))


def _error_lines(log: LogAnalysis, index: int, mark: str = "") -> tuple[Evidence, ...]:
    """Return the line of the error, after the frame of the user's code that led to it."""
    lines = [log.evidence(index, mark)]
    why = log.find_last(_WHY_OF_NCCL) if _OF_NCCL.search(log.lines[index]) else None
    if why is not None and why[0] != index:
        lines.insert(0, log.evidence(why[0]))
    if log.frame is not None and log.frame[0] != index:
        lines.insert(0, log.evidence(log.frame[0]))
    return tuple(lines)


def _remote_target(log: LogAnalysis, index: int) -> tuple[Evidence, ...]:
    """Return the line in which a chief's error names the worker where it arose."""
    stop = index if log.raised is None else log.raised.stop
    found = (at for at in range(index, stop) if log.lines[at].startswith(_REMOTE))
    return tuple(map(log.evidence, [*found][:1]))


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"


def _out_of_memory(task: TaskState) -> TaskFailure:
    kernel = Evidence(task=task.name, source=Source.KERNEL, host=task.host, cause=task.exit.oom)
    cause = Cause(Code.KILLED_FOR_MEMORY, task=task.name, host=task.host)
    return TaskFailure(Kind.HOST_MEMORY, cause, (kernel, exit_evidence(task)))


def _killed(task: TaskState, number: int, log: LogAnalysis) -> TaskFailure:
    known = failure_in_log(task, log) if number == _SIGINT else None
    if number == SIGKILL:  # Slurm says why, if the task has run srun
        known = _by_rules(task, log, (log.native(_LAST_LINES),), (Kind.HOST_MEMORY,))
    if known is not None and known.kind in _NATIVE:  # OpenBLAS sends it to its own process
        return replace(known, evidence=(*known.evidence, exit_evidence(task)))
    if log.message is not None and log.message.type == _INTERRUPT:
        evidence = (*_error_lines(log, log.message.index), exit_evidence(task))
        cause = Cause(Code.INTERRUPTED, task=task.name, name=log.place)
        return TaskFailure(Kind.KILLED, cause, evidence)
    by_shell = task.signal is None
    status = task.code if by_shell else None
    how = Cause(Code.EXITED_AS_SIGNALLED, status=status, signal=number) if by_shell else None
    said = log.find_last(OF_SIGNAL) if by_shell else None
    cause = Cause(Code.KILLED_FROM_OUTSIDE, task=task.name, signal=number, status=status)
    lines = () if said is None else (log.evidence(said[0]),)
    return TaskFailure(Kind.KILLED, cause, (*lines, exit_evidence(task, how)))


def _preempted(task: TaskState, log: LogAnalysis) -> TaskFailure:
    caught = log.find_last(SIGTERM_CAUGHT)
    lines = () if caught is None else (log.evidence(caught[0]),)
    cause = exit_cause(task)._replace(code=Code.PREEMPTED, task=task.name)
    return TaskFailure(Kind.PREEMPTED, cause, (*lines, exit_evidence(task)))


def _crash(task: TaskState, log: LogAnalysis) -> TaskFailure:
    native = (*map(log.of_abort, log.aborts), log.native(_LAST_LINES_OF_CRASH))
    known = _by_rules(task, log, native, _NATIVE)
    if known is None and log.crashed_after_exception:
        known = failure_in_log(task, log)
    if known is not None:
        return replace(known, evidence=(*known.evidence, exit_evidence(task)))
    lines = []
    if log.crash is not None:
        lines.append(log.crash)
        if log.frame is not None:
            lines.append(log.frame[0])
    # TensorFlow reports a fault of a GPU one line before that by which it ends; absl, the signal.
    said = ((log.lines[each], each) for each in log.aborts)
    ranked = sorted(
        (_SAYS_MORE.search(line) is not None, line[:3] != "***", at) for line, at in said
    )
    lines += [each for *_, each in ranked[-1:]]
    why = lines[-1:] if log.aborts else [i for i in lines[:1] if _FAULT.match(log.lines[i])]
    if why and log.lines[why[0]].startswith("  what():"):
        why.insert(0, max(0, why[0] - 1))  # what it threw
    quote = _shorten(" ".join(map(log.quote, why)))
    place = "" if log.crash is None else log.place
    cause = exit_cause(task)._replace(code=Code.CRASHED, task=task.name, text=quote, name=place)
    quoted = (log.evidence(each) for each in lines)
    return TaskFailure(Kind.CRASH, cause, (*quoted, exit_evidence(task)))


def _exit(task: TaskState, log: LogAnalysis) -> TaskFailure:
    kinds = {126: Kind.PERMISSION, 127: Kind.SCRIPT_NOT_FOUND}
    code = Code.SHELL_FAILED if task.code in kinds else Code.EXITED_BY_ITSELF
    cause = Cause(code, task=task.name, status=task.code)
    at = log.error_line()
    printed = () if at is None else (log.said(at),)
    evidence = (*printed, exit_evidence(task))
    if any(each.name == "RLIMIT_FSIZE" for each in task.exit.found):  # that of its log
        return TaskFailure(Kind.LIMIT, cause._replace(code=Code.LIMIT_HIT), evidence)
    shown = log.find_last(_SHOWS_MORE)
    if at is not None and task.code == 1 and _RETURNED.match(log.lines[at]):
        cause = cause._replace(name="sys.exit")
    elif shown is not None:
        cause = cause._replace(name=shown[1][1])
    return TaskFailure(kinds.get(task.code or 0, Kind.EXIT), cause, evidence)
