"""Reads progress from the lines that training loops print: `Epoch 3, loss: 0.3, accuracy: 0.9`.

Everybody writes such a line in another way, and other lines have numbers, too. So a line is
progress only if it names an epoch or a step and has a metric, or begins with one that has a total
or that a logger writes, or with a number as certain programs do, and only after a second line of
its form, the same but for the numbers, has a later epoch or step. An episode or a generation counts
as an epoch. The rows of a table are lines, too: its header names their numbers.
"""

from __future__ import annotations

import re
import unicodedata
from functools import partial

from distrun.tables import read_rows

_FLAGS = re.ASCII | re.IGNORECASE
_HINT = re.compile(
    r"\d(?:[\s/,|:\])]|epoch).{0,400}(?:loss|acc|ppl)|(?:loss|acc|ppl).{0,400}(?:epoch|step|iteration)"
    r"|(?:ep(?:och|isode(?: num)?|i)?|gen(?:eration)?|steps?|iter|iteration|batch|round|updates?"
    r"|frames?)['\"]?[\s:.=#\[(*]{0,8}\d"
    r"|\d(?:\]?\t|:\tlearn| avg\b| \|\||\s?%)|total_timesteps|loss.{1,40}\[\s{0,8}\d{1,9}/"
    r"|(?:[|\]━][^\w|]{0,12}|\d of\s{1,3})\d{1,9}[/)]"
    r"|\A\W{0,40}(?:epochs?|episode|(?:global_)?step|iter(?:ation)?)\W{1,40}[a-z]|\AE\s{1,9}#\s"
    r"|\A>\d|\Atick \d|between steps ",
    _FLAGS,
)
"""Each form has this, and the header of a table. To search for it is faster."""
_plain = partial(unicodedata.normalize, "NFKD")
_IN_ENGLISH = dict(_plain(row).split() for row in read_rows(__spec__, "words.txt"))
_FOREIGN = re.compile(
    rf"(?i)(?:第\s?(\d{{1,15}})\s?)?(?<![a-z])({'|'.join(_IN_ENGLISH)})(?![a-z])|共(?=\s?\d)"
)
_HINT_OF_FOREIGN = re.compile(r"(?i)epoc(?:a|he)|epoque|verlust|schritt")
_MOST_CHARACTERS = 512
_LOGGER = re.compile(
    r"\A(?:INFO:[\w.]{1,40}:|\[\d{1,5},\d{1,5}\]<std\w{3}>:"
    r"|(?:\[?(?:(?:\d{4}[-/])?\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d[\d.,]{0,8}"
    r"|[IW]\d{4} \d\d:\d\d[^\]]{1,60}\]|\[(?:rank|default)\d{1,5}\]"
    r"|\((?:\w{1,40} )?pid=\d{1,9}[^)]{0,40}\)|(?:[\w.]{1,40} - |\[[\w.]{1,40}\])?\[?INFO)"
    r"[\s:|\]-]{1,4}){1,5}"
)
"""What loggers, and runners of several processes, write before a line."""
_SHORT = re.compile(
    r"\A\W{0,8}(?:E\d{1,9}[\s,/|:]{1,4}[BSI]\d|(?:[Ee]poch|[Ss]tep|[Ii]ter|[Bb]atch)-\d{1,9}\b(?!\.\w))"
)
_OF_SHORT = re.compile(r"\b(?:(E)|([BSI]))(?=\d)|(?<=[a-z])-(?=\d)")
"""`E1 B200 loss 0.3`, and `Epoch-3: loss-0.7`."""
_MOST_FORMS = 32
_NUMBER = r"[-+]?\d{1,40}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?"
_ANY_NUMBER = re.compile(rf"{_NUMBER}|\b(?:nan|inf)\b", _FLAGS)
_WHOLE = r"(?:\d{1,3}(?:,\d{3}){1,4}(?!,?\d)|\d{1,15}(?!\d|[km]\b|e[-+]?\d))"
"""No number with a letter after it: `12k`, `1e3`."""
_TOTAL = rf"(?:\s{{0,2}}(?:/|\bof\b)\s{{0,8}}(?P<total>{_WHOLE}))?"
_WRAPPED = r"(?:(?:tf\.)?tensor\(|np\.\w{1,8}\(|\[)?"
_BETWEEN = rf"['\"]?(?:\(train\)| no\.)?[\s:=#\[(|*]{{0,8}}['\"]?{_WRAPPED}"
_EPOCH = re.compile(
    rf"(?<![a-z_])(?:(?:i_)?ep(?:och|isode(?: num)?|i|\.)?|gen(?:eration)?(?!{_BETWEEN}\d*\.\d))"
    rf"{_BETWEEN}(?P<count>(?!\d{{10}}){_WHOLE})"
    rf"(?P<fraction>\.\d{{1,9}})?{_TOTAL}",
    _FLAGS,
)
RATES = {"LR", "LEARNING_RATE"}
"""A table of learning rates has epochs and steps, too."""
_STEP = re.compile(
    r"(?<![a-z/])(?<!per[_ ])(?<!episode )(?:global[_ ]|time)?"
    r"(?:step|iters?|(?<![a-z] )it(?=(?::?\s{1,3}|=)\d)|iteration|batch|round|updates?"
    r"|(?<!\w )(?:num )?frames?|up\.)(?:s(?= ?[:=]))?"
    rf"{_BETWEEN}(?:\d{{1,9}}-)?(?P<count>{_WHOLE})(?:\.0{{1,9}})?(?!\.?\d|-\d){_TOTAL}",
    _FLAGS,
)
_COUNT_FIRST = re.compile(
    r"(?:\b(?:after|trained)\s{1,3}|\A\W{0,8}(?=\d{1,15} \w{4,10} (?:done|compl|finish)))"
    rf"(?P<count>{_WHOLE})(?P<total>)\s{{1,3}}"
    r"(?:training\s{1,3})?(?:step|iteration|batch|update)",
    _FLAGS,
)
"""`After 1000 steps, the loss is 0.1`, and `trained 120 batches, loss 0.3`."""
_COUNTS = re.compile(
    r"(?:\[|\||\A)\s{0,8}(?P<count>\d{1,15})\s?/\s{0,8}(?P<total>\d{1,15})"
    r"(?:\s?\(\s{0,3}\d{1,3}(?:\.\d{1,4})?%\))?\s{0,3}(?:\]|(?:batch|step|iter)\w{0,6}\s{0,3}\|"
    r"|(?=\(epoch|: episode))",
    _FLAGS,
)
"""`[640/60000 (1%)]`, `| 200/2928 batches |`, and `200/4450 (epoch 1)`."""
_DRAWN = r"(?:[|\[][^\w|\]]{5,400}[|\]]|[━╸╺]{5,400})[^\w|]{0,12}"
_BAR = re.compile(
    rf"(?:(?P<drawn>{_DRAWN})|\d%\s{{1,3}}\()(?P<count>\d{{1,15}})(?:/|\sof\s{{1,3}})"
    r"(?P<total>\d{1,15})(?(drawn)(?![\d/]|\s?\w?i?B\b)|\) \|)",
    _FLAGS,
)
"""`|███   | 40/100`, and `40% (40 of 100) |###   |`."""
_PAIRS = (
    re.compile(
        r"(?:\A\s{0,3}|\bTrain: )\[\s{0,4}(\d{1,6})"
        r"(?:,\s{1,8}|\]\s{1,8}(?=\d{1,9} \|\|)|/(\d{1,6})\]\s?\[)"
        r"(\d{1,9})(?:/(\d{1,9}))?(?:\]| \|\|)"
    ),
    re.compile(
        r"(?:epoch[\s:=]{0,3}|\btrain: )(\d{1,9})()[:,]?\s{1,8}\[?\s{0,8}(\d{1,15})\s?/\s?"
        r"(\d{1,15})",
        _FLAGS,
    ),
    re.compile(r"\A>(\d{1,6})(), (\d{1,9})/(\d{1,9}), \w{1,8}[=\[]\d"),
    re.compile(r"(?<![\w.])(\d{1,9})epoch\b()\D{1,20}\d{1,9}-(\d{1,9})batch\b", _FLAGS),
)
"""An epoch and a step: `[2,  4000]`, `[2/25][400/782]`, `epoch 001:    100 / 1102`, `>2, 7/9`."""
_NUMBERED = re.compile(
    r"(?:(?P<known>TimeHistory: .{1,60} between steps \d{1,15} and "
    r"|tick (?=\d+\s+kimg)|Updates (?=\d+, num timesteps ))|.{0,80}\] "
    r"|(?P<row>\|\s{1,8}(?:\w{1,12}/)?total_timesteps\s{1,24}\|))?"
    r"\s{0,3}\[?\s{0,8}(?P<count>\d{1,15})(?P<total>)(?(known)\b|(?(row)\s{1,24}\||(?:"
    r"\]\t[\w-]{1,40}(?:-|'s )[\w@-]{1,40}:|:\tlearn:|\t\w{1,12}/sec:"
    r"|: [\d.]{1,20}, [\d.]{1,20} avg\b|(?P<loss>[\]:](?=\s)| \|| \[)"
    r"(?=.{0,60}(?<!packet )loss\b.{0,60}[:=].{1,60}[:=]|.{1,60}[:=].{0,60}loss\b\s?[:=]))))",
    _FLAGS,
)
"""A first number without a name, by its program's form, or with a loss and another value behind it:
`12 [D loss: 0.6, acc.: 50%]`; or the row with the steps in a table of Stable-Baselines."""
_FRACTION_FIRST = re.compile(
    r"(?:.{0,80}\] )?(?:processed|train|(?:training )?progress:?(?: \d{1,3}(?:\.\d{1,4})?%)?)?"
    r"\s{0,8}\(?\s{0,4}(?P<count>\d{1,9})\s?/\s?(?P<total>\d{1,9})\)?[\s:|,-]{1,4}"
    r"(?:(?P<epoch>epochs?\b)|(?=[a-z]{0,12}[_ ]?(?:loss|reward)\b))",
    _FLAGS,
)
"""`1/10 epochs, loss 0.3`, `100/1000 loss: 0.5`, and `Progress: 10% (100/1000), loss: 0.5`."""
_COUNTS_FIRST = re.compile(
    r"[\s=>#@([]{0,6}(?:[iknt][:=]\s?)?(?:(?P<epoch>\d{1,9})[\s,|]{1,4})?(?P<step>\d{1,9})[\s,:|)\]]{1,4}"
    r"(?=(?:(?:train\w{0,3}|avg|[dg])[_ ])?(?:loss|acc(?:uracy)?)\b[\s:=]{1,4}[-\d])",
    _FLAGS,
)
"""`200 loss: 0.3`, and an epoch and a step: `3 200 loss: 0.3`."""
_PERCENT = re.compile(
    r"(?:\W{0,3}(?:[iwe]?\d|info\b)(?:(?!util|mem|disk|[cg]pu|acc|usage|pruned).){0,80}[\]:|-]\s{0,4})?"
    r"\W{0,9}(?P<word>(?:(?:training|overall|total|job|percent)\s)?(?:progress|train(?:ing)?|completed?"
    r"|done|finished|processed|epoch[\s:#]{0,3}\d{1,9}(?:\s?(?:/|of)\s?\d{1,9})?)\b[\s:=,\[(-]{0,8})?"
    r"(?:[\[|(][^\w\]|)]{3,400}[\]|)]\s{0,4})?(?P<percent>(?:100|\d{1,2})(?:\.\d{1,6})?)\s?%"
    r"(?(word).{0,200}|(?:[^\w]{1,400}|\s{0,4})(?:(?:complete|done|finish)\w{0,2}\b|eta\b.{0,40})?\W{0,9})\Z",
    _FLAGS,
)
"""Nothing but a share of the work: `47%`, `Progress: 47.0 %`, `[####    ] 47%`."""
_AT_STEP = re.compile(
    rf"(?P<name>loss|cost|accuracy|error)\b.{{0,40}}?(?:\b(?:at|for|after|in|on) |\()"
    r"(?:(?:step|epoch|iteration|batch)\s{1,3}\d{1,15}\)?|\d{1,15} (?:step|iteration|batche?)s)"
    rf"\s?(?:[:=]|is)\s{{0,6}}"
    rf"(?P<value>{_NUMBER}|nan|inf)(?![\w/:])",
    _FLAGS,
)
_METRIC = re.compile(
    r"(?<![\w@])(?:(?:mean|avg|average|running|total)[ _])?"
    r"(?P<name>(?:(?:train|training|val|valid|validation|test|eval|[dg])[ _])?[\w-]{0,24}?"
    r"(?:loss|acc|accuracy|auc|mae|mse|rmse|ppl|perplexity|f1(?!\d)|lr|learning_rate|ep_r(?!\w)"
    r"|(?<!time[ _])cost|elbo|reward|score|fitness|_error|_?return"
    r"|(?:best|bleu|dice|energy|entropy|err(?:or)?|iou|length|likelihood|nll|objective|precision|psnr|recall|residual|rew|ssim|wer)"
    r"(?=[\s:=]{1,4}[-+]?\d{1,15}\.))"
    r"(?:@\d|_(?!scale)[a-z]{1,12}\b| (?!scale)[a-z]{1,12}(?=\s?[:=]))?)"
    r"(?: on (?:[a-z]{1,12} ){1,3}(?=is\b))?"
    rf"(?:['\"],?)?\s{{0,4}}(?:[:=|]|is\b(?: =+>)?)?\s{{0,6}}(?:{_WRAPPED}|['\"])"
    rf"(?P<value>{_NUMBER}|nan|inf)(?![\w/:])",
    _FLAGS,
)
_RATE = r"(?:it|step|batch|example|sample|image|img)\w{0,3}/s\w{0,5}(?: per \w{1,8})?"
_BARE = re.compile(
    r"(?P<logger>.{0,80}[\]:|-]\s{1,4})?"
    r"[\W_]{0,40}(?:(?P<timed>time (?:taken )?for )|(?P<trains>train\w{0,3} )"
    r"|(?:start|begin|end|finish|runn|done)\w{0,4} (?:of |with )?)?(?:global[_ ])?"
    r"(?:epoch|episode|generation|step|iter|iteration|batch|round|update)[\s:=#\[(]{0,8}\d{1,15}"
    r"(?P<total>\s{0,2}(?:/|\bof\b)\s{0,8}\d[\d,]{0,15})?[\])]{0,2}:?"
    r"(?P<rest>[\s,|\[(]{0,4}(?:step|iter|batch)[\s:=#]{0,4}\d{1,15}(?:/\d{1,15})?[\])]?"
    r"|: training on \d{1,12} raw words.{1,200}|, remaining wall clock time: .{1,40}"  # GROMACS
    r"| finished after \d{1,9} (?:time)?steps"
    r"| done \(global step: \d{1,15}\)|, skipped=\d{1,9}, lr=.{1,200}"  # the last: DeepSpeed's
    r"|[\s,(.]{0,6}(?:(?:(?:per-step )?time(?: taken)?|elapsed|took|(?:(?:complet|finish)ed )?in"
    r"|is)[\s:=]{1,3}|\(|(?(timed)|(?!)))"
    r"(?:[\d.:]{1,20}\s?\w{0,7}\s?){1,3}\)?"
    rf"|(?:[\s,:|]{{1,4}}(?:{_RATE}[:=\s]{{1,9}}[\d.]{{1,20}}|[\d.]{{1,20}}\s?{_RATE}"
    r"|eta[:=\s]{1,3}[\d:.]{1,12}s?|output\s?:)){1,3})?"
    r"(?:\s{1,2}(?:complete|finish|done)(?:d|ed)?)?[\W_]{0,40}\Z",
    _FLAGS,
)
"""Only an epoch or a step, and how long it took, or how fast it goes: `=== Epoch 3 ===`."""
_CELLS = re.compile(r"\s{0,8}[|│,;]\s{0,8}|\t\s{0,8}|\s{2,}")
"""What is between two cells of a table, if they may have spaces."""
_RULED = re.compile(r"[|│,;\t]|[a-z] [a-z]", _FLAGS)
_WORDS = re.compile(r"\s+")
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_COUNTED = dict.fromkeys(("EPOCH", "EPOCHS", "EPISODE"), "EPOCH") | dict.fromkeys(
    ("STEP", "GLOBAL_STEP", "ITER", "ITERATION", "BATCH"), "STEP"
)
_OTHER_WORK = re.compile(
    r"\b(?:best|calibrat|config|(?:down|pre)?load|eval|export|generat|infer|patience|pipeline|predict"
    r"|prepar|preproc|profil|quanti|resum|restor|retry|sampl(?!es?/)|sav|stop|test|token|trac|valid|warm)",
    _FLAGS,
)
"""What a logger says where the number is none of the training's."""
_OF_TEST = re.compile(
    r"[^a-z]{0,80}(?:[a-z]{1,12}[^a-z]{1,20})?(?:eval\w{0,6}|valid\w{0,5}|val|test(?:ing)?|dev)\b"
    r"|[^a-z]{0,80}(?:(?!epoch|gen|step|iter|batch)[a-z]{1,12}[^a-z]{1,20})?"
    r"(?:best|(?:load|restor|resum)\w{0,5})\b"
    r"|.{0,80}\bepoch ?\((?:val|test)\)",
    _FLAGS,
)
"""The steps of a test, or of a former best, would be taken for those of the training."""


