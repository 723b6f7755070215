"""Reads progress from what tasks print: the bars and lines of Keras and tqdm, and other lines.

The forms are those of Keras 2 and 3 (`Progbar`, `fit`) and of tqdm 4 (`tqdm.format_meter`), as
their source code has them. Tests compare them with what these libraries print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from itertools import groupby
from typing import NamedTuple

from distrun.job.progress_lines import RATES, ProgressLines

_compile = partial(re.compile, flags=re.ASCII)
_MOST_CHARACTERS = 2048
"""How much of each line is read."""
_MOST_STATES = 64
"""How many states of bars are read in one piece of output: the last ones."""
_MOST_METRICS = 24
_LONGEST_VALUE = 64

EPOCH, EPOCHS, STEP, STEPS, ETA = "EPOCH", "EPOCHS", "STEP", "STEPS", "ETA"
EXAMPLES_PER_SEC = "EXAMPLES_PER_SEC"
_OF_BAR = (STEP, STEPS, ETA, EXAMPLES_PER_SEC, "PERCENT")
"""The keys that each bar sets again."""
_NO_METRICS = (EPOCH, EPOCHS, *_OF_BAR)
_OF_BEGUN_EPOCH = {EPOCH, EPOCHS, ETA, *RATES}
"""What may be known of an epoch at its beginning. A line with its loss comes at its end."""

_ESCAPE = _compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_STATE = _compile(r"((?:[^\r\n\x1b]|\x1b(?!\[A))*)(\r|\n|\x1b\[A|\Z)")
"""tqdm moves the cursor up after it has drawn a bar below another one."""
_HINT = _compile(r"%|\d/[\dU]|\d:\d\d|Epoch")
"""Every form has one of these. To search for them is faster."""

_TIME = r"(?:\d{1,9}s|\d{1,6}(?::\d\d){1,2})"
_DURATION = r"\d{1,9}(?:s|ms|us)/\w{1,20}"  # 25ms/step
_KERAS_EPOCH = _compile(r"Epoch (\d{1,9})/(\d{1,9})\s*\Z")
_KERAS_BAR = _compile(
    r"\s*(?P<step>\d{1,12})/(?:(?P<steps>\d{1,12})(?:"
    rf" [━=]{{1,200}} (?P<left3>{_TIME}) {_DURATION}"  # Keras 3; with = in an ASCII locale
    rf"| \[[=>.]{{1,200}}\] - (?:ETA: (?P<left2>{_TIME})|{_TIME}(?: {_DURATION})?)"  # Keras 2
    rf"| - {_TIME}(?: -)?(?: {_DURATION})?(?= - |\s*\Z)"  # verbose=2
    rf")|Unknown(?: -)? {_TIME}(?: {_DURATION})?)"
)
# Keras writes metrics with four decimals. Other text may follow at once.
_NUMBER = (
    r"[-+]?(?:\d{1,20}\.\d{4}(?:e[-+]\d{2,3})?|\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?|nan|inf)"
)
_KERAS_METRIC = _compile(rf" - (?P<name>[A-Za-z_][\w./-]{{0,63}}): (?P<value>{_NUMBER})")
_KERAS_DURATIONS = _compile(rf"(?: - {_DURATION}){{1,2}}")

_COUNT = r"(\d{1,15}(?:\.\d{1,15})?)([kMGTPEZY]?)"
_SCALES = {letter: 1000.0**power for power, letter in enumerate(("", *"kMGTPEZY"))}
_CLOCK = r"\d{1,6}(?::\d\d){1,2}"
_MOST_RUNS = 3
"""A bar is the part that is done, one character for a fraction, and the rest."""
_PERCENT = _compile(r"(?<![\d.])\d{1,3}%")
_BAR_AND_COUNTS = _compile(rf"(\|[^|]{{0,400}}\|)? {_COUNT}/{_COUNT}(?= \[|, |\s*\Z)")
_COUNT_AND_UNIT = _compile(rf"{_COUNT} ?([A-Za-z]\w{{0,20}})?\Z")
_TIMES = _compile(rf" \[({_CLOCK})(?:<(\?|{_CLOCK}))?(?:, *([^,\]]{{0,80}}))?")
_SPEED = _compile(rf"(?:\?|{_COUNT}) ?([^/]{{1,40}})/([^/]{{1,40}})\Z")
_TQDM_METRIC = _compile(r", ([A-Za-z_][\w./ -]{0,63})=([^,\]]{0,256})")
_TEXT_AFTER_SPEED = _compile(r"[^\]]{0,512}\]")
_EPOCH_WORD = _compile(
    r"\bepochs?\b(?:[\s:=#[(]{0,3}(\d{1,9})(?: ?(?:/|of) ?(\d{1,9}))?)?",
    flags=re.ASCII | re.IGNORECASE,
)
_EPOCH_ALONE = _compile(r"\s{0,9}\[?(\d{1,6})/(\d{1,6})\]?(?:\s\s|\s?:?\Z)")
"""A description that is `3/100`, or begins so: YOLO's `3/100      6.73G      1.08`."""
_OTHER_WORK = _compile(
    r"[\W\d]*(?:running )?(?:(?:down|up|pre)?load|dl\b|fetch|eval|valid|val\b|test|sanity|predict"
    r"|infer|generat|sampling|map\b|filter|token|prepro|prepar|extract|shuffl|sav|writ|copy|unpack"
    r"|verif|cach|calibrat|warm|resolv|convert|encod|class\s+images)",  # the last one is YOLO's
    flags=re.ASCII | re.IGNORECASE,
)
"""How the description of a bar begins that shows no training."""
_OTHER_WORK_OF_EPOCH = _compile(
    rf"{_OTHER_WORK.pattern}[a-z]*(?!\w|\W{{0,3}}\d|[ -](?:loss|acc))", flags=_OTHER_WORK.flags
)
"""How it goes on after the epoch: `Epoch 3 [Val]`, but not `Epoch 3 val: 0.91`."""
_BYTES = _compile(r"(?:[kMGT]i?)?B(?:ytes?)?\Z")
_DOWNLOADS = "Downloading data from "
"""Keras's `get_file` prints it before its bar."""
_EXAMPLES = _compile(r"(?:ex|examples?|im(?:a)?ge?s?|samples?)\Z")


