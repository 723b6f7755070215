"""The end of one task's log, analyzed: the exception, the crash and the last lines in it."""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property

from distrun.frozen import Frozen, replace
from distrun.verdict.model import Evidence, LogTail, Source
from distrun.verdict.rules import Excerpt
from distrun.verdict.traceback_forms import plain_lines
from distrun.verdict.tracebacks import (
    ARGUMENTS,
    ASIDE,
    BAR,
    GROUP,
    LOGGED,
    LOGGING_ERROR,
    Message,
    Traceback,
    tracebacks,
    type_of,
)

_HARMLESS_LOG = re.compile(r"[IW]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] ")
_FATAL_LOG = re.compile(r"F\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: F ")
_NOISE = ("To enable the following instructions:", "WARNING: All log messages before absl::")
"""TensorFlow prints these at each start without the prefix of its log."""
_FATAL_PYTHON = re.compile("^Fatal Python error: ")
_ABORTED = "Fatal Python error: Aborted"
"""Begins what Python prints at SIGABRT."""
_CONTINUED = re.compile(
    r"[\s^~]*$|\s+\[\[|RPC: /|:UNKNOWN:|/job:\w+/|Additional GRPC error|The tasks have crashed"
    r"|The error could be from a previous|This is usually caused by an earlier error"
)
"""The beginnings of the second and later lines of TensorFlow's messages."""
_OF_MESSAGE = re.compile(rf"$|\s|{ARGUMENTS.pattern}")
"""The beginnings of lines that may go on with the message of an exception."""
_AT_EXIT = re.compile(r"Original exception was:|g?make(?:\[\d+\])?: ")
_OF_RUNNER = re.compile(
    r"\S+\.py:\d+: \w{0,40}Warning: |  warnings\.warn\("
    r"|ERROR conda\.cli\.main_run:execute\(|g?make(?:\[\d+\])?: \*\*\* \[.*\] Error \d"
    r"|(?:(?:ERROR|WARNING):|\[[\d :,-]{9,29}\] )torch\.distributed\.(?:elastic|run)\b"
    r"|srun: (?:error: \S+: tasks? [\d,-]+: Exited with|Terminating )"
    r"|(?:real|user|sys)\s+[\dm]+\.\d+s?$|(?:See|Run) '\S[^']{0,80} --help'"
    r"|Command exited with non-zero status \d|\t(?:Average|Command|Elapsed|Exit|File|Involuntary"
    r"|Ma[jx]|Minor|Page|Percent|Signals|Socket|Swaps|System|User|Voluntary).{0,99}: "  # of time
    r"|COMET \w+:|wandb: (?!ERROR)|(?:🏃|🧪) View |\[notice\] "  # the last one is pip's
    r"|\[neptune\] \[(?:info|warning) *\] |.{10,40}clearml\.\w+ - INFO - "
)
"""What is printed after a program's last line, by what runs it or by libraries when it exits."""
_ABORTS = re.compile(
    r"Check failed|terminate called|libc\+\+abi: terminating|pure virtual method"
    r"|what\(\):|Assertion `|\bCUDA_ERROR_(?:ILLEGAL|LAUNCH_FAILED|MISALIGNED)"
    r"|(?<![\w.])(?:malloc|free|realloc|malloc_consolidate|munmap_chunk)\(\): [a-z]"  # glibc's
    r"|Attempt to free invalid pointer|^\[libprotobuf (?:ERROR|FATAL)"
    r"|^qt\.qpa\.|^OMP: Error #\d+: |^libgcc_s\.so\.1 must be installed"
    r"|^(?:double free or corruption|corrupted (?:size|double-linked))"
    r"|^\*\*\* (?!Check ).{5,300} \*\*\*"
)
ERROR = re.compile(
    r"^\s*(?:[\w.]+(?:Error|Exception)|ERROR|FATAL|CRITICAL|[Ee]rror|[Ff]atal)\b ?[:(]"
    r"|: (?:fatal )?error: |^Error (?:in|executing|locating|while|instantiating) "
    r"|^thread '.{1,80}' panicked at |^panic: |^Exception in thread \".{1,80}\" \S"
    r"|Could not override '|^In '\S+': Could not find '|MissingMandatoryValue: "  # Hydra's
    r"|Error reported to Coordinator: "  # of TensorFlow 1
    r"|^Cannot find primary config|^\w{1,20}: Error response from daemon: "  # Docker's
    r"|: (?:line )?\d+: (?:[Ss]yntax error\b|\S{1,99}: (?:unbound variable|param.{0,20} not set)$)"
    r"|\bcommand not found$|: not found$|\| (?:ERROR|CRITICAL) +\||\b(?:ERROR|CRITICAL)\b[ :\]-]"
    r"|\[(?:error|critical) *\]|(?<!\" )\blevel(?:name)?[\"']?[=:] ?[\"']?(?:error|fatal)\b"
)
OF_CHILD = re.compile(
    r"BrokenProcessPool|\bEmpty$|exited unexpectedly|terminated abruptly|died (?:unexpectedly|with)"
    r"|unexpectedly terminated|failed to boot|terminated with the following error"
    r"|(?:killed by|terminated (?:by|with)) signal|EOFError|BrokenPipeError|ConnectionResetError"
    r"|exit ?code:? -?\d"
    r"|\b(?:(?:sub)?process(?:es)?|workers?|child(?:ren)?|loaders?)\b.{0,40}"
    r"\b(?:exited|failed|died|crashed|dead|killed|(?:not|no longer) alive|ended with -?\d)\b"
)
"""What a program says if one of its own processes has gone."""
OF_PROGRAM = re.compile(
    r"(?:python|\.py\b|\.sh\b|'\./|torchrun|accelerate).{0,2000}returned non-zero exit status"
    r"|ChildFailedError"
)
"""What a program says if one of Python, or a script, that it runs has failed."""
XARGS_FAILED = 123
"""The exit code of xargs if one of the commands that it runs has failed; it runs the others."""
_RANK_FAILED = re.compile(
    r"(?P<is_late>mpirun|mpiexec|prterun) detected that one or more processes exited with non-zero"
    r"|Primary job +terminated normally, but \d+ process returned|=   BAD TERMINATION OF ONE OF"
    r"|Process \d+ exit with status code \d|srun: error: \S+: tasks? [\d,-]+: Exited with"
    r"|.*\btorch\b.*(?:Sending process \d+ closing signal|failed \(exitcode: \d+\) local_rank: )"
)
"""What a program that runs several ranks says once one has failed; the others may train on."""
_SIGTERM = re.compile(
    r"(?i)\bsigterm\b|\bsignal (?:15|term)\b|\bpreempt(?:ed|ion)\b"
    r"|\bterminat(?:e|ion) (?:signal|request|notice)|\breceived? termination"
)
_HANDLER_SET = re.compile(
    r"(?i)(?:install|regist|set|add)\w* .{0,80}\bhandler"
    r"|\bhandlers? (?:\w+ ){0,2}(?:installed|registered|set|added)\b"
)
"""What a program says of SIGTERM before it gets it."""
_BEHIND_END = re.compile(r"threading\.py\".* _shutdown\b|\A.*\n {2}<no Python frame>")
"""In the thread that got the signal. TensorFlow waits for other tasks in native code."""
_CURRENT_THREAD = "Current thread 0x"
_THREAD = re.compile(r"(?:Current thread|Thread) 0x|Fatal Python error: ")
_WAITS = re.compile(r'/(?:queue|threading|multiprocessing/\w+|concurrent/futures/\w+)\.py", line ')
"""Where Python waits for its own threads and processes."""
_RUNS_PROGRAM = re.compile(r'/subprocess\.py", line ')
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d{1,9})(?:,? in (.+))?$')
"""A frame of a traceback; without a function, the place of a syntax error."""
_LIBRARIES = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3|\.zip/|\.pyx|\.pxd"
    r"|/tensorflow(?:_core|/python/\w+)/|/keras/src/|/numpy/(?:_?core|lib|linalg|random)/"
    r"|/pandas/(?:core|io)/|/scipy/\w+/_|/sklearn/(?:\w+/_|utils/|base\.py)|/jax/_src/"
    r"|/torch/(?:nn|utils|optim|autograd|distributed|_\w+)/"
)
_MISTAKES = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
_GENERATED = re.compile(r"<|__autograph_generated_file|tmp\w{8}\.py$")
"""The names of files that no user wrote; the last are AutoGraph's, too, in older versions."""
_CONVERTED = re.compile(r"(?<!\s)\s+\*+$")
"""Follows the name of a function that AutoGraph has converted."""
SERVING = re.compile(r"Started server with target: grpc://(\S+)")
_COLOUR = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]{0,999}(?:\x07|\x1b\\)"
    r"|\[\d{1,9}(?:,\d{1,9})?\]<std(?:out|err)>: ?|(?m:^\[(?:default|rank)\d{1,5}\]: ?)"
)
"""Colours, links of a terminal, and the rank that mpirun or torchrun writes before output."""
_TENSORFLOW = "tensorflow."
_MESSAGE_ENDS = ("[[", "[Op:")
_LAST_LINES = 20
_RULE = re.compile(r"[-=]{20,}$")
"""A line above and below a message, as Open MPI prints it."""
_ITEM = re.compile(r"\s+\S|[-*•] |[a-z][\w.-]*$")
_LOGGED_ERROR = re.compile(r"\b(?:WARNING|ERROR|CRITICAL)\b")
_MODULES = "Extension modules: "
"""Begins what Python prints last after a crash: all that was imported."""
_LAST_PRINTED = 5
_LAST_ABORT = 60
_MOST_LATER_LINES = 3
_MOST_LATER_LINES_EXIT_1 = 25
"""Python exits 1 after a traceback: the lines after it may then be a long message."""
_MOST_LINES_OF_RANKS = 10
"""What other ranks print until what runs them has noticed that one failed."""
_MOST_LINES_AT_EXIT = 400
"""What handlers at exit print, a summary for example; none of it names a step or an epoch."""
STEPS = re.compile(
    r"(?i)(?<![a-z])(?:step|epoch|iter(?:ation)?|batch|trial|fold|episode|round|generation)\b"
    r"\W{1,9}\d"
    r"|\d/\d+\]? ?\[|\depoch\b|^\s{0,3}\[\d+, +\d+\]|\d\w{0,9} \[\d\d:\d"
)
"""What a program prints that goes on: more forms than are read as progress."""
_COUNTED_STEP = re.compile(
    r"(?i).{0,60}?(?<![a-z])(?:step|epoch|iter(?:ation)?|batch)\b\W{1,9}(\d{1,15})"
)
_NUMBER = re.compile(r"[-+]?\d[\d.e+-]*")
RESTORED = re.compile(
    r"(?i)\b(?:restor|resum|load|continu|reading)\w*\b.{0,80}?[\s'\"=:(]"
    r"(?P<path>/\S+|\S*(?:ckpt|checkpoint|/)\S+)"
)
"""What a program says before or after it reads a checkpoint."""
_MOST_TRACEBACKS = 50
"""Only the last ones are analyzed: a log may have thousands, and they are compared in pairs."""
_MOST_PROCESSES = 8
_MOST_LINES = 5000
"""Only the last ones are analyzed: some lines are read once for each traceback."""
_LONGEST_LINE = 8000
"""Characters of a line that are analyzed: the time of some patterns grows with its square."""
_LONGEST = 1000
_BEFORE_MARK = 100


