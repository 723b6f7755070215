"""Warns of what a spec's values show without reading the program.

Programs and modules that are missing here, and arguments and variables that nothing expands.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from distrun.spec.asked_interpreter import Answer, NoAnswerError, ask
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import OF_SHELLS, OWN_PORT, ProgramKind, Spec, command_hint
from distrun.spec.nodes import flow_style
from distrun.spec.problems import Mark, Problem, quoted
from distrun.spec.schedulers import SlurmSpec
from distrun.spec.target import Target, find_target, shown_interpreter
from distrun.strategies import Workers
from distrun.words.formats import install_command

BUNDLED_NEEDS = ("numpy", "tensorflow", "tf_keras")
"""The modules that the bundled jobs need. They import them late: see jobs/mnist/main.py."""
_SHELLS = {"sh", "bash", "dash", "ash", "ksh", "zsh", "fish"}
_HOME = re.compile(r"(?:^|[=:])(~)(?:/|$)")
_TWO_WORDS = re.compile(r"(--?[A-Za-z][\w-]*)[ \t]+([^-\s]\S*)")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

_OPTION = (
    r"(?:--?|(?:\w+\.){0,4})(?:\w+[_-]){0,4}"
    r"(?:(?:checkpoints?|ckpts?|snapshots?|backup|restore|model|save)[_-]?(?:dir|directory|folder)"
    r"|save[_-]?path"
)
_RESUMED = (
    r"(?P<resumed>(?:--?|(?:\w+\.){0,4})(?:(?:(?:resume|load)[_-](?:from[_-])?)?"
    r"(?:checkpoint|ckpt|restore)(?:[_-](?:path|from))?|(?:resume|continue)[_-](?:path|from)|resume))"
)
_CHECKPOINTS = re.compile(rf"{_OPTION}|checkpoints|ckpts)|{_RESUMED}", re.IGNORECASE)
_CHECKPOINTS_1 = re.compile(
    rf"{_OPTION}|(?:train|log|job|output)[_-]?dir)|{_RESUMED}", re.IGNORECASE
)
"""The options of scripts of TensorFlow 1, too, which save where they write all else."""
_NO_FOLDER = re.compile(
    r"-|\w+:/|(?:none|null|true|false|yes|no|on|off|auto|last|latest|best|[\d.]+)?\Z", re.IGNORECASE
)
"""What these options may have as a value that is none, or is the same everywhere."""
_ONE_OF_MANY = re.compile(r"(?:\w*[-_])?\d+|last|latest|best", re.IGNORECASE)
"""The name of one checkpoint in a folder, which may be the beginning of files' names."""
_OWN_DISK = re.compile(r"/(?:tmp|var/tmp|dev/shm|run|root|local\w*)(?:/|\Z)")
"""What each host has on a disk of its own, mostly."""
_ADDRESS = re.compile(r"\bDISTRUN_ADDRESS\b")


def checkpoint_folders(spec: Spec) -> dict[str, tuple[str, str]]:
    """Return the folders from which tasks on several hosts resume, as far as arguments show them.

    With the key of the spec, and the option. One such as gs://bucket/run is the same everywhere.
    """
    roles = [role for role in spec.roles if not role.role.is_custom]
    target = find_target(spec)
    is_bundled = target is not None and target.is_bundled
    restarts = (spec.restart, *(role.restart for role in roles if role.restart is not None))
    if len(spec.hosts) < 2 or not (is_bundled or any(each.max for each in restarts)):
        return {}
    form = _CHECKPOINTS_1 if spec.workers is Workers.INDEPENDENT else _CHECKPOINTS
    found: dict[str, tuple[str, str]] = {}
    of_roles = ((f"cluster.{role.role.value}.args", role.args) for role in roles)
    of_all = ("program.command", spec.program.argv[1:]), ("program.args", spec.program.args)
    for key, args in (*of_all, *of_roles):
        for word, following in zip(args, (*args[1:], ""), strict=False):
            option, is_whole, value = word.partition("=")
            folder = value if is_whole else following if word.startswith("-") else ""
            matched = form.fullmatch(option)
            if matched is None or (option.endswith("resume") and "/" not in folder):
                continue  # the name of a run, perhaps
            if not _NO_FOLDER.match(folder):
                name = os.path.basename(folder)
                is_file = os.path.splitext(name)[1] or (
                    matched["resumed"] and _ONE_OF_MANY.fullmatch(name)
                )
                folder = os.path.dirname(folder) or "." if is_file else folder
                found.setdefault(folder, (key, option))
    return found


