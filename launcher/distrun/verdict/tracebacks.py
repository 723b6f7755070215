"""The tracebacks in a log: how they are linked, and what the exception that ends each says.

TensorFlow and Keras wrap error messages in others: the line that says what is wrong is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from distrun.frozen import Frozen
from distrun.verdict.traceback_forms import START

LOGGED = re.compile(r"[IWEF]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] ")
"""The beginning of a line of TensorFlow's own log. Such lines may interrupt a traceback."""
LOGGING_ERROR = "--- Logging error ---"
"""Python's logging prints why a message was not written, and goes on."""
ASIDE = re.compile(
    rf"{LOGGING_ERROR}|Exception (?:ignored |in thread )|Error in atexit\._run_exitfuncs:"
    r"|Error in sys\.excepthook:|Process \S+:$"
    r"|.{0,80}Exception in (?:thread .+:|initializer:|worker process)$"
)
"""The line above a traceback that is not the main thread's."""
_IGNORED = re.compile(rf"{LOGGING_ERROR}|Exception ignored |Error in |.*/resource_tracker\.py")
_SPAWNED = re.compile(
    r'\s+File ".*/multiprocessing/(?:spawn|forkserver|process|resource_tracker)\.py", line \d+, in '
)
"""The first or second frame of a process, also of one that could not import the script."""
_BAR_LINE = re.compile(r"[^|]{0,80}\d%\|[^|]{0,300}\|[^|\[]{0,40}\[[^\]]{0,200}\]")
BAR = re.compile(rf"{_BAR_LINE.pattern}(?=  File \"|    \S|[\w.]+(?:Error|Exception)\b)")
"""A bar of tqdm that another thread has written before a line of a traceback."""
_BETWEEN = (LOGGED, ASIDE, _BAR_LINE, re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):"))
"""What others may write between the lines of a traceback."""
_GROUP_START = "Exception Group Traceback (most recent call last):"
_HANDLING = "During handling of the above exception, another exception occurred:"
_CAUSE = "The above exception was the direct cause of the following exception:"
_LINKS = {_HANDLING, _CAUSE}
GROUP = re.compile(r"^ +[|+] ?(?!-)")
"""The prefix of each line of an ExceptionGroup."""
_IN_GROUP = re.compile(r"^\s*[|+]")
_PLACED = re.compile(r"File \"|\S:\d+\b")
"""What a frame has."""
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
"""Python prints these without a traceback if they are in the program itself."""
_MOST_SYNTAX_LINES = 4
"""The place of a syntax error, its line and a mark are above it."""
_IN_CODE = ("in user code:", "in converted code:")
"""AutoGraph's. The lines of the program follow, then the error, all with one indentation."""
_NODE = "Detected at node"
"""Where the program made an operation. The indented lines that follow name that place."""
_WRAPPERS = re.compile(
    r"Exception encountered when calling |.*\bGraph execution error:$|.*\bError encountered:$"
    r"|\d+ root error\(s\) found\.$|Node: ['{]|<stack traces unavailable>$|From /job:[\w/:]+:$"
    r"|The above exception was raised while |An error occurred while calling \w+\.\w+\.$"  # Py4J
)
"""Lines of which the next one that is not empty says more."""
_LED = re.compile(
    r"\d+ validation errors? for \S+$"  # Pydantic's
    r"|while (?:scanning|parsing) |mapping values are not allowed here$|NCCL error in: "
    r"|Error when deserializing class |[A-Z][a-z]+$"
    r"|.+(?: attributes | body '){$"
)
"""What is wrong follows in the next lines."""
_MOST_ADDED = 4
"""How many lines a message has at most, of which the first one does not say what is wrong."""
_MORE = "For further information visit "
_REMEDY = re.compile(r"\. Consider .+|Did you mean .+")
"""A line after lines of values in a message, which says what to do."""
_MOST_VALUES = 40
_OF_OTHERS = re.compile(r"\(\d+ sub-exceptions?\)$|\bRayTaskError\(|in its creation task, ray::")
"""The exceptions of a group, or of a process of Ray, follow."""
_FRAME = re.compile(r"File \"|\S+:\d+ \S+|relative to ")
ARGUMENTS = re.compile(r"\s*(?:Call a|A)rguments received by |\s*Received: ")
"""What the failed call was given follows; the error is above."""
_TYPE = re.compile(r"[A-Za-z_][\w.<>]*(?=:|$)")
_TYPED = re.compile(r"((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning)): (.*)")
_ANY_TYPED = re.compile(r"([A-Za-z_][\w.]*):(?: (.*)|$)")
_PREFIX = re.compile(
    r"\{\{function_node [^}]*\}\} |\(\d+\) [A-Za-z_ ]+: +"
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+: "
    r"|Collective ops is aborted by: (?=Collective |Shape mismatch |Device |Incons)"
)
"""What TensorFlow puts before an error: where in a graph it arose."""

