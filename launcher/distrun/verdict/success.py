"""Warnings about a success: what went wrong although every task that decides it has exited 0."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from distrun.agent.protocol.causes import Cause, Code
from distrun.lifecycle import SIGKILL, TaskPhase
from distrun.verdict import shell_scripts, trainers
from distrun.verdict.log_analysis import ERROR, STEPS, LogAnalysis
from distrun.verdict.model import Kind, LogTail, Verdict
from distrun.verdict.task_failures import (
    CRASH_SIGNALS,
    OF_SIGNAL,
    child_in,
    exception_cause,
    exit_cause,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from distrun.lifecycle import JobState, TaskState
    from distrun.verdict.model import Found

_MOST_SHOWN = 4
_TOTALS = {"STEPS", "EPOCHS"}
_OF_EXCEPTIONS = (Code.EXCEPTION_HIDDEN, Code.EXCEPTION_ASIDE)
_EXITS = ("SystemExit", "KeyboardInterrupt")
_RAN_OUT = re.compile(r"\bran out of data\b")
_DATA = r"(?:files|images|samples|examples|records|shards)\b"
_OF_DATA = rf"(?:(?:train|training|input|image|data|tfrecord) )?{_DATA}"
_NO_DATA = re.compile(
    r"(?i)^(?!.*\b(?:val|eval|test|dev|predict|cach|corrupt|invalid|delet|remov|skip|drop|old))"
    rf".*?(?:\b(?:found|loaded|read|using)\W{{1,3}}0 {_OF_DATA}"
    r"|(?<![\d.,])0 (?:training )?batches\b(?! per))"
)
_SOME_DATA = re.compile(
    rf"(?i)(?<![\d.,])[1-9][\d,]{{0,15}} (?:{_OF_DATA}|(?:training )?batches\b)"
)
_NOTHING = re.compile(
    rf"(?i)^(?!.*\b(?:val|eval|test|dev|predict|cach|delet|remov|skip|download|creat|generat))"
    rf".*\b(?:no (?:{_OF_DATA}|(?:\w+ )?data\b).* (?:found|match\w*|for|left|assigned)"
    r"|(?:data|dataset|input|shard) (?:is|was) empty|empty (?:training )?(?:data ?set|shard))\b"
)
"""Says so where nothing is printed after it."""
_EPOCH_BEGINS = re.compile(r"Epoch \d+/\d+\s*$")
"""Keras prints it also without any data."""
_ERROR = re.compile(rf"(?:{ERROR.pattern})(?!\s*[-+.\d])|Horovod has been shut down")
"""What says that it is an error, and no metric of that name."""
_GAVE_UP = re.compile(
    r"(?i)\W{0,9}(?:(?:training|job|run|experiment|program|exception|an error|something)\b"
    r"[^:]{0,40}\b(?:failed|crashed|aborted|occurred|went wrong)\b[^:]{0,40}"
    r"|(?:fatal |unexpected )?error(?!:\D{0,30}\d+\.\d+(?!\.?\d))"  # no metric
    r"(?!: *(?:none|null|nan|n/?a|no errors?|ok|low|high|\w+ ?= ?\d+)\b)): *(?![-+.\d])\S"
    r"|(?:.{0,20}\d.{0,40}\b)?(?-i:ERROR|CRITICAL|FATAL)\b(?!:? *[-+.\d]| (?:rate|count))[\s:|\]-]"
    r"|\{.{0,200}\"(?:level|severity|levelname)\": ?\"(?:error|critical|fatal)\""
)
_SHUTS_DOWN = "INFO:tensorflow:"
"""How each line begins that a coordinator logs at its end."""
_USAGE = re.compile(
    r"^[Uu]sage: .*(?:\.py\b|\[)|^NAME$|^FATAL Flags parsing error: "
    r"|Skipping training since max_steps has already saved"
)
"""What argparse, click and Fire print for --help, or no command; absl of a flag; Estimator's."""
_FULL = re.compile(
    r"^(?!.*(?i:\bcache|\busing\b|instead|\bfall)).*"
    r"(?:\[Errno (?:28|122)\]|[:;(] ?(?:No space left on device|Disk quota exceeded))"
)
_OF_SHELL = re.compile(r": line |[A-Z][a-z ]{5,}$")
_METRIC = re.compile(r"(?i)(?:loss|acc|accuracy)\b\W{1,4}\d")
_STOPPED_EARLY = re.compile(
    r"(?i)\bearly[ _-]?stop|\bstop\w* early\b|trainer to stop\b|\bstopped: |\bconverged\b"
)
_LINES_OF_STOP = 3
_NOT_RUN = re.compile(
    r"\S+: can't open file '|\S*python\S*: (?:Error while finding module|No module named )"
    r"|(\S+\.py): error: "
)
"""What Python or argparse prints if a program does not run."""
_MOST_USAGE = 40
_FIELD = re.compile(r"\{[^}]*\}")
_LEAST_SAID = 8
_PROGRAM = re.compile(r"[\w./-]+\.py\b")
_EXIT_SAYS = re.compile(r"\b(?:exit|SystemExit)\(f?([\"'])(.{8,300}?)\1\)")
_LOOKS_AT_CODE = re.compile(r"\|\||&&|\$\?|PIPESTATUS|\b(?:if|while|until)\b|pipefail")
"""A shell script that does something if a program fails."""
_KILLS = re.compile(r"\b(?:p?kill|SIGKILL|terminate|timeout)\b")
_OWN_DEATH = re.compile(r"\bkill\(os\.getpid\(\)[^)\n]*\)")
_STARTS = re.compile(r"\b(?:multiprocessing|subprocess|Popen|fork|spawn)\b")
"""A program has processes of its own making; a library may end those that it makes."""
_AGAIN = re.compile(r"(?i)\bre-?(?:start|spawn|launch|try|tri|plac|queu|submit)")
LOOKS = re.compile(r"\b(?:returncode|exitcode|CalledProcessError)\b|(?:if|=) os\.system\(")
"""A program looks at how what it has started ended."""
_WARNED = re.compile(r"\bWARN(?:ING)?\b|W\d{4} [\d:. ]+\S+\.py:\d+\]")
_MODULE = re.compile(r'\s+File "((?:[^"]*/)?([^"/]+))", line (\d{1,9}), in <module>$')