def _is_abort(line: str) -> bool:
    """Whether native code says in this line why it ends the process."""
    return _FATAL_LOG.match(line) is not None or _ABORTS.search(line) is not None


def _may_follow_end(line: str) -> bool:
    """Whether this line may follow the last output of a program that has ended or crashed."""
    known = any(each.match(line) for each in (LOGGED, _CONTINUED, ASIDE, _AT_EXIT, _OF_RUNNER))
    return known or line.startswith(_NOISE) or _is_abort(line)


class Frame(Frozen):
    """A frame of a traceback: a place in a program."""

    path: str
    line: int
    function: str

    @property
    def is_own(self) -> bool:
        """Whether it is in the user's code, not in a library's. Cython's functions have dots."""
        inside = _LIBRARIES.search(self.path) is not None or "." in self.function
        return not inside and not _GENERATED.match(self.path.rpartition("/")[2])

    def __str__(self) -> str:
        place = f"{self.path.rpartition('/')[2]}:{self.line}"
        is_named = self.function not in ("<module>", "None")  # None: a lambda, to AutoGraph
        return f"{place} in {self.function}" if is_named else place


def _without_bar(line: str) -> str:
    # The searches take far longer than these looks, and few lines have a bar.
    line = BAR.sub("", line) if "%|" in line else line
    before, fault, text = line.partition("Fatal Python error: ")
    return fault + text if fault and re.search(r"\d", before) else line