_SUFFIX = re.compile(r" \[Op:\w+\](?: name:.*)?$")
_OF_KERAS = re.compile(
    r"^Unable to automatically build the model|could not be deserialized properly"
)
_ENCOUNTERED = "Exception encountered:"
_ESCAPE = re.compile(r"\\x1b\[\d*m")
_QUOTES = "\"'"
_ARRAY = re.compile(r"\[\[[\]\[\s\d.,e+\-nainf…]{24,}\]\]?|\[\[[\]\[\s\d.,e+\-nainf]{24,}\Z")
_OF_ARRAY = re.compile(r"\s*\[{0,8}\s*(?:[-+]?[\d.]|nan|inf)")
_MOST_LINES_OF_ARRAY = 400
"""NumPy prints at most 1,000 values."""


class Message(Frozen, kw_only=True):
    """The message of an exception, without what it is wrapped in.

    Attributes:
        index: the line that says what is wrong.
        stop: the first line after it.
        type: the type of the exception that says it, with its module.
        text: that line without the operation's name; empty if the exception has no message.
    """

    index: int
    stop: int
    type: str
    text: str

    def __str__(self) -> str:
        name = self.type.rpartition(".")[2]
        return ": ".join(filter(None, (name, self.text)))


class Traceback(Frozen, kw_only=True):
    """A traceback as indices of lines.

    Attributes:
        first: its first line.
        exception: the line that names the exception.
        stop: the first line after the exception's message.
        message: what the exception says, without what it is wrapped in.
        aside: the line above it, if that says that the main thread did not end by it.
        linked: the exception that was handled when this one was raised.
        is_caused: whether that is its direct cause.
    """

    first: int
    exception: int
    stop: int
    message: Message
    aside: str = ""
    linked: Traceback | None = None
    is_caused: bool = False

    @property
    def is_ignored(self) -> bool:
        """Whether Python only mentions it and continues, mostly while it exits."""
        return _IGNORED.match(self.aside) is not None

    @property
    def is_uncaught_aside(self) -> bool:
        """Whether it ended a thread, a process, or a function that was to be called at the exit."""
        return "atexit" in self.aside or (self.aside != "" and not self.is_ignored)

    @property
    def repeats_cause(self) -> bool:
        """Whether it raises again what another process has raised: its cause says where."""
        linked = self.linked if self.is_caused else None
        return linked is not None and str(linked.message) == str(self.message)

    def chain(self) -> Iterator[Traceback]:
        link: Traceback | None = self
        while link is not None:
            yield link
            link = link.linked if link.is_caused else None