def success_verdict(
    state: JobState,
    read_log: Callable[[str], LogTail],
    shell_texts: Mapping[str, str],
    scripts: Collection[str] = (),
    text: str = "",
    read_program: Callable[[str], str] = lambda _: "",
    read_begin: Callable[[str], LogTail] = lambda _: LogTail(b""),
) -> Verdict | None:
    """Return the warning about a job's success; None: there is none.

    Args:
        state: of the job, at its end.
        read_log: returns the end of a task's log.
        shell_texts: the text of the shell script that each task runs, if it does, and of those that
            it calls, by their names; an inner one after the one that calls it.
        scripts: the names of the files of Python that tasks run; none: others, too, may run.
        text: of all these.
        read_program: returns the text of the file of Python with this path, or ''.
        read_begin: returns the beginning of a task's log, for those that run a shell script.
    """
    done = [task for task in state.tasks.values() if task.code == 0 and not task.stopped_by_us]
    logs: dict[str, LogAnalysis] = {}
    shell = "\n".join(shell_texts.values())
    hider = functools.partial(shell_scripts.hiding_line, [*shell_texts.items()])

    def log_of(task: TaskState) -> LogAnalysis:
        if task.name not in logs:
            logs[task.name] = LogAnalysis(read_log(task.name), task.code, task.name)
        return logs[task.name]

    found = [
        *_left_at_work(done),
        *_crashed_children(done, log_of, shell, shell + text),
        *_hidden_exceptions(done, log_of, shell, hider, scripts, read_program),
        *_timed_out(done, shell, hider("timeout")),
        *trainers.left_behind(state, done, log_of),
        *trainers.find_without_contact(state),
        *trainers.uneven_starts(state, log_of),
    ]
    hidden = {each.task for each, _ in found if each.code in _OF_EXCEPTIONS}
    logged = [(task, LogAnalysis(read_begin(task.name), 1, task.name)) for task in done]
    logged += ((task, log_of(task)) for task in done)
    found += _went_on(logged, shell_texts, scripts, text, read_program, hidden)
    found += _stopped_short(done, read_log, {cause.task for cause, _ in found}, shell)
    named = {cause.task for cause, _ in found}
    found += _hidden_codes([task for task in done if task.name not in named], shell, hider)
    found += trainers.not_finite(done)
    named = {cause.task for cause, _ in found}
    found += _full_disks([task for task in done if task.name not in named], log_of)
    failed = [*_failed(state)]
    merged: defaultdict[Cause, list[str]] = defaultdict(list)
    for cause, _ in found:
        merged[cause._replace(task="")] += [cause.task] if cause.task else []
    causes = tuple(cause._replace(tasks=tuple(dict.fromkeys(names))) if names else cause
                   for cause, names in merged.items())  # fmt: skip
    causes += tuple(cause for cause, _ in failed)
    if not causes:
        return None
    evidence = tuple(each for _, quoted in [*found, *failed][:_MOST_SHOWN] for each in quoted)
    cause = Cause(Code.SUCCESS_QUALIFIED, within=causes)
    return Verdict(kind=Kind.QUALIFIED, cause=cause, evidence=evidence)