def _check_checkpoints(spec: Spec) -> Iterator[Problem]:
    """Warn of folders for checkpoints that each host has for itself."""
    shared = {os.path.normpath(each) for each in spec.program.shared}
    is_home_shared = all(host.slurm for host in spec.hosts)
    for folder, (key, option) in checkpoint_folders(spec).items():
        is_own = _OWN_DISK.match(folder) or not (is_home_shared or os.path.isabs(folder))
        if is_own and os.path.normpath(folder) not in shared:
            yield Mark(key).problem(
                f"{option} {quoted(folder)}: each host may have such a folder of its own, and then "
                "tasks do not resume from the same checkpoint",
                "give it a path on a file system that all hosts mount, and write program.shared: "
                f"{flow_style([folder])}, so that the hosts are checked for it",
            )


def _check_kubernetes(spec: Spec) -> Iterator[Problem]:
    """Warn of a section without effect, and of GPUs that no pod has. An overlay may have some."""
    settings, first = spec.kubernetes, spec.hosts[0]
    is_queued = first.slurm is not None and first.slurm.job == "" and spec.slurm == SlurmSpec()
    if settings is None:
        return
    if first == HostSpec() or is_queued:
        text = "it has no effect without 'hosts: kubernetes'"
        yield Mark("kubernetes").problem(text, "write 'hosts: kubernetes'")
    for role in spec.roles if first.pod and "limits" not in settings.pod else ():
        if (role.gpus or 0) > (settings.gpus or 0) and "limits" not in role.pod:
            text = f"its tasks get {role.gpus} each, and a pod has {settings.gpus or 0}"
            hint = f"write kubernetes.gpus: {role.gpus}"
            yield Mark(f"cluster.{role.role.value}.gpus").problem(text, hint)


def check_values(spec: Spec) -> Iterator[Problem]:
    """Yield a warning for each argument and variable with `~` or a `$NAME` that is set here.

    Also for each argument that is an option and its value in one text, and for a command that uses
    a port that is not left free.
    """
    yield from _check_checkpoints(spec)
    if spec.restart.is_never:
        text = "it has all exit codes of restart.on, so that nothing restarts"
        yield Mark("restart.never_on").problem(text, "leave out those after which to restart")
    yield from _check_kubernetes(spec)
    program = spec.program
    if any(map(_ADDRESS.search, (*program.argv, *program.args))) and not spec.says_port:
        yield Mark(f"program.{program.kind.value}").problem(*OWN_PORT)
    is_shell = program.kind is ProgramKind.COMMAND and _is_shell(program.argv)
    args = [] if is_shell else [("program.args", each) for each in program.args]
    envs = [("program.env", program.env), *(("hosts[].env", host.env) for host in spec.hosts)]
    for role in spec.roles:
        where = f"cluster.{role.role.value}"
        envs.append((f"{where}.env", role.env))
        its = program if role.program is None else role.program
        if not (its.kind is ProgramKind.COMMAND and _is_shell(its.argv)):
            args += [(f"{where}.args", each) for each in role.args]
    for where, text in dict.fromkeys(args):
        if (both := _TWO_WORDS.fullmatch(text)) is not None:
            hint = f"write {both[1]}, {both[2]}"
            yield Mark(where).problem(f"{quoted(text)} is one argument", hint)
    values = [(f"{where}.{name}", value) for where, env in envs for name, value in env.items()]
    for where, text in dict.fromkeys([*args, *values]):
        found = _HOME.search(text) or _VARIABLE.search(text)
        if found is None or (found[1] != "~" and found[1] not in os.environ):
            continue
        name = "HOME" if found[1] == "~" else found[1]
        shown = found[1] if found[1] == "~" else f"${name}"
        yield Mark(where).problem(
            f"nothing expands the {quoted(shown)} in {quoted(text)}",
            f"write the whole text or, in a YAML file, ${{{name}}} for the variable's value here",
        )


