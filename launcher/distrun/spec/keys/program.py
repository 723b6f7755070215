"""The keys of `program`."""

from __future__ import annotations

from distrun.spec.keys.common import (
    ARGS,
    ARGS_SAY,
    ENV,
    ENV_SAY,
    PATH,
    PYTHON,
    VERBATIM,
    list_hint,
)
from distrun.spec.names import MODULE_PATTERN, env_name_problem
from distrun.spec.records import Key, Record
from distrun.spec.scalars import Choice, Text
from distrun.spec.shapes import Forms, ListOf

PROGRAM = Record(
    words="a mapping such as {script: mnist}",
    one_of=("script", "module", "command"),
    keys=(
        Key(
            name="script",
            shape=PATH,
            examples=("mnist", "train.py"),
            default="this, module or command is required",
            says="A Python script: a path relative to this file, or a bundled job's name.",
        ),
        Key(
            name="module",
            examples=("trainer.main",),
            default="see script",
            shape=Text(words="a module's name such as trainer.main", pattern=MODULE_PATTERN),
            says="A Python module, run as `python -m` does.",
        ),
        Key(
            name="command",
            examples=(["./train.sh", "--fast"],),
            default="see script",
            shape=ListOf(
                item=VERBATIM, words="a list of texts", least=1, noun="word", text_hint=list_hint
            ),
            says="A program and its first arguments, run without a shell.",
        ),
        Key(
            name="python",
            shape=PYTHON,
            examples=("python3", ".venv/bin/python"),
            default="on this machine, the interpreter that runs distrun",
            says="The interpreter for script and module: a name, or a path relative to this file.",
        ),
        Key(name="args", shape=ARGS, examples=(["--epochs", 3],), default="`[]`", says=ARGS_SAY),
        Key(
            name="workdir",
            shape=PATH,
            examples=(".",),
            default="the folder where launch was called",
            says="The folder in which tasks run, relative to this file.",
        ),
        Key(
            name="env",
            shape=ENV,
            examples=({"TF_CPP_MIN_LOG_LEVEL": 2},),
            default="`{}`",
            says=ENV_SAY,
        ),
        Key(
            name="pass_env",
            examples=(["WANDB_API_KEY"],),
            default="`[]`",
            shape=ListOf(
                item=Text(words="a variable's name", check=env_name_problem),
                words="a list of names such as [WANDB_API_KEY]",
                noun="name",
                text_hint=list_hint,
            ),
            says="Variables taken from the launching shell; their values are never recorded, "
            "printed, or on a command line.",
        ),
        Key(
            name="sync",
            examples=("script", "off", ["data", "train.py"]),
            default="`script`",
            shape=Forms(
                text=Choice(values=("script", "off"), instead="script, off or a list of paths"),
                list=ListOf(item=PATH, words="a list of paths", least=1, noun="path"),
            ),
            says="What other hosts are sent: the script's folder, nothing, or a list of paths "
            "relative to this file (docs/ssh.md).",
        ),
    ),
)