def _failed(state: JobState) -> Iterator[Found]:
    """Find the tasks that failed, but did not count, such as an evaluator."""
    verdict = state.verdict
    for task in state.tasks.values():
        if task.phase is not TaskPhase.FAILED:
            continue
        if verdict is not None and verdict.task == task.name:
            yield verdict.cause, verdict.evidence
        elif task.exit_status is not None:
            yield exit_cause(task)._replace(task=task.name), ()


def _left_at_work(done: list[TaskState]) -> Iterator[Found]:
    for task in done:
        if task.end.left:
            cause = Cause(Code.LEFT_AT_WORK, task=task.name, count=task.end.left)
            yield cause._replace(text=task.end.left_command), ()


def _crashed_children(
    done: list[TaskState], log_of: Callable[[TaskState], LogAnalysis], shell: str, text: str
) -> Iterator[Found]:
    """Find tasks whose processes crashed or ran out of memory, by the kernel or by their words."""
    for task in done:
        child, log = task.exit.child, log_of(task)
        printed = log.find_last(OF_SIGNAL)
        if printed and not (
            printed[1].start() or (shell and log.lines.count(printed[1].string) == 1)
        ):
            printed = None  # a word alone may be of a game
        cause = Cause(Code.CHILD_CRASHED, task=task.name)
        is_done = _TOTALS & task.reported.keys() and not trainers.reached_of_total(task.reported)
        is_seen = is_done and LOOKS.search(text)  # by the program, which came to its end
        if child is not None and (
            child.within
            or (child.signal in CRASH_SIGNALS and not is_seen)
            or (child.signal == SIGKILL and _only_starts(text))
        ):
            yield cause._replace(signal=child.signal), ()
        elif printed is not None and (
            log.takes_no_step_after(printed[0])
            or (_OF_SHELL.match(printed[1][0]) and not shell_scripts.TRIES_AGAIN.search(text))
        ):
            found, line = child_in(printed[1][0]), printed[1].string
            # A program may end its own processes, or start others in their place; a bare exit code
            # is one of its processes only if its text is known, and has none end.
            is_meant = _KILLS.search(f"{text}\n{line}") or _AGAIN.search(line)
            is_sure = text.strip() or not printed[1][2].isdigit()
            if found is not None and is_sure and not is_meant:
                yield cause._replace(signal=found.signal), (log.evidence(printed[0]),)