def tracebacks(raw: Sequence[str], lines: Sequence[str]) -> list[Traceback]:
    """Return all tracebacks of a log in order. `lines` are those of `raw` without group prefix."""
    found: list[Traceback] = []
    within = ""
    for first, stop in _spans(raw, lines):
        exception = _exception(lines, first, stop)
        if exception is None:
            continue
        if not (_TYPED.match(lines[exception]) or any(map(_PLACED.search, lines[first:exception]))):
            continue  # prose
        above = _line_above(lines, first)
        linked = found[-1] if found and above in _LINKS else None
        spawned = next(filter(_SPAWNED.match, lines[first + 1 : first + 3]), "")
        aside = above if ASIDE.match(above) else within or spawned
        # Of processes that fail at once, the lines are mixed.
        within = next(filter(ASIDE.match, lines[first + 1 : exception]), "")
        is_group = _GROUP_START in lines[first]
        end = stop if is_group else _end_of_message(lines, exception, stop)
        found.append(
            Traceback(
                first=first,
                exception=exception,
                stop=end,
                message=unwrap(lines, exception, end),
                aside=linked.aside if linked else aside,
                linked=linked,
                is_caused=above == _CAUSE,
            )
        )
    return sorted([*found, *_syntax_errors(lines, found)], key=lambda each: each.first)