def _is_shell(argv: Sequence[str]) -> bool:
    return os.path.basename(argv[0]) in _SHELLS


def check_executables(spec: Spec) -> Iterator[Problem]:
    """Yield a warning for each program or interpreter of this machine's tasks that is not here."""
    here = spec.local_host
    if here is None or any("PATH" in role.env for role in spec.roles):
        return
    programs = {"program": spec.program}
    programs |= {f"cluster.{r.role.value}": r.program for r in spec.roles if r.program is not None}
    for where, program in programs.items():
        key, name = "command", program.argv[0] if program.argv else None
        if program.kind is not ProgramKind.COMMAND:
            key, name = "python", here.python or program.python
        if name is None:
            continue
        path = {**os.environ, **here.env, **program.env}.get("PATH", os.defpath)
        workdir = here.workdir or program.workdir
        if "/" not in name and shutil.which(name, path=path) is None:
            place = " in PATH"
        elif "/" in name and not os.path.isfile(os.path.join(workdir, name)):
            place = "" if os.path.isabs(name) else f" in {workdir}"
        else:
            continue
        message = f"there is no program {quoted(name)}{place}"
        line = " ".join(program.argv)
        is_line = key == "command" and "/" not in name
        is_line = is_line and (" " in name or re.search(OF_SHELLS, line) is not None)
        hint = command_hint(line) if is_line else "correct its name, or install it"
        inside = os.path.join(name, "bin/python")  # `name` is a virtual environment
        hint = f"write {inside}" if os.path.exists(os.path.join(workdir, inside)) else hint
        yield Mark(f"{where}.{key}").problem(message, hint)


def check_module(spec: Spec, target: Target) -> list[Problem]:
    """Say what is missing for a bundled job, or for a module that is not in the folder."""
    top = target.module.partition(".")[0]
    answer, unchecked = ask_interpreter(spec, target, BUNDLED_NEEDS if target.is_bundled else [top])
    python, shown = target.python or sys.executable, shown_interpreter(spec, target)
    lacking = ", ".join(name for name in BUNDLED_NEEDS if name in answer.missing)
    if target.is_bundled and lacking:
        message = f"the bundled job needs {lacking}, which {python} does not have"
        install = f"run {install_command(python, lacking.replace(',', ''))}"
        return [Mark("program.script").problem(message, install, is_certain=True)]
    # A package of that name in the folder comes before an installed one.
    is_beside = os.path.isfile(os.path.join(target.folder, top, "__init__.py"))
    if top in answer.missing or (top and is_beside and spec.local_host is not None):
        where = f"neither in {target.folder}, nor in {shown}"
        message = f"there is no module {target.module!r}: {where}"
        hint = "correct the name, or name its folder: --set program.workdir=FOLDER"
        if target.path.endswith("/__main__.py") and is_beside:
            message = (
                f"{target.module!r} is a package that has no __main__.py: Python cannot run it"
            )
            hint = f"write one of its modules: {target.module}.NAME"
        if target.module.endswith(".py"):
            hint = f"write {target.module.removesuffix('.py')}"
        return [Mark("program.module").problem(message, hint, is_certain=True)]
    return unchecked


def ask_interpreter(
    spec: Spec, target: Target, names: Iterable[str], files: Iterable[str] = ()
) -> tuple[Answer, list[Problem]]:
    """Ask the program's interpreter, if a task runs on this machine; else nothing is known.

    Also returns the warning that it did not answer, unless another check says why.
    """
    try:
        return ask(spec, target, names, files), []
    except NoAnswerError as error:
        why = f"{error}; whether it has the modules that the program imports is not known"
        is_said = error.is_absent and any(check_executables(spec))
        return Answer(), [] if is_said else [Mark("program.python").unchecked(why)]