def _only_starts(text: str) -> bool:
    """Whether a program starts processes, and neither ends them nor looks at how they ended."""
    ends = LOOKS.search(text) or _KILLS.search(_OWN_DEATH.sub("", text))
    return _STARTS.search(text) is not None and not ends


def _hidden_exceptions(
    done: list[TaskState],
    log_of: Callable[[TaskState], LogAnalysis],
    shell: str,
    hider: Callable[[str], str],
    scripts: Collection[str],
    read_program: Callable[[str], str],
) -> Iterator[Found]:
    for task in done:
        log = log_of(task)
        raised, message = log.raised, log.message
        if raised is None or message is None or message.type in _EXITS:
            continue
        above = "".join(log.lines[max(0, raised.first - 1) : raised.first])
        if scripts and _WARNED.search(above):  # nothing hides their codes: it was caught
            continue
        rest = log.lines[message.index + 1 :]
        after = next((line for line in rest if line[:1].strip()), "")
        ignored = after if after.endswith("(ignored)") else ""  # make's words
        code, path = Code.EXCEPTION_HIDDEN, ""
        is_aside = raised.is_uncaught_aside or _is_of_another_script(log, scripts, read_program)
        if raised.aside.startswith("Exception in thread") and log.frame is None:
            continue  # a library's own thread, such as TensorFlow's when its peers have left first
        if shell_scripts.TRIES_AGAIN.search(shell) and not log.takes_no_step_after(message.index):
            continue
        if is_aside and log.frame is not None:
            code = Code.EXCEPTION_ASIDE
        elif log.ends_with_exception or (
            not raised.is_ignored and (ignored or shell_scripts.only_echoes(rest, shell))
        ):
            program = _MODULE.match(log.lines[raised.first + 1])
            path = ignored or hider(program[2] if program else "")
        else:
            continue
        cause = exception_cause(task, log)._replace(code=code, path=path)
        yield cause, (log.evidence(message.index),)


def _hidden_codes(
    done: list[TaskState], shell: str, hider: Callable[[str], str]
) -> Iterator[Found]:
    """Find tasks whose shell script went on after a Python program had failed, without a look."""
    for task in done:
        child = task.exit.child
        if child is not None and child.text and not _LOOKS_AT_CODE.search(shell):
            name = next(reversed(_PROGRAM.findall(child.text)), "python")
            if path := hider(name.rpartition("/")[2]):
                text = f"{child.text} exited {child.status}"
                yield Cause(Code.COMMAND_FAILED, task=task.name, text=text, path=path), ()


def _went_on(
    logged: list[tuple[TaskState, LogAnalysis]],
    shell_texts: Mapping[str, str],
    scripts: Collection[str],
    text: str,
    read_program: Callable[[str], str],
    hidden: Collection[str],
) -> Iterator[Found]:
    """Find commands of a shell script, and child processes, that failed while others went on."""
    shell = "\n".join(shell_texts.values())
    is_handled = shell_scripts.TRIES_AGAIN.search(shell) or (not shell and LOOKS.search(text))
    for task, log in logged:
        failed = [*shell_scripts.not_set_up(log, shell_texts)]
        if task.name not in hidden and not is_handled:
            # Its first process has exited 0: its own script has failed in another one.
            own = () if task.exit.child and task.exit.child.status else scripts
            ended = _ended(log, shell, scripts, own, read_program)
            for at, name in (*ended, *_refused(log, shell, read_program)):
                path = name and shell_scripts.hiding_line([*shell_texts.items()], name)
                failed += [(at, path)] if path or not name else []
        for at, path in failed:
            cause = Cause(Code.EXCEPTION_ASIDE, task=task.name, text=log.quote(at))
            if at in [each.message.index for each in log.tracebacks]:
                cause = exception_cause(task, log.until(at + 1))._replace(code=cause.code)
            if path:
                cause = cause._replace(code=Code.COMMAND_FAILED, path=path)
            if path or cause.name:
                yield cause, (log.evidence(at),)
                break