class Reading(NamedTuple):
    """One line, or one state of a bar.

    Attributes:
        values: by the keys that a task may report by itself: EPOCH, EPOCHS, STEP, STEPS, LOSS,
            EXAMPLES_PER_SEC, ETA (seconds), and other metrics by their names in capitals. Empty
            if it shows other work than training, such as a download.
        is_finished: whether the bar has reached its total.
        end: where the bar ends in the plain text. Other output may follow.
    """

    values: dict[str, str]
    is_finished: bool
    end: int


class PrintedProgress:
    """The progress of one attempt of a task, by what it has printed so far.

    Attributes:
        values: see :class:`Reading`.
        first_step: the values when the first step was printed.
        is_moving: whether the last thing with progress is a bar that has not ended.
        epochs_done: how many epochs are complete, if any is named.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.first_step: dict[str, str] = {}
        self.is_moving = False
        self.epochs_done: float | None = None
        self._first_epoch = 1.0
        """0 where the first epoch is that: so tqdm counts, too."""
        self._lines: ProgressLines | None = ProgressLines()
        """None once Keras has printed its own: what its callbacks print counts otherwise."""
        self._has_lines = False
        """Whether a line of the program itself was progress."""
        self._downloads = False
        """Whether the bar that Keras draws next is that of `get_file`."""
        self._names_epochs = False
        """Whether `fit` has printed `Epoch 1/3`: it does not with a single epoch."""
        self._total = ""
        """How many steps the bar of this epoch has, as far as known."""
        self._is_before_bar = False
        """Whether the cursor is at the beginning of the bar's line: what follows overwrites it."""

    def read(self, output: str) -> bool:
        """Read a piece of the output; the same again changes nothing.

        The time is linear in its length.

        Returns:
            Whether it has any progress, or ends a bar.
        """
        states = _STATE.findall(output)
        hints = [at for at, (text, _) in enumerate(states) if _HINT.search(text)]
        may_be_bars = {*hints[-_MOST_STATES:], *(at for at in hints if "Epoch" in states[at][0])}
        has_any = False
        for at, (text, end) in enumerate(states):
            plain = plain_text(text)
            reading = read_line(plain) if at in may_be_bars else None
            is_kerass = _KERAS_BAR.match(plain) is not None
            if not is_kerass and plain.strip():
                self._downloads = plain.startswith(_DOWNLOADS)
            if reading is not None:
                values = {} if is_kerass and self._is_other_bar(reading) else reading.values
                if EPOCHS in values and STEP not in values:  # Keras's, or a bar of epochs
                    self._names_epochs, self._total = True, ""
                has_any |= bool(values) or self.is_moving
                self._add(values)
                if is_kerass and values and self._is_of_fit(values):
                    self._lines = None
                is_closed = end == "\n" and not plain[reading.end :].strip()
                self.is_moving = bool(values) and not (reading.is_finished or is_closed)
                self._is_before_bar = end == "\r"
            elif self.is_moving and self._is_overwritten(plain, end):
                has_any, self.is_moving = True, False
            elif self._lines is not None and end in {"\n", "\r"}:
                for values in self._lines.read(plain):
                    has_any = self._has_lines = True
                    self._add(values)
        return has_any

    def _is_other_bar(self, bar: Reading) -> bool:
        """Whether a bar of Keras is that of a download, or of `evaluate` or `predict`.

        These print nothing before their bars, which have some of the metrics of `fit`, or none.
        """
        steps, metrics = bar.values.get(STEPS, ""), bar.values.keys() - _OF_BAR
        if steps == "1" and not self._names_epochs and (self._has_lines or not metrics):
            return True  # of a prediction, or of one step of a loop that says itself where it is
        if self._downloads or not self._total or metrics - self.values.keys():
            self._total = steps if metrics and not self._downloads else ""
            return self._downloads
        is_shorter = int(steps or self._total) < int(self._total)
        return steps != self._total and (self._names_epochs or is_shorter or not metrics)

    def _is_of_fit(self, values: Mapping[str, str]) -> bool:
        """Whether a bar of Keras shows a training, not one of its steps, or a prediction."""
        return self._names_epochs or (values.get(STEPS) != "1" and not values.keys() <= {*_OF_BAR})

    def _is_overwritten(self, plain: str, end: str) -> bool:
        """Whether a state without a bar overwrites the bar: with spaces, or with a whole line.

        tqdm never draws a bar with `leave=False` at its total: it overwrites the bar with spaces.
        """
        is_blank = end == "\r" and plain != "" and not plain.strip(" ")
        return is_blank or (end == "\n" and self._is_before_bar)

    def _add(self, values: Mapping[str, str]) -> None:
        is_new_epoch = values.get(EPOCH, "") not in ("", self.values.get(EPOCH))
        replaced = {*values, *(_OF_BAR if STEP in values or is_new_epoch else ())}
        merged = {key: value for key, value in self.values.items() if key not in replaced}
        merged.update(values)
        metrics = [key for key in merged if key not in _NO_METRICS]
        for key in metrics[:-_MOST_METRICS]:
            del merged[key]
        self.values = merged
        if EPOCH in values:
            self._first_epoch = min(self._first_epoch, float(values[EPOCH]))
            is_complete = not values.keys() <= _OF_BEGUN_EPOCH and STEP not in merged
            self.epochs_done = float(values[EPOCH]) - self._first_epoch + is_complete
        if STEP in merged and not self.first_step:
            self.first_step = merged


