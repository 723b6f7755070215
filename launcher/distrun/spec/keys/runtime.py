"""The keys of `restart`, `timeouts`, `ports`, `logs` and `tensorboard`."""

from __future__ import annotations

from distrun.spec.addresses import LAST_PORT
from distrun.spec.exit_codes import ExitCodes
from distrun.spec.keys.common import PATH, count
from distrun.spec.scalars import Choice, Duration, Integer, Size, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf
from distrun.strategies import Role

SHORTEST_LINK = 2.0
"""Seconds of the shortest `timeouts.link`: a link counts as lost after 0.3 of it without a
heartbeat, and half of it is left for the end of the tasks. On a machine with three times as many
busy processes as cores, a turn of the supervisor's loop took up to 0.12 s, and an agent's as long.
"""
_WHY_NOT_SHORTER = (
    "on a busy machine, a host that works would count as lost, and its tasks might not have ended"
)

_EXIT_CODES = ListOf(
    item=ExitCodes(),
    noun="exit code",
    expected="a list of exit codes and ranges such as [2, 64-78]",
)
_CONDITION = ExitCodes(words=("preemption", "failure", "any failure", "always"))
_CONDITIONS = OneOf(
    text=_CONDITION,
    list=ListOf(
        item=_CONDITION, least=1, noun="condition", expected="a list such as [preemption, 130-255]"
    ),
)


def _restart_hint(name: str) -> str:
    if name == "true":
        return "YAML 1.1 reads on as true: put 'on' in quotes"
    if name == "roles":
        return "write it as cluster.worker.restart"
    return f"write it as cluster.{name}.restart" if name in [each.value for each in Role] else ""


def _role_restart_hint(name: str) -> str:
    if name in ("min_workers", "host_failures"):
        return f"write it as restart.{name}, for the whole job"
    return _restart_hint(name)


_RESTART_KEYS = (
    Key("max", count(0), (3,), "`3`",
        help="The most restarts; 0 for none. Restarts after a preemption do not count."),
    Key("backoff", Duration(zero=True), ("1s",), "`1s`",
        help="The wait before the first restart, randomly shortened by up to a quarter. It "
        "doubles with each restart."),
    Key("backoff_max", Duration(zero=True), ("30s",), "`30s`",
        help="The longest wait before a restart."),
    Key("reset_after", Duration(off=True), ("10m",), "`10m`",
        help="After this long without a failure, restarts are counted from 0 again."),
    Key("on", _CONDITIONS, (["preemption", "130-255"], "preemption", "always"), "any failure",
        help="The failures after which tasks restart: exit codes and ranges (for a signal, 128 + "
        "its number), `preemption`, `failure` (any), `always` (any failure; and exit 0 of tasks "
        "that restart alone and whose success the job does not need)."),
    Key("never_on", _EXIT_CODES, ([2], [2, "64-78"]), "`[]`",
        help="Exit codes and ranges after which nothing is restarted, whatever `on` says."),
)  # fmt: skip
RESTART = MappingSchema(
    expected="a mapping such as {max: 3}",
    unknown_hint=_restart_hint,
    keys=(
        *_RESTART_KEYS,
        Key("min_workers", count(1), (2,), "all workers",
            help="The fewest tasks of the role worker to continue with if no host has room for "
            "the others after a host was lost. Without it, the job waits for a host for "
            "timeouts.start, then fails."),
        Key("host_failures", count(1), (3,), "`3`",
            help="After so many failures in a row of tasks on the same host, that host is left "
            "out if the tasks have room elsewhere."),
    ),
)  # fmt: skip
ROLE_RESTART = OneOf(
    text=Choice(
        values=("never", "failure", "preemption", "always"),
        all_forms="never, failure, preemption, always or a mapping such as {max: 3}",
    ),
    mapping=MappingSchema(
        expected=RESTART.expected, unknown_hint=_role_restart_hint, keys=_RESTART_KEYS
    ),
)
"""`restart` of a role: a mapping, or a word for its `on`."""

TIMEOUTS = MappingSchema(
    expected="a mapping such as {grace: 10s}",
    keys=(
        Key("start", Duration(off=True), ("5m",), "`5m`",
            help="How long the job may take until all tasks have started."),
        Key("run", Duration(off=True), ("2h",), "`off`", help="How long the job may run."),
        Key("grace", Duration(zero=True), ("10s",), "`10s`",
            help="How long tasks may take to exit after SIGTERM. Then distrun sends SIGKILL."),
        Key("stall", Duration(off=True), ("10m",), "`off`",
            help="How long the tasks may report no new step or, if they report no steps, print "
            "nothing. Then they are restarted, as `restart` allows, or the job fails."),
        Key("link", Duration(off=True, shortest=SHORTEST_LINK, why=_WHY_NOT_SHORTER),
            ("60s",), "`60s`",
            help="How long a host may be unreachable before its tasks are stopped. At least "
            f"{SHORTEST_LINK:g}s."),
    ),
)  # fmt: skip

_PORT_RANGE = Text(expected="a range such as 20000-21000", pattern=r"[0-9]{1,5}-[0-9]{1,5}")
PORTS = OneOf(
    text=Choice(values=("auto",), all_forms="auto or a mapping such as {range: 20000-21000}"),
    mapping=MappingSchema(
        expected="a mapping such as {range: 20000-21000}",
        keys=(
            Key("range", _PORT_RANGE, ("20000-21000",), required=True,
                help="The first and the last port to choose from."),
        ),
    ),
)  # fmt: skip

LOGS = MappingSchema(
    expected="a mapping such as {max_size: 100MB}",
    keys=(
        Key("max_size", Size(), ("off", "100MB", "1GiB"), "`off`",
            help="How much of a task's log stays on the disk, over all its attempts. The oldest "
            "output is dropped, on this machine and on the task's host. A log can be larger by "
            "64 KiB and by what is printed in 0.1 s. The file system must be able to free the "
            "start of a file, as ext4, XFS, Btrfs and tmpfs can."),
    ),
)  # fmt: skip

_PORT = OneOf(
    text=Choice(values=("auto",), all_forms="a port or auto"),
    number=Integer(least=1, most=LAST_PORT),
)
TENSORBOARD = MappingSchema(
    expected="a mapping such as {logdir: logs}",
    keys=(
        Key("logdir", PATH, ("logs",), required=True,
            help="The folder with the event files, relative to the tasks' working directory."),
        Key("port", _PORT, ("auto", 6006), "`auto`",
            help="The port on which TensorBoard listens."),
    ),
)  # fmt: skip