def _spans(raw: Sequence[str], lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return from where to where each traceback may reach; a group is one traceback."""
    starts: list[int] = []
    inside = False
    for index, line in enumerate(lines):
        inside = inside and _IN_GROUP.match(raw[index]) is not None
        if START in line and not inside:
            starts.append(index)
        inside = inside or _GROUP_START in line
    return list(zip(starts, [*starts, len(lines)][1:], strict=True))


def _exception(lines: Sequence[str], first: int, stop: int) -> int | None:
    """Return the first line that is not indented more than the traceback's first line.

    One without a type, or after which the frames go on, is taken only if there is no other: another
    thread or process has written it.
    """
    before = lines[first].partition(START)[0]
    prefix = before if before.isspace() else ""
    between = None
    for index in range(first + 1, stop):
        line = lines[index].removeprefix(prefix)
        if line.startswith("Fatal Python error: "):  # it was interrupted
            break
        if line and not line[0].isspace() and not any(each.match(line) for each in _BETWEEN):
            after = (lines[each].removeprefix(prefix) for each in range(index + 1, stop))
            indented = takewhile(lambda each: each[:1].isspace(), after)
            if _TYPED.match(line) or (
                type_of(line) and not any(each.startswith('  File "') for each in indented)
            ):
                return index
            between = between or index
    return between


def _line_above(lines: Sequence[str], first: int) -> str:
    above = (lines[index].strip() for index in range(first - 1, -1, -1))
    return next((line for line in above if line not in ("", START) and not LOGGED.match(line)), "")


def _end_of_message(lines: Sequence[str], exception: int, stop: int) -> int:
    """Return where a message ends: at TensorFlow's log lines, or at another traceback."""
    for index in range(exception + 1, stop):
        line = lines[index]
        if LOGGED.match(line) or ASIDE.match(line) or line.strip() in _LINKS:
            return index
    return stop


def _syntax_errors(lines: Sequence[str], found: list[Traceback]) -> Iterator[Traceback]:
    shown = {index for each in found for index in range(each.first, each.exception + 1)}
    errors = [i for i, line in enumerate(lines) if _SYNTAX.match(line) and i not in shown]
    for index, following in zip(errors, [*errors, len(lines)][1:], strict=True):
        stop = _end_of_message(lines, index, following)
        above = range(index - 1, max(index - _MOST_SYNTAX_LINES, -1), -1)
        first = next((i for i in above if lines[i].startswith('  File "')), index)
        message = unwrap(lines, index, stop)
        yield Traceback(first=first, exception=index, stop=stop, message=message)


def type_of(line: str) -> str:
    """Return the type, with its module, in a line that names an exception."""
    match = _TYPE.match(line)
    return match[0] if match is not None else ""


def unwrap(lines: Sequence[str], first: int, stop: int) -> Message:
    """Return what an exception says. `first`: the line that names it; `stop`: its message's end."""
    line = lines[first].strip()
    kind = type_of(line)
    text = line[len(kind) :].removeprefix(":").strip() if kind else line
    is_group = "sub-exception" in text
    index: int | None = first
    last = first
    while index is not None:
        last = index
        if text.endswith(_IN_CODE):
            index = _after_frames(lines, index + 1, stop)
            pattern = _ANY_TYPED
        else:
            index = _after_wrapper(lines, index, stop, text)
            pattern = _TYPED
        if index is not None:
            text = lines[index].strip().removeprefix(": ")
            match = pattern.match(text)
            kind, text = (match[1], match[2] or "") if match is not None else (kind, text)
    if "\\n" in text and _WRAPPERS.match(text.lstrip(_QUOTES)):
        # A KeyError shows its message as Python writes a string: on one line.
        shown = _ESCAPE.sub("", text.strip(_QUOTES)).split("\\n")
        inner = unwrap(shown, 0, len(shown)).text
        text = repr(inner) if kind == "KeyError" else inner
    if text.endswith(":") or _LED.match(text):
        rest = (each.strip() for each in lines[last + 1 : stop] if _MORE not in each)
        led = text if text.endswith("{") else text.rstrip(":") + ":"
        most = _MOST_ADDED + ("validation errors" in led)
        text = " ".join([led, *filter(None, rest)][:most])
    if _ARRAY.search(text):
        text = _without_arrays(text, lines[last + 1 : min(stop, last + _MOST_LINES_OF_ARRAY)])
    after = map(_REMEDY.match, lines[last + 1 : min(stop, last + 1 + _MOST_VALUES)])
    if (remedy := next(filter(None, after), None)) is not None and remedy[0] not in text:
        text = f"{text} {remedy[0].removeprefix('. ')}"
    if is_group:
        text = "; ".join([text, *filter(_TYPED.match, lines[last + 1 : stop])])
    end = (each for each in range(last + 1, stop) if ARGUMENTS.match(lines[each]))
    return Message(index=last, stop=next(end, stop), type=kind, text=without_operation(text))


def _without_arrays(text: str, rest: Sequence[str]) -> str:
    """Return a message without the values in it: what is wrong with them stands behind them."""
    whole, depth = [text], text.count("[") - text.count("]")
    for line in rest:
        if depth <= 0 or not _OF_ARRAY.match(line):
            break
        whole.append(line.strip())
        depth += line.count("[") - line.count("]")
    return _ARRAY.sub("[[…]]", " ".join(whole) if depth <= 0 else text)


def without_operation(text: str) -> str:
    """Return an error without what TensorFlow puts around it, or the Java of Spark before it."""
    text, start = text.removeprefix(": "), 0
    while match := _PREFIX.match(text, start):
        start = match.end()
    return _SUFFIX.sub("", text[start:])


def _after_wrapper(lines: Sequence[str], index: int, stop: int, text: str) -> int | None:
    """Return the line that says more than the one at `index`; None if that says it itself."""
    if not text and lines[index].rstrip().endswith(":"):  # a message that begins with a new line
        return next((i for i in range(index + 1, stop) if re.search(r"\w", lines[i])), None)
    if text.startswith(_NODE):
        depth = _depth(lines[index])
        rest = (i for i in range(index + 1, stop) if lines[i].strip())
        return next((i for i in rest if _depth(lines[i]) <= depth), None)
    if _OF_OTHERS.search(text):
        ends = (i for i in range(index + 1, stop) if _TYPED.match(lines[i]))
        return next((i for i in ends if not _LINKS & {*lines[i + 1 : i + 3]}), None)
    if _OF_KERAS.search(text):
        rest = (i for i in range(index + 1, stop) if lines[i].startswith(_ENCOUNTERED))
        return next((i + (lines[i] == _ENCOUNTERED and i + 1 < stop) for i in rest), None)
    if _WRAPPERS.match(text.lstrip(_QUOTES)) and "\\n" not in text:
        return next((i for i in range(index + 1, stop) if lines[i].strip()), None)
    return None


def _after_frames(lines: Sequence[str], first: int, stop: int) -> int | None:
    """Return the first line that is indented like the frames at `first` and is none itself."""
    depth = None
    for index in range(first, stop):
        line = lines[index]
        if not line.strip():
            continue
        depth = _depth(line) if depth is None else depth
        if _depth(line) < depth:
            return None
        if _depth(line) == depth and not _FRAME.match(line.strip()):
            return index
    return None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