def _ended(
    log: LogAnalysis,
    shell: str,
    scripts: Collection[str],
    own: Collection[str],
    read_program: Callable[[str], str],
) -> Iterator[tuple[int, str]]:
    """Yield where programs that others run have printed what ended them, and their names.

    Those that are not named in the shell script have an empty name. `own`: the scripts that have
    not ended so.
    """
    linked = [each.linked for each in log.tracebacks]
    for each in log.tracebacks:
        shown = log.lines[each.first + 1 : each.exception]
        first = next((line for line in shown if line.startswith('  File "')), "")
        program = _MODULE.match(first)
        name = program[2] if program else "-m " if "_run_module_as_main" in first else "\0"
        # A library's own thread may fail because its peers have left first.
        is_own = "Exception in thread" in each.aside and log.until(each.stop).frame
        is_child = each.aside.startswith("Process ") or is_own
        is_run = name in shell if shell else bool(scripts and program) and name not in own
        is_caught = program and _is_caught(read_program(program[1]), int(program[3]))
        is_end = is_child or (is_run and not (each.aside or is_caught))
        if is_end and not (each in linked or each.message.type in _EXITS):
            yield each.message.index, name if shell and not is_child else ""


def _refused(
    log: LogAnalysis, shell: str, read_program: Callable[[str], str]
) -> Iterator[tuple[int, str]]:
    """Yield where programs of a shell script say that they cannot begin, or why they exit."""
    says = [
        (_FIELD.split(said), name)
        for name in _PROGRAM.findall(shell)
        for _, said in _EXIT_SAYS.findall(read_program(name))
        if len(_FIELD.sub("", said)) >= _LEAST_SAID  # less may be any line
    ]
    for at, line in enumerate(log.lines if shell else ()):
        if (found := _NOT_RUN.match(line)) is not None:
            above = log.lines[max(0, at - _MOST_USAGE) : at]
            if not found[1] or any(f"usage: {found[1]}" in each for each in above):
                yield at, found[1] or "py"
        yield from ((at, name) for parts, name in says if shell_scripts.has_parts(line, parts))


def _is_caught(text: str, line: int) -> bool:
    """Whether a program goes on after an exception in a line of its module, as far as is known."""
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return True
    tries = [
        each for each in nodes if isinstance(each, ast.Try) and any(map(_ends_here, each.handlers))
    ]
    parts = [part for each in tries for part in each.body]
    return not text or any(part.lineno <= line <= (part.end_lineno or 0) for part in parts)


def _ends_here(handler: ast.ExceptHandler) -> bool:
    """Whether what a handler catches is an error, and may end there."""
    is_exit = handler.type is not None and ast.unparse(handler.type) in _EXITS
    return not is_exit and not any(isinstance(each, ast.Raise) for each in ast.walk(handler))


def _timed_out(done: list[TaskState], text: str, path: str) -> Iterator[Found]:
    """Find tasks that lived until `timeout` ends their program, and as long as it takes to exit."""
    seconds = shell_scripts.time_limit(text) if path else float("inf")
    for task in done:
        if seconds <= (task.exit.lived or 0.0) <= 1.05 * seconds + 2:
            yield Cause(Code.TIMEOUT_HIDDEN, task=task.name, seconds=seconds, path=path), ()


