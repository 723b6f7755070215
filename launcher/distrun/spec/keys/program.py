"""The keys of `program`."""

from __future__ import annotations

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
)
from distrun.spec.scalars import Choice, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf

PROGRAM = MappingSchema(
    expected="a mapping such as {script: mnist}",
    one_of=("script", "module", "command"),
    keys=(
        Key(
            name="script",
            schema=PATH,
            examples=("mnist", "train.py"),
            default="one of script, module and command is required",
            help="A Python script: a path relative to this file, or a bundled job's name.",
        ),
        Key(
            name="module",
            examples=("trainer.main",),
            default="see script",
            schema=Text(
                expected="a module's name such as trainer.main",
                pattern=r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*",
            ),
            help="A Python module, run as `python -m` does.",
        ),
        Key(
            name="command",
            examples=(["./train.sh", "--fast"],),
            default="see script",
            schema=ListOf(
                item=VERBATIM, expected="a list of texts", least=1, noun="word", text_hint=list_hint
            ),
            help="A program and its first arguments. No shell is involved.",
        ),
        Key(
            name="python",
            schema=PYTHON,
            examples=("python3", ".venv/bin/python"),
            default="on this machine, the interpreter that runs distrun",
            help="The interpreter for script and module: a name, or a path relative to this file.",
        ),
        Key(
            name="args",
            schema=ARGS,
            examples=(["--epochs", 3],),
            default="`[]`",
            help=f"The program's arguments. {ARGS_HELP}",
        ),
        Key(
            name="workdir",
            schema=PATH,
            examples=(".",),
            default="the folder where launch was called",
            help="The working directory of the tasks, relative to this file.",
        ),
        Key(
            name="env",
            schema=ENV,
            examples=({"TF_CPP_MIN_LOG_LEVEL": 2},),
            default="`{}`",
            help=f"Environment variables of the tasks. {ENV_HELP}",
        ),
        Key(
            name="pass_env",
            examples=(["WANDB_API_KEY"],),
            default="`[]`",
            schema=ListOf(
                item=Text(expected="a variable's name", check=env_name_problem),
                expected="a list of names such as [WANDB_API_KEY]",
                noun="name",
                text_hint=list_hint,
            ),
            help="Variables to take from the launching shell. Their values are never recorded, "
            "printed, or put on a command line.",
        ),
        Key(
            name="sync",
            examples=("script", "off", ["data", "train.py"]),
            default="`script`",
            schema=OneOf(
                text=Choice(values=("script", "off"), all_forms="script, off or a list of paths"),
                list=ListOf(item=PATH, expected="a list of paths", least=1, noun="path"),
            ),
            help="The files to send to other hosts: the script's folder, nothing, or a list of "
            "paths relative to this file (docs/ssh.md).",
        ),
    ),
)
