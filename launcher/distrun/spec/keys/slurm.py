"""The keys of `slurm`."""

from __future__ import annotations

import re

from distrun.spec.keys.common import VERBATIM, count, list_hint
from distrun.spec.problems import quoted
from distrun.spec.scalars import Boolean, Duration, Integer, Size, Text
from distrun.spec.schema import Key, ListOf, MapOf, MappingSchema, OneOf

_OPTION_PATTERN = r"[a-z][a-z0-9-]*"
_GPUS_PATTERN = r"[A-Za-z0-9_.-]+:[0-9]{1,4}"
_SAME_NAME = (
    *("partition", "account", "qos", "nodes", "time", "exclusive", "constraint", "requeue"),
)
_OWN_KEYS = {
    **dict(zip(_SAME_NAME, _SAME_NAME, strict=True)),
    "gpus-per-node": "gpus_per_node",
    "cpus-per-task": "cpus_per_task",
    "mem": "mem_per_node",
    "no-requeue": "requeue",
    "signal": "signal_before_end",
}
"""Options of sbatch for which there is a key."""
_SET = ("job-name", "ntasks", "ntasks-per-node", "open-mode", "output", "error", "no-kill", "chdir")
"""Options that distrun sets itself, or that would move what it reads."""
_NO_JOB = ("wrap", "parsable", "test-only", "wait", "help", "usage", "version", "quiet", "verbose")
_NO_LINES = r"[^\n\r]+"


def _option_problem(name: str) -> str | None:
    """Return what is wrong with the name of an option of sbatch, or None."""
    if name == "array":
        return "makes a job array, which distrun does not support; submit each job by itself"
    if name in _OWN_KEYS:
        return f"has a key of its own; write slurm.{_OWN_KEYS[name]}"
    if name in _SET:
        return "is set by distrun itself; remove it"
    if name in _NO_JOB or not re.fullmatch(_OPTION_PATTERN, name):
        return "is no option of a job; write a long one of sbatch(1) without dashes, e.g. comment"
    return None


def _word_problem(text: str) -> str | None:
    """Return what is wrong with a value in a line of the batch script, or None."""
    if re.fullmatch(_NO_LINES, text):
        return None
    return f"must be on one line, not {quoted(text)}"


def _word(expected: str) -> Text:
    return Text(expected=expected, verbatim=True, least=1, pattern=_NO_LINES, check=_word_problem)


_REFUSED = "|".join(("array", *_OWN_KEYS, *_SET, *_NO_JOB))
_OPTIONS = MapOf(
    value=Text(
        expected=VERBATIM.expected, verbatim=True, pattern=r"[^\n\r]*",
        check=lambda text: _word_problem(text) if text else None,
    ),
    expected="a mapping such as {comment: night, mail-type: END}",
    noun="option",
    name_pattern=f"^(?!(?:{_REFUSED})$){_OPTION_PATTERN}$",
    check_name=_option_problem,
)  # fmt: skip
_SETUP = ListOf(
    item=Text(expected="a line of shell", least=1),
    expected="a list such as ['module load cuda']",
    noun="line",
    text_hint=lambda text: list_hint(f"'{text}'") if "'" not in text else "",
)
SLURM_JOB = MappingSchema(
    expected="a mapping such as {partition: gpu, time: 12h}",
    keys=(
        Key("partition", _word("a partition's name"), ("gpu",), "the cluster's default",
            help="The partition whose nodes run the job."),
        Key("account", _word("an account's name"), ("physics",), "your default account",
            help="The account that the job is charged to."),
        Key("qos", _word("the name of a QOS"), ("long",), "your default QOS",
            help="The quality of service."),
        Key("nodes", count(1), (4,), "one for the chief and for each worker, and the spares",
            help="How many nodes the job gets. Where tasks have `gpus`, as many of them share a "
            "node as `gpus_per_node` allows. Other roles share the nodes."),
        Key("time", Duration(), ("12h",), "the partition's limit",
            help="How long one allocation may last, rounded up to whole minutes."),
        Key("gpus_per_node",
            OneOf(number=Integer(least=0, most=1024, description="a number of GPUs"),
                  text=Text(expected="a type and a number such as 'a100:4'",
                            pattern=_GPUS_PATTERN)),
            (4, "a100:4"), "none", help="How many GPUs the job gets on each node."),
        Key("cpus_per_task", count(1), (8,), "the cluster's default",
            help="How many cores the job gets for each task on a node."),
        Key("mem_per_node", Size(), ("64GiB",), "the partition's default",
            help="How much memory the job gets on each node."),
        Key("exclusive", Boolean(), (True,), "`false`",
            help="Whether no other job runs on its nodes."),
        Key("constraint", _word("features such as a100"), ("a100",), "none",
            help="Features that the nodes must have, as for `sbatch --constraint`."),
        Key("requeue", Boolean(), (True,), "`false`",
            help="Whether the job is queued again after the time limit, a preemption or the loss "
            "of its first node. It then continues as with `distrun resume`."),
        Key("signal_before_end", Duration(), ("2m",), "`2m`",
            help="How long before the time limit the tasks are stopped as in a preemption, with "
            "SIGTERM, so that they can save. At most 18h."),
        Key("options", _OPTIONS, ({"comment": "night", "mail-type": "END"},), "`{}`",
            help="More options of sbatch, by their long names. The value of an option without a "
            "value is true."),
        Key("setup", _SETUP, (["module load cuda", "source venv/bin/activate"],), "`[]`",
            help="Lines of shell at the beginning of the batch script. A shell runs them as they "
            "are written, on the first node."),
    ),
)  # fmt: skip