def read_values(line: str, *, is_logged: bool = False) -> dict[str, str] | None:
    """Return what a line says by the keys of a report: EPOCH, EPOCHS, STEP, STEPS and metrics.

    PERCENT is a share of the work. None if it does not look like progress. `is_logged`: a logger
    has written it.
    """
    line = line[:_MOST_CHARACTERS]
    bar = _BAR.search(line)
    if bar is not None and _OTHER_WORK.search(line, 0, bar.start()):
        return None
    numbered = _NUMBERED.match(line)
    of_test = _OF_TEST.match(line) if numbered is None or numbered["loss"] else None
    if of_test and not _EPOCH.match(line):
        return None
    metrics: dict[str, str] = {}
    for found in (*_METRIC.finditer(line), *_AT_STEP.finditer(line)):
        metrics.setdefault(re.sub(r"\W", "_", found["name"]).upper(), found["value"])
    pair = next(filter(None, (form.search(line) for form in _PAIRS)), None)
    keys = ("EPOCH", "EPOCHS", "STEP", "STEPS")
    values = {k: v for k, v in zip(keys, pair.groups() if pair else (), strict=False) if v}
    taken = -1  # the epoch's place: `Epoch: [3/90][ 10/391]`
    for key, forms in (
        ("EPOCH", (_EPOCH,)),
        ("STEP", () if of_test else (_BAR, _STEP, _COUNTS, _COUNT_FIRST)),
    ):
        matches = (match for form in forms for match in form.finditer(line))
        count = next((match for match in matches if match.start("count") != taken), None)
        if count is not None and key not in values:
            taken = count.start("count")
            values[key] = count["count"].replace(",", "")
            if count["total"]:
                values[f"{key}S"] = count["total"].replace(",", "")
    if numbered and not (values or of_test):
        values = {"STEP": numbered["count"]}
    values = values or ({} if of_test else _first_counts(line))
    share = {} if "STEP" in values or of_test else _share(line)
    bare = _BARE.match(line) if metrics.keys() <= RATES else None
    if bare is not None and _OTHER_WORK.search(bare["logger"] or ""):
        return None
    is_told = (
        bare is None
        or is_logged
        or "EPOCH" in values
        or any(map(bare.group, ("logger", "total", "rest", "trains")))
    )
    begins = "EPOCHS" in values and _EPOCH.match(line.lstrip("[(=-*#> "))
    has_both = {"EPOCH", "STEP"} <= values.keys() or begins
    has_both = has_both and not _OTHER_WORK.search(line)
    is_told &= bool(
        bar or bare or numbered or share or metrics.keys() - RATES or (has_both and not metrics)
    )
    counts = {key: str(int(value)) for key, value in values.items()} | share  # `Epoch: 0003`
    return {**metrics, **counts} if counts and is_told else None


