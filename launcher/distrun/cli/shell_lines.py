"""The shell lines of `distrun plan --env`, which run one task by hand."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence

from distrun.errors import UsageError
from distrun.plan import Plan, TaskPlan
from distrun.redaction.secrets import is_secret
from distrun.spec.model import ProgramKind, Spec
from distrun.spec.problems import printable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name that a shell can export. Others are set by env(1)."""
_BY_HAND = {"DISTRUN_JOB_ID": "by-hand", "DISTRUN_ATTEMPT": "0"}
"""Variables that a launch would set to values of its own."""


def shell_lines(spec: Spec, plan: Plan, names: Sequence[str]) -> Iterator[str]:
    """Yield lines for sh(1) that run these tasks by hand, one part for each task.

    No value of `program.pass_env`, or of a variable whose name looks like a secret, is in them.

    Raises:
        UsageError: there is no such task.
    """
    tasks = {task.name: task for task in plan.tasks}
    for name in names:
        if name not in tasks:
            raise UsageError(f"the job has no task {name!r}", hint=f"it has: {', '.join(tasks)}")
    for name in names:
        yield from _lines(spec, plan, tasks[name])


def _lines(spec: Spec, plan: Plan, task: TaskPlan) -> Iterator[str]:
    here = spec.local_host
    yield f"# {task.name} of {printable(plan.name)}: run these lines on {printable(task.host)}."
    if spec.sends_files and (here is None or here.name != task.host):
        yield "# A launch sends it the program's files first; these are the paths of this machine."
    if task.port_is_provisional:
        yield "# Each call chooses new ports. For several tasks, repeat --env in one call."
    kind = next(spec.program_of(role).kind for role in spec.roles if role.role == task.role)
    debugged = None if kind is ProgramKind.COMMAND else _debugger_command(task)
    if debugged is not None:
        yield f"# In the debugger: {debugged}"
    at_home = " 2>/dev/null || cd" if task.or_home else ""
    yield f"cd {shell_word(task.workdir)}{at_home}"
    yield from (f"unset {name}" for name in task.unset if _NAME.fullmatch(name))
    odd = [f"-u {shell_word(name)}" for name in task.unset if not _NAME.fullmatch(name)]
    variables: dict[str, str | None] = {**task.environment, **_BY_HAND}
    variables.update({name: None for name in (*variables, *plan.pass_env) if is_secret(name)})
    variables.update(dict.fromkeys(plan.pass_env))
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            odd += [shell_word(f"{name}={value}")] if value is not None else []
        elif value is None:
            yield f'export {name}="${{{name}?set it first: it is not shown here}}"'
        else:
            yield f"export {name}={shell_word(value)}"
    program, *args = map(shell_word, task.argv)
    # Without a path, a shell may have a builtin of that name.
    is_looked_up = kind is ProgramKind.COMMAND and "/" not in program
    yield " ".join([*(["env", *odd] if odd or is_looked_up else []), program, *args])


def _debugger_command(task: TaskPlan) -> str | None:
    """The command that runs a script or a module under pdb; None if it needs several lines."""
    python, *words = task.argv
    if not all(map(str.isprintable, task.argv)):
        return None
    pdb = [python, "-m", "pdb"]
    target = 2 if words[0] == "-m" else 1
    args = words[target:]
    has_options = any(each.startswith("-") for each in args)
    if has_options and not any(";;" in each for each in args):  # where pdb divides its commands
        # pdb of Python 3.13.0 takes a program's options for its own: its command `run` does not.
        return shlex.join([*pdb, "-c", f"run {shlex.join(args)}", *words[:target]])
    return shlex.join([*pdb, *words])


def shell_word(text: str) -> str:
    """Return a word that every POSIX shell reads as `text`, without control characters.

    Those would act on the terminal on which the lines are shown. Line feeds remain, in quotes.
    """
    parts = itertools.groupby(text, lambda char: char.isprintable() or char == "\n")
    return "".join(_quoted("".join(part), is_shown=is_shown) for is_shown, part in parts) or "''"


def _quoted(part: str, *, is_shown: bool) -> str:
    if is_shown:
        return shlex.quote(part)
    octal = "".join(f"\\{byte:03o}" for byte in part.encode("utf-8", "surrogateescape"))
    return f"\"$(printf '{octal}')\""