@functools.lru_cache(maxsize=8)
def _parse(tail: LogTail) -> tuple[list[str], list[str], list[int], int]:
    """Return its lines, these without the marks of groups, their places, and how many are cut off.

    Kept because a log is analyzed up to three times, and again up to each of its tracebacks.
    """
    text = _COLOUR.sub("", tail.raw[tail.begin :].decode("utf-8", "replace")).rstrip("\n")
    text = text.replace("(most recent calls WITHOUT Sacred internals)", "(most recent call last)")
    found = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    cut = [_without_bar(line[:_LONGEST_LINE]) for line in found]
    raw, places = plain_lines(cut[-_MOST_LINES:])
    lines = [GROUP.sub("", line, count=1) for line in raw]
    return raw, lines, places, max(0, len(cut) - _MOST_LINES)


class LogAnalysis:
    """The last lines of a task's last attempt, and the error in them.

    `code`: its exit code. `stop`: which of these lines is the first that is not read.
    """

    def __init__(
        self, tail: LogTail, code: int | None = None, task: str = "", stop: int | None = None
    ) -> None:
        self._tail, self._task = tail, task
        raw, lines, self._places, self._cut = _parse(tail)
        self._raw, self.lines = raw[:stop], lines[:stop]
        self._code = code
        skipped = tail.raw.count(b"\n", 0, tail.begin) + self._cut
        self.has_beginning = (tail.is_whole or tail.begin > 0) and not self._cut
        """Whether the first lines of the attempt are among these."""
        self._first = skipped + 1 if tail.is_whole else None
        self._may_follow_end = functools.cache(lambda index: _may_follow_end(self.lines[index]))

    def until(self, stop: int) -> LogAnalysis:
        """Return the analysis of the lines before this one, as if the task had failed then."""
        return LogAnalysis(self._tail, 1, self._task, stop)

    def until_limit(self) -> LogAnalysis:
        """Return the analysis of the lines that had been printed when `timeouts.run` expired."""
        if self._tail.limit is None:
            return self
        printed = self._tail.raw[self._tail.begin : self._tail.limit]
        count = printed.count(b"\n") + (printed[-1:] not in (b"", b"\n")) - self._cut
        return self.until(bisect_left(self._places, count))

    def line_number(self, index: int) -> int:
        """Return the number of a line in the log, from 1; if unknown, from the end: -1 is last."""
        place = self._places[index]
        return place - self._places[-1] - 1 if self._first is None else self._first + place

    @cached_property
    def raised(self) -> Traceback | None:
        """The traceback of the exception that ended the program, else of one in another thread."""
        succeeded = self._code == 0  # an exception at the exit does not change the code
        latest = (
            each
            for each in reversed(self.tracebacks)
            if each.aside != LOGGING_ERROR
            and (self._code == 1 or not each.is_ignored or (succeeded and "atexit" in each.aside))
        )
        ends = list(itertools.takewhile(self._may_be_end, latest))
        main = next((each for each in ends if not each.aside), None)
        child = next((each for each in ends if each.is_uncaught_aside), None)
        handled = None if main is None else main.linked
        # An ImportError without a text says less than the one that it follows.
        is_bare = main is not None and str(main.message) == "ImportError"
        if main is not None and handled and (is_bare or self._is_of_handler(main, handled)):
            return handled
        said = "" if main is None else "\n".join(str(each.message) for each in main.chain())
        if main is None or (child is not None and OF_CHILD.search(said)):
            return child or (ends[0] if ends else None)
        return main

    def of_processes(self) -> Iterator[LogAnalysis]:
        """Yield the analyses up to each exception before the last that processes print in a row."""
        last = self.raised
        later = self._later_lines(last) if last is not None and last.linked is None else -1
        all_shown = [each for each in self.tracebacks if not each.is_ignored]
        said = "" if last is None else str(last.message)
        is_any = self._code == XARGS_FAILED
        of_command = [each for each in all_shown if is_any or self._is_of_command(each, said)]
        row = [e for e in all_shown if self._later_lines(e) == later or self._ends_rank(e)]
        handled = [each.linked for each in row + of_command]
        shown = (e for e in all_shown if e in row + of_command and e not in handled and e != last)
        for each in itertools.islice(shown, _MOST_PROCESSES):
            yield self.until(each.stop if each in row else self._message_ends[each.exception])

    def _is_of_command(self, which: Traceback, said: str) -> bool:
        """Whether a script printed it that a failed command has run."""
        script = _FRAME.match(self.lines[which.first + 1]) if OF_PROGRAM.search(said) else None
        names = re.findall(r"[\w.-]+", said)
        return script is not None and script[1].rpartition("/")[2] in names

    def _may_be_end(self, which: Traceback) -> bool:
        """Whether the lines after a traceback may come from a program that ends by it."""
        most = _MOST_LATER_LINES_EXIT_1 if self._code == 1 else _MOST_LATER_LINES
        later = self._later_lines(which)
        if which.is_uncaught_aside and self.waits_for_others:
            return True
        if not which.aside and self._trains_on_after(which):
            return self._ends_rank(which)
        if self._code and self._is_in_prose(which):
            return False
        # A process that is not its own may have ended it: its master prints more, and exits.
        is_at_exit = self._code == 1 or (bool(self._code) and which.is_uncaught_aside)
        is_at_exit = is_at_exit and later <= _MOST_LINES_AT_EXIT
        return later <= most or (is_at_exit and self.takes_no_step_after(which.exception))

    def _ends_rank(self, which: Traceback) -> bool:
        """Whether what runs several ranks says soon after a traceback that one of them failed."""
        end = self._message_ends[which.exception]
        at, is_late = next((each for each in self._failed_ranks if each[0] >= end), (0, False))
        most = _MOST_LATER_LINES_EXIT_1 if is_late else _MOST_LINES_OF_RANKS
        between = (index for index in range(end, at) if not self._may_follow_end(index))
        return self._code == 1 and at > 0 and sum(1 for _ in between) <= most

    @cached_property
    def _failed_ranks(self) -> list[tuple[int, bool]]:
        """Where the log says that a rank has failed, and whether only after all have ended."""
        said = ((at, _RANK_FAILED.match(line)) for at, line in enumerate(self.lines))
        return [(at, bool(found["is_late"])) for at, found in said if found is not None]

    def _is_in_prose(self, which: Traceback) -> bool:
        """Whether a text that the program prints has this traceback as an example."""
        around = (*self.lines[: which.first][-1:], *self.lines[which.exception + 1 :][:1])
        files = [*filter(None, map(_FRAME.match, self.lines[which.first : which.exception]))]
        # Python exits 1 by an exception: one of its own files has its whole path.
        is_other = self._code != 1 or not any(each[1].startswith("/") for each in files)
        is_alone = around == ("", "") and which.linked is None
        return is_alone and is_other and self._later_lines(which) > 0

    def _is_of_handler(self, last: Traceback, first: Traceback) -> bool:
        """Whether what handles an exception, or cleans up after it, has a mistake of its own."""
        tries = _FRAME.match(self.lines[first.first + 1])
        frames = [*filter(None, map(_FRAME.match, self.lines[last.first : last.exception]))]
        return (
            not last.is_caused
            and last.message.type in _MISTAKES
            and tries is not None
            and bool(frames)
            and (tries[1], tries[3]) == (frames[-1][1], frames[-1][3])
            and "raise " not in self._source_before(last.exception)
        )

    @property
    def error_after_logged(self) -> int | None:
        """The last line, if it is an error after lines that follow an exception that was logged.

        The program may have gone on, or have cleaned up.
        """
        last, which = self.last_line(), self.raised
        if which is None or last is None or ERROR.match(self.lines[last]) is None:
            return None
        was_logged = _LOGGED_ERROR.search(self.lines[max(0, which.first - 1)]) is not None
        return last if was_logged and self._later_lines(which) > _MOST_LATER_LINES else None

    def _trains_on_after(self, which: Traceback) -> bool:
        """Whether lines after a traceback show later steps than lines of their form before."""
        reached: dict[str, int] = {}
        end, later = self._message_ends[which.exception], 0
        for index, line in enumerate(self.lines):
            found = _COUNTED_STEP.match(line)
            if found is None or which.first <= index < end:
                continue
            form, step = _NUMBER.sub("#", line), int(found[1])
            if index >= end:
                later += step > reached.get(form, step)
            else:
                reached[form] = max(step, reached.get(form, step))
        return later > 1

    def takes_no_step_after(self, index: int) -> bool:
        """Whether no line after this one names a step or an epoch."""
        return not any(map(STEPS.search, self.lines[index + 1 :]))

    @cached_property
    def tracebacks(self) -> list[Traceback]:
        return tracebacks(self._raw, self.lines)[-_MOST_TRACEBACKS:]

    @cached_property
    def _message_ends(self) -> dict[int, int]:
        """Where the messages of the tracebacks end, by the indices of their exceptions."""
        return {each.exception: self._own_message_end(each) for each in self.tracebacks}

    def _later_lines(self, which: Traceback) -> int:
        """Count the lines after a traceback by which the program shows that it continued."""
        ends = self._message_ends
        shown = set(range(ends[which.exception]))
        for each in self.tracebacks:
            if each.first > which.exception:
                shown.update(range(each.first, ends[each.exception]))
        stop = len(self.lines) if self.crash is None else self.crash
        rest = (index for index in range(which.exception + 1, stop) if index not in shown)
        return sum(not self._may_follow_end(index) for index in rest)

    def _own_message_end(self, which: Traceback) -> int:
        """Guess where a message ends: by indentation, and by TensorFlow's own marks."""
        index = which.message.index + 1
        while index < which.stop and _OF_MESSAGE.match(self._raw[index]):
            index += 1
        if not type_of(self.lines[which.exception]).startswith(_TENSORFLOW):
            return index
        marks = (
            i + 1
            for i in range(which.stop - 1, which.exception, -1)
            if any(each in self.lines[i] for each in _MESSAGE_ENDS)
        )
        return next(marks, index)

    @property
    def ends_with_exception(self) -> bool:
        """Whether the program printed nothing after an exception that may have ended it."""
        raised = self.raised
        return raised is not None and not raised.is_ignored and self._later_lines(raised) == 0

    @cached_property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """The excerpts for the rules: the exception and its causes, else the last lines."""
        if self.raised is not None:
            return tuple(map(self._of_exception, self.raised.chain()))
        last = self.error_line()
        printed = () if last is None else (Excerpt(lines=((last, self.lines[last]),)),)
        return (*printed, *self._logged_errors, self._last_printed)

    @property
    def text(self) -> str:
        return "\n".join(line for excerpt in self.excerpts for _, line in excerpt.lines)

    def _of_exception(self, which: Traceback) -> Excerpt:
        own, found = type_of(self.lines[which.exception].strip()), which.message
        frames = range(which.first, which.exception)
        return Excerpt(
            types=tuple(filter(None, (own, found.type))),
            lines=tuple((index, self.lines[index]) for index in range(found.index, found.stop)),
            frames=tuple(
                (i, self.lines[i])
                for i in frames
                if _FRAME.match(self.lines[i]) or "fork(" in self.lines[i]
            ),
            source=self._source_before(which.exception),
            is_tensorflows=own.startswith(_TENSORFLOW),
        )

    def _source_before(self, exception: int) -> str:
        """Return the last line of code in a traceback, without its marks; empty if it has none."""
        above = (self.lines[at].strip() for at in range(exception - 1, -1, -1))
        line = next((each for each in above if each.strip("^~ ")), "")
        return "" if line.startswith('File "') else line

    @property
    def place_text(self) -> str:
        """The text of the excerpts, and of the line in the user's file that led to the error."""
        source = [] if self.frame is None else self.lines[self.frame[0] + 1 :][:1]
        return "\n".join([self.text, *source])

    @property
    def _logged_errors(self) -> tuple[Excerpt, ...]:
        last = range(max(0, len(self.lines) - _LAST_LINES), len(self.lines))
        return tuple(
            Excerpt(lines=((index, self.lines[index]),), is_tensorflows=True)
            for index in last
            if LOGGED.match(self.lines[index]) and not _HARMLESS_LOG.match(self.lines[index])
        )

    @property
    def _last_printed(self) -> Excerpt:
        """The last few lines: a shell may print more after the program's last one."""
        printed = [
            (index, line)
            for index, line in enumerate(self.lines)
            if line.strip() and not line.startswith(_MODULES)
            and not (LOGGED.match(line) or _OF_RUNNER.match(line))
        ]  # fmt: skip
        return Excerpt(
            lines=tuple(printed[-_LAST_PRINTED:]),
            before=tuple(line for _, line in printed[-_LAST_LINES:]),
            is_printed=True,
        )

    def native(self, count: int) -> Excerpt:
        """The last lines, those of logs included: native code may say in one what it lacks."""
        first = max(0, len(self.lines) - count)
        return Excerpt(lines=tuple(enumerate(self.lines))[first:], is_printed=True)

    def of_abort(self, first: int) -> Excerpt:
        is_tensorflows = _FATAL_LOG.match(self.lines[first]) is not None
        lines = [(first, self.lines[first])]
        for index in range(first + 1, len(self.lines) if is_tensorflows else 0):
            line = self.lines[index]
            if LOGGED.match(line) or _FATAL_PYTHON.match(line):
                break
            lines.append((index, line))
        return Excerpt(lines=tuple(lines), is_tensorflows=is_tensorflows)

    @cached_property
    def aborts(self) -> list[int]:
        """The indices of the last lines in which native code says why it ends the process."""
        # An older glibc prints hundreds of lines after its error.
        shown = itertools.takewhile(lambda line: line[:18] != "======= Backtrace:", self.lines)
        last = range(max(0, len([*shown]) - _LAST_ABORT), len(self.lines))
        return [index for index in last if _is_abort(self.lines[index])]

    @cached_property
    def crash(self) -> int | None:
        """The index of the line that Python prints when a signal kills it.

        Of several processes that got SIGABRT, the first one is the task's own: it is asked first.
        """
        found = [i for i, line in enumerate(self.lines) if _FATAL_PYTHON.match(line)]
        while len(found) > 1 and self.lines[found[-1]] == self.lines[found[-2]] == _ABORTED:
            found.pop()
        return found[-1] if found else None

    @property
    def crashed_after_exception(self) -> bool:
        """Whether an exception ended the program before the crash, while it was exiting.

        TensorFlow's threads may outlive the interpreter. Every task has PYTHONFAULTHANDLER: a
        crash before the exception would have left Python's own lines.
        """
        if self.raised is None:
            return False
        return self.crash is None or (
            self.crash > self.raised.exception
            and any("<no Python frame>" in line for line in self.lines[self.crash :])
        )

    @property
    def message(self) -> Message | None:
        """What the exception says, without what it is wrapped in; None if there is none."""
        return None if self.raised is None else self.raised.message

    @cached_property
    def frame(self) -> tuple[int, Frame] | None:
        """The deepest frame in the user's own files, with the index of its line."""
        link, outer = self.raised, None
        while link is not None:
            is_before = self.crash is not None and self.crash > link.exception
            stop = min(link.stop, self.crash or 0) if is_before else link.stop
            if "sub-exception" in self.lines[link.exception]:  # those of the first one
                stop = link.message.index
            own = self._own_frames(range(link.first, stop))
            if own:
                # TensorFlow's message ends with the call that built the graph: an earlier one.
                called = [each for each in own if each[0] < link.exception]
                is_earlier = own[-1][1].function == "<module>"
                outer = called[-1] if called and is_earlier else own[-1]
                if not link.repeats_cause:
                    break
            link = link.linked
        if self.raised is not None:
            if outer is None and not self.raised.aside:  # another thread's lines are in between
                own = self._own_frames(range(self.raised.first))[-1:]
                outer = own[0] if own and self.takes_no_step_after(own[0][0] + 1) else None
            return outer
        # When it crashes, Python prints the most recent call first.
        own = [] if self.crash is None else self._own_frames(range(self.crash, len(self.lines)))
        return own[0] if own else None

    @property
    def place(self) -> str:
        """Where in the user's code it failed, as `train.py:6 in main`; empty if unknown."""
        return "" if self.frame is None else str(self.frame[1])

    @property
    def sigterm(self) -> int | None:
        """The index of the last line, near the end, that says that it got SIGTERM."""
        last = reversed(list(enumerate(self.lines))[-_LAST_LINES:])
        found = (i for i, line in last if _SIGTERM.search(line) and not _HANDLER_SET.search(line))
        return next(found, None)

    @cached_property
    def _interrupted_frame(self) -> tuple[int, Frame] | None:
        """The deepest own frame in the thread that received the signal, with its line's index.

        Behind its end, a program waits for its other threads: that of the first one.
        """
        where = self._interrupted
        if self.waits_at_exit and self.threads_in:
            where = range(next(iter(self.threads_in.values())), where.stop)
        return next(iter(self._own_frames(where)), None)

    @property
    def interrupted_at(self) -> int | None:
        return None if self._interrupted_frame is None else self._interrupted_frame[0]

    @property
    def interrupted_in(self) -> str:
        """That frame, as `train.py:6 in main`; empty if there is none."""
        return "" if self._interrupted_frame is None else str(self._interrupted_frame[1])

    @cached_property
    def threads_in(self) -> dict[str, int]:
        """Where its process's other threads were in own files then, with the lines' indices."""
        end = len(self.lines)
        crash = end if self.crash is None else self.crash
        heads = [i for i in range(crash, end) if _THREAD.match(self.lines[i])]
        found: dict[str, int] = {}
        for first, stop in zip(heads, [*heads, end][1:], strict=True):
            own = self._own_frames(range(first, stop))
            if _FATAL_PYTHON.match(self.lines[first]):
                if first > crash:
                    break  # what its children have printed follows
            elif own and _CURRENT_THREAD not in self.lines[first]:
                found.setdefault(str(own[0][1]), own[0][0])
        return found

    @property
    def _interrupted(self) -> range:
        """The lines on the thread that received the signal; if that waits for a program, on its."""
        end = len(self.lines)
        crash = end if self.crash is None else self.crash
        current = [i for i in range(crash, end) if _CURRENT_THREAD in self.lines[i]]
        if len(current) > 1 and _RUNS_PROGRAM.search(self.lines[current[0] + 1]):
            del current[0]
        return range(next(iter(current), crash), end)

    @property
    def waits_for_others(self) -> bool:
        """Whether the program waited for its threads or processes when distrun asked."""
        inner = self.lines[self._interrupted.start : self.interrupted_at or 0]
        return any(map(_WAITS.search, inner))

    @property
    def waits_at_exit(self) -> bool:
        """Whether the program stood behind its end when distrun asked: its threads go on."""
        lines = map(self.lines.__getitem__, self._interrupted)
        shown = "\n".join(itertools.takewhile(lambda each: not _FATAL_PYTHON.match(each), lines))
        return self.crash is not None and _BEHIND_END.search(shown) is not None

    @property
    def forks_at(self) -> str:
        """Where it forked a child that stood somewhere else; empty: none has printed it."""
        starts = [i for i, line in enumerate(self.lines) if _CURRENT_THREAD in line]
        for first, stop in zip(starts, [*starts, len(self.lines)][1:], strict=True):
            if any("popen_fork.py" in self.lines[i] and "_launch" in self.lines[i]
                   for i in range(first, stop)):  # fmt: skip
                own = self._own_frames(range(first, stop))
                return str(own[-1][1]) if own else ""
        return ""

    def _own_frames(self, where: range) -> list[tuple[int, Frame]]:
        found = []
        for index in where:
            match = _FRAME.match(self.lines[index])
            if match is not None:
                frame = Frame(
                    match[1], int(match[2]), _CONVERTED.sub("", (match[3] or "<module>").strip())
                )
                if frame.is_own:
                    found.append((index, frame))
        return found

    def find_last(self, pattern: re.Pattern[str]) -> tuple[int, re.Match[str]] | None:
        """Return the last line in which a pattern is found, and the match."""
        searched = ((i, pattern.search(self.lines[i])) for i in reversed(range(len(self.lines))))
        return next(((index, found) for index, found in searched if found is not None), None)

    def last_line(self) -> int | None:
        """Return the index of the last line that is not empty and not TensorFlow's log.

        What its runner has printed is the last line only if there is no other.
        """
        found = None
        for index, line in reversed(list(enumerate(self.lines))):
            is_logged = LOGGED.match(line) or _CONTINUED.match(line)
            if not (is_logged or line.startswith((*_NOISE, _MODULES))):
                found = index if found is None else found
                if not _OF_RUNNER.match(line):
                    return index
        return found

    def error_line(self) -> int | None:
        """Return the last line near the end that says that it is an error, else the last line."""
        last = self.last_line()
        handled = [each.exception for each in self.tracebacks] if self.raised is None else []
        for index in range(last or 0, max(-1, (last or 0) - _LAST_LINES), -1):
            is_error = ERROR.search(self.lines[index]) and not LOGGED.match(self.lines[index])
            if is_error and index not in handled:
                return index
        for at, _ in self._failed_ranks[:1]:
            for index in range(at - 1, max(-1, at - _MOST_LINES_OF_RANKS), -1):
                line = self.lines[index]
                if line.strip() and not (_RULE.match(line) or STEPS.search(line)):
                    return index
        if last and _RULE.match(self.lines[last]):
            return 1 + max(
                (at for at in range(last - 1) if _RULE.match(self.lines[at])), default=-1
            )
        return last

    def said(self, index: int) -> Evidence:
        """Return as evidence a line with others of its sentence or list."""
        line, before = self.lines[index], range(index, index - _LAST_PRINTED, -1)
        first = next((each for each in before if not self._goes_on(each)), index)
        first = index if ERROR.search(line) else first
        after = range(index + 1, min(index + _LAST_PRINTED, len(self.lines)))
        rest = itertools.takewhile(self._goes_on, after if line.endswith((":", ",")) else ())
        text = " ".join(map(self.quote, (*range(first, index + 1), *rest)))
        return replace(self.evidence(first), text=text[:_LONGEST])

    def _goes_on(self, index: int) -> bool:
        """Whether a line goes on with the sentence or the list of the one before."""
        above = self.lines[index - 1] if index else ""
        is_other = not above.strip() or STEPS.search(above) or _RULE.match(above)
        return not is_other and (above.endswith((":", ",")) or bool(_ITEM.match(self.lines[index])))

    def evidence(self, index: int, mark: str = "") -> Evidence:
        """Return a line as evidence; of a long one, the part around `mark`."""
        line, text = self.line_number(index), self.quote(index, mark)
        return Evidence(task=self._task, source=Source.LOG, line=line, text=text)

    def evidence_at(self, index: int | None) -> tuple[Evidence, ...]:
        index = self.last_line() if index is None else index
        return () if index is None else (self.evidence(index),)

    def quote(self, index: int, mark: str = "") -> str:
        """Return a line to show; of a long one, the part around `mark`."""
        line = self.lines[index].strip()
        if _FRAME.match(self.lines[index]):
            line = _CONVERTED.sub("", line)
        start = 0
        if len(line) > _LONGEST and mark in line[_BEFORE_MARK:]:
            start = max(0, line.index(mark) - _BEFORE_MARK)
        cut = line[start : start + _LONGEST]
        return ("…" if start else "") + cut + ("…" if start + _LONGEST < len(line) else "")