def _first_counts(line: str) -> dict[str, str]:
    """Return the counts that a line begins with, if it does not name them."""
    counts, fraction = _COUNTS_FIRST.match(line), _FRACTION_FIRST.match(line)
    if fraction is not None:
        key = "EPOCH" if fraction["epoch"] else "STEP"
        return {key: fraction["count"], f"{key}S": fraction["total"]}
    found = {} if counts is None else counts.groupdict()
    return {key.upper(): count for key, count in found.items() if count}


def _share(line: str) -> dict[str, str]:
    share = _PERCENT.match(line)
    is_other = share is None or _OTHER_WORK.search(line, 0, share.start("percent"))
    return {} if share is None or is_other else {"PERCENT": share["percent"]}


class _Table:
    """The last table that was begun: a header that begins with an epoch or a step, and rows."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        """By column, the key of a report; empty where it is no metric."""
        self._between = _WORDS

    def read(self, line: str) -> dict[str, str] | None:
        """Return the values in a row; None if it is none, or a header."""
        text = line[:_MOST_CHARACTERS].strip(" \t\r|│")
        names = _CELLS.split(text)
        names = names if len(names) > 1 else text.split()
        names[:2] = ["EPOCH", "STEP"] if names[:2] == ["E", "#"] else names[:2]  # spaCy's
        keys = [re.sub(r"\W", "_", name).upper() for name in names]
        if keys and keys[0] in _COUNTED and not any(map(_ANY_NUMBER.fullmatch, names)):
            metrics = [key if _METRIC.fullmatch(f"{key}=0") else "" for key in keys]
            if any(metrics):
                self.keys = [_COUNTED.get(key, metrics[at]) for at, key in enumerate(keys)]
                self._between = _CELLS if _RULED.search(text) else _WORDS
                return None
        cells = self._between.split(text)
        row = dict(zip(self.keys, cells, strict=False))
        row.pop("", None)
        has_counts = all(_COUNT.fullmatch(row.get(key, "0")) for key in ("EPOCH", "STEP"))
        is_row = bool(row) and len(cells) == len(self.keys) and has_counts
        return row if is_row and all(map(_ANY_NUMBER.fullmatch, row.values())) else None


class ProgressLines:
    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[float, ...], dict[str, str]]] = {}
        """The place and the values of the last line of each form."""
        self._moved: set[str] = set()
        """The forms of which a line had a later epoch or step than the line before."""
        self._table = _Table()

    def read(self, line: str) -> list[dict[str, str]]:
        """Read a line; return the values of those that are progress now: none, it, or two."""
        if not line.isascii() or _HINT_OF_FOREIGN.search(line):
            plain = re.sub("[\u0300-\u036f]", "", _plain(line[:_MOST_CHARACTERS]))
            line = _FOREIGN.sub(
                lambda m: f"{_IN_ENGLISH.get((m[2] or '').lower(), '')} {m[1] or ''}", plain
            )
        logger = _LOGGER.match(line)
        is_logged = logger is not None and not _OTHER_WORK.search(logger[0])
        line = _LOGGER.sub("", line, count=1) if is_logged else line
        if _SHORT.match(line):
            line = _OF_SHORT.sub(lambda m: "epoch " if m[1] else "step " if m[2] else " ", line)
        has_hint = _HINT.search(line) is not None
        values = self._table.read(line) if has_hint or self._table.keys else None
        values = read_values(line, is_logged=is_logged) if values is None and has_hint else values
        if values is None:
            return []
        told = [each.end() for each in _METRIC.finditer(line[:_MOST_CHARACTERS])]
        drawn = re.sub(_DRAWN, "|", line[: told[-1] if told else _MOST_CHARACTERS])
        form = "".join(_ANY_NUMBER.sub("#", drawn).split())
        found = _EPOCH.search(line)
        epoch, step = (int(values.get(key, 0)) for key in ("EPOCH", "STEP"))
        place = (epoch, step, float(values.get("PERCENT") or (found and found["fraction"]) or 0))
        before = self._last.get(form)
        if before is None and len(self._last) >= _MOST_FORMS:
            return []
        self._last[form] = (place, values)
        if form in self._moved:
            return [values]
        if before is None or place <= before[0]:
            return []
        self._moved.add(form)
        return [before[1], values]