def plain_text(text: str) -> str:
    """Return the beginning of a line, without colours and backspaces."""
    text = text[:_MOST_CHARACTERS]
    return (_ESCAPE.sub("", text) if "\x1b" in text else text).replace("\b", "")


def without_bar(text: str) -> str:
    """Return what follows a bar on its line, with its colours; without that, the whole text."""
    plain = plain_text(text)
    reading = read_line(plain)
    if reading is None or not plain[reading.end :].strip():
        return text
    at, left = 0, reading.end
    for escape in _ESCAPE.finditer(text):
        if escape.start() - at > left:
            break
        left -= escape.start() - at
        at = escape.end() if left else escape.start()
        if not left:
            break
    return text[at + left :].lstrip(" ")


def read_line(line: str) -> Reading | None:
    """Return the progress in one line of plain text; None if it is other output."""
    epoch = _KERAS_EPOCH.match(line)
    if epoch is not None:
        return Reading({EPOCH: epoch[1], EPOCHS: epoch[2]}, True, epoch.end())
    return _read_keras(line) or _read_tqdm(line)


def _read_keras(line: str) -> Reading | None:
    bar = _KERAS_BAR.match(line)
    if bar is None:
        return None
    step, steps = bar["step"], bar["steps"]
    values = {STEP: step}
    is_finished = steps is not None and int(step) >= int(steps)
    if steps is not None:
        values[STEPS] = steps
    left = bar["left3"] or bar["left2"]
    if left is not None and not is_finished:  # a bar of Keras 3 ends with the time that it took
        values[ETA] = _seconds(left)
    metrics, end = _metrics(_KERAS_METRIC, line, bar.end())
    durations = _KERAS_DURATIONS.match(line, end)
    return Reading({**metrics, **values}, is_finished, durations.end() if durations else end)