def _stopped_short(
    done: list[TaskState], read_log: Callable[[str], LogTail], named: Collection[str], shell: str
) -> Iterator[Found]:
    """Find tasks that took no step after an error, or for want of data, although some were left."""
    for task in done:
        own, reached = task.reported, trainers.reached_of_total(task.reported)
        is_bare = not own.keys() - {"EPOCH", "EPOCHS"}
        if task.name in named or not (reached or is_bare):
            continue
        log = LogAnalysis(read_log(task.name), 1, task.name)  # as if it had failed of the error
        raised = log.raised if reached else None
        found = log.find_last(_ERROR) if reached and log.raised is None else None
        error = None if found is None else found[0]
        is_idle = not (own or shell) and log.takes_no_step_after(-1)
        usage = log.find_last(_USAGE) if is_idle else None
        if error is None and not own:
            error = _last_words(log)
        if raised is not None and not raised.is_ignored and raised.message.type not in _EXITS:
            at: int | None = raised.message.index
            cause = exception_cause(task, log)._replace(code=Code.EXCEPTION_HIDDEN)
        else:
            code = Code.DATA_EXHAUSTED if reached else Code.DATA_MISSING
            at, cause = _want_of_data(log, own), Cause(code, task=task.name)
            if at is None and error is not None:
                at, cause = error, cause._replace(code=Code.EXCEPTION_HIDDEN)
            elif at is None and usage is not None:
                at, cause = usage[0], cause._replace(code=Code.USAGE_SHOWN)
            cause = cause if at is None else cause._replace(text=log.quote(at))
        if at is not None and (not reached or _ends_at(log.lines, at)):
            yield cause._replace(expected=reached), (log.evidence(at),)


def _last_words(log: LogAnalysis) -> int | None:
    """Return the last line if it is an error, and no other one shows a step."""
    last = log.last_line()
    while last and log.lines[last].startswith(_SHUTS_DOWN):
        last -= 1
    is_error = last is not None and _GAVE_UP.match(log.lines[last])
    return last if is_error and not any(map(STEPS.search, log.lines)) else None


def _want_of_data(log: LogAnalysis, own: Mapping[str, str]) -> int | None:
    """Return the line that says that a task lacked data; what it reported may show the contrary."""
    lines = log.lines
    if trainers.reached_of_total(own):
        # Training that went on after the first time did not end by it.
        return next((at for at, line in enumerate(lines) if _RAN_OUT.search(line)), None)
    if "EPOCHS" in own:
        found = log.find_last(_RAN_OUT)
        others = (line for line in lines if not _EPOCH_BEGINS.match(line))
        has_trained = any(STEPS.search(line) or _METRIC.search(line) for line in others)
    else:
        last = log.last_line()
        is_last = last is not None and _NOTHING.search(lines[last])
        found = log.find_last(_NOTHING if is_last else _NO_DATA)
        has_trained = bool(own) or any(map(_SOME_DATA.search, lines))
        has_trained = has_trained or not (found is None or log.takes_no_step_after(found[0]))
    return None if found is None or has_trained else found[0]


def _full_disks(
    done: list[TaskState], log_of: Callable[[TaskState], LogAnalysis]
) -> Iterator[Found]:
    for task in done:
        if (said := log_of(task).find_last(_FULL)) is not None:
            cause = Cause(Code.DISK_EXHAUSTED, task=task.name, text=log_of(task).quote(said[0]))
            yield cause, (log_of(task).evidence(said[0]),)


def _ends_at(lines: list[str], at: int) -> bool:
    """Whether the last steps are before that line, and none of them was to be the last.

    A program whose log shows no step reports them in another way: the log does not show when.
    """
    last = next((i for i in range(len(lines) - 1, -1, -1) if STEPS.search(lines[i])), None)
    if _RAN_OUT.search(lines[at]) and not _EPOCH_BEGINS.match(" ".join(lines[at + 1 : at + 2])):
        at += 1  # Keras ends the line of that epoch
    if last is None or last > at:
        return False
    return not any(map(_STOPPED_EARLY.search, lines[max(0, last - _LINES_OF_STOP) :]))


def _is_of_another_script(
    log: LogAnalysis, scripts: Collection[str], read_program: Callable[[str], str]
) -> bool:
    """Whether another program than the task's own ended with the exception.

    The traceback of an exception that a program catches begins where it is caught.
    """
    raised = log.raised
    if raised is None or raised.linked or not scripts:
        return False
    begins = _MODULE.match(log.lines[raised.first + 1])
    if begins is None or begins[2] in scripts:
        return False
    text = read_program(begins[1])
    is_here = text or begins[1].startswith("/")  # not in a text that the program prints
    return bool(is_here) and not (text and _is_caught(text, int(begins[3])))
