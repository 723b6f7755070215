"""The keys of `program`."""

from __future__ import annotations

import re

from distrun.spec.keys.common import (
    ARGS,
    ARGS_HELP,
    ENV,
    ENV_HELP,
    PATH,
    PYTHON,
    VERBATIM,
    env_name_problem,
    list_hint,
)  # fmt: skip
from distrun.spec.scalars import Boolean, Choice, Integer, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf

_OF_SHELLS = re.compile(r"[|&;<>`$*]|^(?:source|export|cd) |\n")


def _command_hint(text: str) -> str:
    """The list to write instead of a command line, or of a line for a shell."""
    if not _OF_SHELLS.search(text):
        return list_hint(text)
    is_short = len(text) <= 200 and text.isprintable()
    line = text.replace("'", "''") if is_short else "..."
    return f"write [bash, -c, '{line}']"


def _result_problem(text: str) -> str | None:
    """Say what is wrong with an item of results."""
    is_outside = text.startswith("/") or ".." in text.split("/")
    return "leads out of the working folder; write a path below it" if is_outside else None


_MODULE = Text(
    expected="a module's name such as trainer.main", pattern=r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
)
_COMMAND = ListOf(
    item=VERBATIM, expected="a list of texts", least=1, noun="word", text_hint=_command_hint
)
_PASS_ENV = ListOf(
    item=Text(expected="a variable's name", check=env_name_problem),
    expected="a list of names such as [WANDB_API_KEY]",
    noun="name",
    text_hint=list_hint,
)
_RESULTS = ListOf(
    item=Text(
        expected="a path or a pattern below the working folder, such as checkpoints",
        check=_result_problem,
    ),
    expected="a list of paths such as [checkpoints, logs]",
    least=1,
    noun="path",
    text_hint=list_hint,
)
_SYNC = OneOf(
    text=Choice(values=("script", "off"), all_forms="script, off or a list of paths"),
    list=ListOf(item=PATH, expected="a list of paths", least=1, noun="path"),
)
PROGRAM_KEYS = (
    Key("script", PATH, ("mnist", "train.py"),
        "one of script, module and command is required",
        help="A Python script: a path relative to this file, or a bundled job's name."),
    Key("module", _MODULE, ("trainer.main",), "see script",
        help="A Python module, run as `python -m` does."),
    Key("command", _COMMAND, (["./train.sh", "--fast"],), "see script",
        help="A program and its first arguments. No shell is involved. A relative path such as "
        "./train.sh is relative to this file, or to workdir if only that has it."),
)  # fmt: skip
"""The keys that name a program; one of them is required."""
PROGRAM_KINDS = tuple(key.name for key in PROGRAM_KEYS)
PROGRAM = MappingSchema(
    expected="a mapping such as {script: mnist}",
    one_of=PROGRAM_KINDS,
    keys=(
        *PROGRAM_KEYS,
        Key("python", PYTHON, ("python3", ".venv/bin/python"),
            "on this machine, that of the active environment (VIRTUAL_ENV, CONDA_PREFIX), else of "
            "an executable script's first line, else the one that runs distrun",
            help="The interpreter for script and module: a name, or a path relative to this file."),
        Key("args", ARGS, (["--epochs", 3],), "`[]`", help=f"The program's arguments. {ARGS_HELP}"),
        Key("workdir", PATH, (".",), "the folder where launch was called",
            help="The working directory of the tasks, relative to this file."),
        Key("env", ENV, ({"TF_CPP_MIN_LOG_LEVEL": 2},), "`{}`",
            help=f"Environment variables of the tasks. {ENV_HELP}"),
        Key("pass_env", _PASS_ENV, (["WANDB_API_KEY"],), "`[]`",
            help="Variables to take from the launching shell. Their values are never recorded, "
            "printed, or put on a command line."),
        Key("env_style", Choice(values=("tf", "torchrun")), ("torchrun",), "`tf`",
            help="`torchrun`: the tasks also get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT, as torchrun sets them."),
        Key("keras", Integer(least=2, most=3, description="2 or 3"), (2, 3),
            "TF_USE_LEGACY_KERAS is left alone",
            help="What `tf.keras` is: 2 sets TF_USE_LEGACY_KERAS=1 and needs the package tf_keras, "
            "which is looked for before anything starts; 3 sets TF_USE_LEGACY_KERAS=0."),
        Key("memory", Choice(values=("keep", "system")), ("system",),
            "`keep` in a cluster of several tasks",
            help="`keep`: the C library keeps the memory that a task frees, so that its next step "
            "need not get it from the kernel again (docs/spec.md, Freed memory). `system`: it is "
            "left alone."),
        Key("binds_port", Boolean(), (True,), "`false`",
            help="`true`: each task has a port, and the program listens on it by itself, at "
            "DISTRUN_ADDRESS: distrun leaves it free. `false`: distrun keeps it bound for "
            "TensorFlow's server. It is left free, too, with `{port}` in args or env, and with "
            "`env_style: torchrun`."),
        Key("tf_config", Choice(values=("mine",)), ("mine",), "distrun's",
            help="`mine`: the program or `env` sets TF_CONFIG, and distrun sets none. Without it, "
            "TF_CONFIG in `env` or pass_env is an error."),
        Key("sync", _SYNC, ("script", "off", ["data", "train.py"]), "`script`",
            help="The files to send to other hosts: the script's folder, nothing, or a list of "
            "paths relative to this file (docs/ssh.md)."),
        Key("results", _RESULTS, (["checkpoints", "logs"],), "nothing",
            help="What comes back from other hosts once the tasks have ended, also if the job has "
            "failed: paths or patterns below the tasks' working folder. They go to the same places "
            "on this machine, as `distrun fetch` would bring them (docs/ssh.md)."),
    ),
)  # fmt: skip