def _read_tqdm(line: str) -> Reading | None:
    for percent in _PERCENT.finditer(line):
        counts = _BAR_AND_COUNTS.match(line, percent.end())
        if counts is None:
            continue
        description = line[: percent.start()].strip()
        bar, number, scale, total, total_scale = counts.groups()
        step, steps = _scaled(number, scale), _scaled(total, total_scale)
        is_cut = counts.end() == len(line.rstrip())  # by a narrow screen: perhaps in its total
        share = 100 * float(step) / (float(steps) or 1.0)
        is_right = abs(share - int(percent[0][:-1])) <= (1 if is_cut or not scale else 10)
        has_bar = bar is None or len(list(groupby(bar[1:-1]))) <= _MOST_RUNS
        if (bar is None and is_cut) or not (is_right and has_bar and description[-1:] in ("", ":")):
            return None
        return _tqdm_reading(line, description, step, steps, counts.end())
    end = line.find(" [")
    description, _, text = line[: max(0, end)].rpartition(": ")
    count = _COUNT_AND_UNIT.match(text.strip())
    times = None if count is None else _TIMES.match(line, end)
    if count is None or times is None or _SPEED.match((times[3] or "").strip()) is None:
        return None
    return _tqdm_reading(line, description, _scaled(count[1], count[2]), None, end)


def _tqdm_reading(line: str, description: str, step: str, steps: str | None, end: int) -> Reading:
    times = _TIMES.match(line, end)
    unit, values = "", {}
    if times is not None:
        end = times.end()
        speed = _SPEED.match((times[3] or "").strip())
        if speed is not None:
            number, scale, of, per = speed.groups()
            unit = of.strip() if per == "s" else per.strip()
            rate = float(number or 0) * _SCALES[scale or ""]
            if _EXAMPLES.match(unit) and rate > 0:
                values[EXAMPLES_PER_SEC] = f"{rate if per == 's' else 1 / rate:.2f}"
        if times[2] not in (None, "?") and step != steps:
            values[ETA] = _seconds(times[2])
    metrics, end = _metrics(_TQDM_METRIC, line, end)
    closing = _TEXT_AFTER_SPEED.match(line, end)
    if times is not None and closing is not None:
        end = closing.end()
    epoch = _EPOCH_WORD.search(description) or _EPOCH_ALONE.match(description)
    is_other = _OTHER_WORK.match(description) or (
        epoch is not None and _OTHER_WORK_OF_EPOCH.match(description, epoch.end())
    )
    if is_other or _BYTES.match(unit):
        return Reading({}, step == steps, end)
    of_epochs = unit in ("epoch", "epochs") or (epoch is not None and epoch[1] is None)
    keys = (EPOCH, EPOCHS) if of_epochs else (STEP, STEPS)
    values |= {key: value for key, value in zip(keys, (step, steps), strict=True) if value}
    if epoch is not None and not of_epochs:
        values |= {EPOCH: epoch[1], **({EPOCHS: epoch[2]} if epoch[2] else {})}
    return Reading({**metrics, **values}, step == steps, end)


def _metrics(form: re.Pattern[str], line: str, at: int) -> tuple[dict[str, str], int]:
    """Return the metrics that follow each other from a position on, and where they end."""
    found: dict[str, str] = {}
    while (metric := form.match(line, at)) is not None:
        at = metric.end()
        key = re.sub(r"\W", "_", metric[1]).upper()
        value = metric[2].strip()
        if value and key not in (*_OF_BAR, "V_NUM") and len(found) < _MOST_METRICS:
            found[key] = value[:_LONGEST_VALUE]
    return found, at


def _scaled(number: str, scale: str) -> str:
    """Return a count of tqdm without its scale: 1200000 for 1.20M."""
    value = float(number) * _SCALES[scale]
    return f"{value:.0f}" if scale or value.is_integer() else number


def _seconds(clock: str) -> str:
    seconds = 0
    for part in clock.rstrip("s").split(":"):
        seconds = seconds * 60 + int(part)
    return str(seconds)
