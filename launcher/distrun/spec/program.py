"""Reads `program` and the programs of custom roles, with absolute paths."""

from __future__ import annotations

import codecs
import functools
import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from itertools import islice

from distrun.agent.linux.regular import LARGEST_SCRIPT
from distrun.frozen import Frozen, replace
from distrun.spec import resources
from distrun.spec.common_values import NOT_EXPANDED
from distrun.spec.context import LoadContext
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import BY_RUN, Interpreter, ProgramKind, ProgramSpec, Sync
from distrun.spec.nodes import flow_style
from distrun.spec.problems import Problems, nearest, quoted
from distrun.spec.regular_file import beginning
from distrun.spec.schema import Section
from distrun.strategies import Role

_AS_WRITTEN = ("env", "env_style", "keras", "memory", "binds_port", "results", "shared")
_MOST_BYTES = 1 << 20
_RUNNER = re.compile(r"(python[\d.]*)|(?:ba|da|k|z)?sh")
"""What reads a script: Python, or a shell."""
_OF_NO_FILE = re.compile(r"-[a-zA-Z]*[cm]")
"""The options of both after which there is no script."""
_IPYTHON = re.compile(
    rb"^[ \t]*(?:[%!]|\w+ *= *[%!]\w|(?:[?]{1,2}[\w.]+|[\w.]+[?]{1,2})[ \t\r]*$)"
    rb"|^get_ipython\(",
    re.MULTILINE,
)
_AS_COMMENTS = (
    r"sed -i -E 's/^([ \t]*)([%!?]|get_ipython|\w+ *= *[%!]|[A-Za-z0-9_.]+[?]+\s*$)/\1pass  # \2/'"
)
_OTHER_FILES = (
    (
        rb"\xff\xfe|\xfe\xff",
        "in UTF-16, which Python does not read",
        "convert it: iconv -f UTF-16 -t UTF-8 {0} > {0}.new && mv {0}.new {0}",
    ),
    (  # Python runs some of them, and they do nothing.
        rb"\s*\{\s*\"(cells|metadata|nbformat)\"",
        "a notebook, not a script",
        "convert it: jupyter nbconvert --to script {0}",
    ),
    (
        rb"version https://git-lfs\.github\.com/",
        "a pointer of Git LFS, not the script itself",
        "get it: git lfs pull --include {1}",
    ),
    (
        rb"\s*<(?:!doctype )?html\b",
        "a page in HTML, not a script",
        "get the file itself: curl -L -o {0} and the address of GitHub's `Raw`",
    ),
)
"""How files begin that are no scripts, what they are, and what to do."""
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_FIRST_LINE = re.compile(
    rb"#!\s*(?:\S*/env\s+(?:-S\s*)?(?:(?:-\S+|\w+=\S*)\s+)*)?(\S*?python[0-9.]*)(?=\s)[ \t]*(-\S*)?"
)
_LONGEST_LINE = 256
OWN_INTERPRETER = Interpreter(sys.executable, "the one that runs distrun")


def _kind(section: Section) -> ProgramKind:
    return next((kind for kind in ProgramKind if section.has(kind.value)), ProgramKind.SCRIPT)


class ProgramReader(Frozen):
    """Reads the section `program`. What cannot be found becomes a problem, and its value empty."""

    section: Section
    hosts: tuple[HostSpec, ...]
    context: LoadContext
    problems: Problems
    has_environ: bool = True
    """Whether the tasks' variables are those of this shell: not after lines of `slurm.setup`, with
    `slurm.options.export`, or in a submitted job's pods, for which `pass_env` is refused later."""

    def programs(
        self, roles: Mapping[Role, Section]
    ) -> tuple[ProgramSpec, dict[Role, ProgramSpec]]:
        """The program, and those of the custom `roles`, which share its folder and its files."""
        section, context = self.section, self.context
        if _kind(section) is ProgramKind.COMMAND and section.has("python"):
            where, message = "program.python", "program.python is not used with command"
            hint = "remove it, or write the interpreter into the command"
            self.problems.add(self.problems.keys[where], message, hint)
        self._check_pass_env()
        main = self._program(section, context.extra_args)
        custom = {role: self._program(each) for role, each in roles.items()}
        programs = (main, *custom.values())
        paths = self._sync_paths()
        sync = Sync.PATHS if paths else Sync(section.get("sync", "script"))
        folders = tuple(dict.fromkeys(folder for _, folder in programs if folder))
        if sync is Sync.SCRIPT:
            paths = _program_folders([each for each, _ in programs], folders)
        sync_base = _sync_base(sync, paths, folders, context.folder)
        python: str | None = section.get("python")  # a name is looked up on the task's host
        common = {
            "python": context.resolve(python) if python is not None and "/" in python else python,
            "workdir": _path_inside(sync_base, self.workdir),
            "pass_env": tuple(dict.fromkeys(section.get("pass_env", ()))),
            "owns_tf_config": "tf_config" in section,
            "sync": sync,
            "sync_paths": paths,
            "sync_base": sync_base,
            "is_workdir_chosen": section.has("workdir"),
            **{name: section[name] for name in _AS_WRITTEN if name in section},
        }
        of_roles = {role: replace(each, **common) for role, (each, _) in custom.items()}
        return replace(main[0], **common), of_roles

    @functools.cached_property
    def may_be_missing(self) -> bool:
        """Whether the paths are those of other hosts: no task runs here, and nothing is sent."""
        is_elsewhere = not any(host.is_local for host in self.hosts)
        return is_elsewhere and self.section.get("sync") == Sync.OFF.value

    @functools.cached_property
    def workdir(self) -> str:
        workdir = self.section.get("workdir")
        if workdir is None:
            return self.context.cwd
        path = self.context.resolve(workdir)
        if not self.may_be_missing and not os.path.isdir(path):
            message = f"program.workdir is not a folder: {quoted_path(path)}"
            hint = _missing_hint(workdir, "make it, or name another")
            self.problems.add("program.workdir", message, hint)
        return path

    def _sync_paths(self) -> tuple[str, ...]:
        listed = self.section.get("sync", "script")
        if isinstance(listed, str):
            return ()
        paths = tuple(map(self.context.resolve, listed))
        for index, path in enumerate(paths):
            if not os.path.exists(path):
                message = f"program.sync names nothing: {quoted_path(path)} is not there"
                hint = _missing_hint(listed[index], "remove it, or correct the path")
                self.problems.add(f"program.sync[{index}]", message, hint)
        return paths

    def _check_pass_env(self) -> None:
        for index, name in enumerate(self.section.get("pass_env", ())):
            place = f"program.pass_env[{index}]"
            if name in self.section.get("env", {}):
                message = f"{quoted(name)} is in both env and pass_env"
                self.problems.add(place, message, "keep one of them")
            elif name not in self.context.environ and self.has_environ:
                message = f"program.pass_env names {quoted(name)}, which is not set here"
                self.problems.add(place, message, "export it first, or remove it")

    def _program(
        self, section: Section, extra_args: tuple[str, ...] = ()
    ) -> tuple[ProgramSpec, str]:
        """What a process executes, and where it looks for its files; empty: it needs none."""
        kind, workdir = _kind(section), self.workdir
        place = section.path_of("command")
        command = section.get("command", ())
        if command and not command[0]:
            message = f"{place} begins with an empty word"
            self.problems.add(place, message, "write the program to run first")
        is_script = kind is ProgramKind.SCRIPT
        name = self._script(section) if is_script else section.get("module", "")
        program = self._path(command[0]) if command else ""
        args = (*section.get("args", ()), *extra_args)
        if is_script:
            folder = os.path.dirname(name)
        elif command and program != command[0]:
            folder = os.path.dirname(program)
        else:
            # Python looks there for the module, and a command for its files.
            folder = workdir if name or _names_a_file((*command, *args), workdir) else ""
        argv = (program, *command[1:]) if command else ()
        if command:
            self._check_files((*argv, *args), place)
        found = find_interpreter(name if is_script else "", self.context.environ)
        what = ProgramSpec(
            kind=kind, target=name, argv=argv, args=args, interpreter=found, workdir=workdir
        )
        return what, folder

    def _check_files(self, words: tuple[str, ...], place: str) -> None:
        """Check the program of a command, or the script that it gives to Python or to a shell."""
        runner = _RUNNER.fullmatch(os.path.basename(words[0]))
        name = words[0] if "/" in words[0] else ""  # else it is looked for in PATH
        if runner is not None:
            given = itertools.takewhile(lambda word: not _OF_NO_FILE.fullmatch(word), words[1:])
            files = (each for each in given if os.path.isfile(os.path.join(self.workdir, each)))
            name = next(files, "")
        path = os.path.join(self.workdir, name)
        if runner is not None and runner[1]:
            wrong = _unfit_script(path, name, is_for_python=True)
        else:
            wrong = _windows_line(path, name, by_kernel=runner is None)
        if name and wrong is not None and not self.context.is_forced:
            self.problems.add(place, f"{place}{wrong[0]}", wrong[1])

    def _script(self, section: Section) -> str:
        """The path of a script; empty: none is given, or none is there."""
        place = section.path_of("script")
        name = section.get("script")
        if name is None:
            return ""
        path = self.context.resolve(name)
        written_python = str(section.get("python", ""))
        if os.path.isfile(path):
            is_for_python = "ipython" not in written_python
            wrong = _too_large(path) or _unfit_script(path, name, is_for_python=is_for_python)
            if wrong is not None and not self.context.is_forced:
                self.problems.add(place, f"{place}{wrong[0]}", wrong[1])
            return path
        jobs = resources.bundled_jobs()
        if name in jobs:
            return str(jobs[name])
        if self.may_be_missing:
            return path
        bundled = f"a bundled job: {', '.join(jobs) or 'none'}"
        is_word = self.context.file == BY_RUN and not {*"/."} & {*name}
        others = "a program in PATH, " if is_word else ""
        hint = f"name a script, {others}or {bundled}"
        if os.path.isdir(path):
            usual = ("__main__.py", "main.py", "train.py")
            own = next((e for e in usual if os.path.isfile(os.path.join(path, e))), "")
            file = os.path.join(name, own) if own else "a file in it"
            wrong = f" is a folder: {quoted_path(path)}", f"name {file}, or {bundled}"
        elif os.path.exists(path):
            wrong = f": {quoted_path(path)} is not a regular file", hint
        elif os.path.lexists(path):
            wrong = f": {quoted_path(path)} is a link that leads to no file", hint
        else:
            near = "" if self.problems.full else _similar_script(path, name, jobs)
            hint = _missing_hint(name, near or hint)
            wrong = f" names no file: {quoted_path(path)} is not there", hint
        self.problems.add(place, f"{place}{wrong[0]}", wrong[1])
        return ""

    def _path(self, written: str) -> str:
        """The program of a command: a path that is relative to the file becomes absolute.

        It stays as written if it means the same, or nothing here, in the working directory. So a
        program that only other hosts have is found in theirs.
        """
        if "/" not in written or os.path.isabs(written):
            return written
        path = self.context.resolve(written)
        inside = os.path.normpath(os.path.join(self.workdir, written))
        is_elsewhere = not all(host.is_local for host in self.hosts) or os.path.exists(inside)
        return written if path == inside or (is_elsewhere and not os.path.exists(path)) else path


def _too_large(path: str) -> tuple[str, str] | None:
    if os.stat(path).st_size > LARGEST_SCRIPT:
        return f": {quoted_path(path)} is larger than 100 MB", "name a script"
    return None


def _unfit_script(path: str, name: str, *, is_for_python: bool) -> tuple[str, str] | None:
    """What is wrong with the text of a script, and what to do; None: nothing."""
    text = beginning(path, _MOST_BYTES)
    for start, what, hint in _OTHER_FILES:
        if re.match(start, text, re.IGNORECASE):
            found = f" is {what}: {quoted_path(path)}"
            return found, hint.format(shlex.quote(name), shlex.quote(os.path.basename(name)))
    line = _ipython_line(text) if is_for_python else None
    if line is not None:
        convert = f"make comments of such lines: {_AS_COMMENTS} {shlex.quote(name)}"
        place = quoted_path(path)
        return f" is for IPython, not for Python: {place}, line {line[0]}: {line[1]}", convert
    return None


def _ipython_line(text: bytes) -> tuple[int, str] | None:
    """The first line that is certainly for IPython, with its number."""
    if _IPYTHON.search(text) is None or b"import get_ipython" in text:
        return None
    import ast
    import warnings

    number = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            starts = [each.lineno for each in ast.parse(text).body]
        lines = text.splitlines()
        number = next((n for n in starts if lines[n - 1].startswith(b"get_ipython(")), None)
    except SyntaxError as error:
        number = error.lineno  # no text in quotes, and no second line of an expression
    except (ValueError, RecursionError, MemoryError):
        return None
    line = b"" if number is None else text.splitlines()[number - 1]
    is_one = number is not None and _IPYTHON.match(line) is not None
    return (number, line.decode(errors="replace").strip()) if number and is_one else None


def _windows_line(path: str, name: str, *, by_kernel: bool) -> tuple[str, str] | None:
    """What Windows has added to a script's first line, and what to do; None: nothing."""
    line, newline, _ = beginning(path, 4096).partition(b"\n")
    if newline and line.endswith(b"\r") and (line.startswith(b"#!") or not by_kernel):
        what, edit = "ends with a carriage return", r"s/\r$//"
    elif line.startswith(codecs.BOM_UTF8 + b"#!") and by_kernel:
        what, edit = "begins with a byte order mark", r"1s/^\xef\xbb\xbf//"
    else:
        return None
    effect = "no interpreter has such a name" if by_kernel else "a shell takes it for text"
    said = f": the first line of {quoted(name)} {what}, as files of Windows do: {effect}"
    return said, f"convert it: sed -i '{edit}' {shlex.quote(name)}"


def _script_of_line(line: str, folder: str) -> str:
    """Suggests the script of a command line (`python train.py --lr 0.1`) and its arguments."""
    try:
        first, *rest = shlex.split(line)
    except ValueError:  # it has no word, or a quotation without an end
        return ""
    script, *args = rest if rest and re.match(r"python[\d.]*\Z", first) else (first, *rest)
    is_there = script != line and os.path.isfile(os.path.join(folder, script))
    with_args = f" with args: {flow_style(args)}" if args else ""
    return f"did you mean {quoted(script)}{with_args}?" if is_there else ""


def _similar_script(path: str, name: str, jobs: Iterable[str]) -> str:
    """Suggests a bundled job or a file in the same folder for a missing script, or ''."""
    if named := _script_of_line(name, path.removesuffix(name)):
        return named
    try:
        with os.scandir(os.path.dirname(path)) as entries:
            beside = [entry.name for entry in islice(entries, 1000)
                      if not entry.name.endswith((".yaml", ".yml"))]  # fmt: skip
    except OSError:
        beside = []
    if os.path.isfile(f"{path.removesuffix(name)}{name.replace('.', '/')}.py"):
        return f"did you mean the module? `run -m {name}`, or module: {name}"
    folder, _, last = name.rpartition("/")
    found = nearest(last, [*beside, *jobs])
    return f"did you mean {quoted(os.path.join(folder, found))}?" if found else ""


def _program_folders(programs: Iterable[ProgramSpec], folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that the programs need, if they are several; otherwise none."""
    scripts = [each.target for each in programs if each.kind is ProgramKind.SCRIPT and each.target]
    linked = [folder for script in scripts for folder in _script_folders(script)]
    found = tuple(dict.fromkeys((*folders, *linked)))
    return found if len(found) > 1 else ()


def _script_folders(script: str) -> tuple[str, ...]:
    """The two folders that a script needs if it is a symbolic link out of its folder, else none.

    Python looks for modules in the folder of the link's target.
    """
    folder = os.path.dirname(script)
    real = os.path.realpath(script)
    if not os.path.islink(script) or f"{real}/".startswith(f"{os.path.realpath(folder)}/"):
        return ()
    return folder, os.path.dirname(real)


def _sync_base(
    sync: Sync, paths: tuple[str, ...], folders: tuple[str, ...], spec_folder: str
) -> str:
    """Return the folder that is copied to other hosts. `folders` are those of the programs."""
    if sync is not Sync.PATHS:
        needed = paths or folders
        return os.path.commonpath(needed) if needed and sync is Sync.SCRIPT else ""
    # The copy keeps the layout, also of paths outside the spec's folder.
    return os.path.commonpath([spec_folder, *paths, *folders])


def _path_inside(base: str, folder: str) -> str:
    """The path below `base` of a folder that is in `base` by way of a symbolic link."""
    inner = os.path.relpath(os.path.realpath(folder), os.path.realpath(base or "/"))
    if not base or f"{folder}/".startswith(f"{base}/") or inner.split("/")[0] == "..":
        return folder
    return os.path.normpath(os.path.join(base, inner))


def _names_a_file(words: Iterable[str], folder: str) -> bool:
    """Whether a word of a command is the path of something in the folder."""
    inner = (os.path.normpath(word) for word in words if word and not os.path.isabs(word))
    return any(
        path.split("/")[0] not in (".", "..") and os.path.lexists(os.path.join(folder, path))
        for path in inner
    )


def check_readable(path: str, place: str, problems: Problems) -> None:
    """Add a problem unless `path` is a file that is not too large to be read at once.

    `place` is the key that names it.
    """
    if not os.path.isfile(path):
        what = "no regular file" if os.path.lexists(path) else "not there"
        why = f"{place} names no file: {quoted_path(path)} is {what}"
        problems.add(place, why, "correct the path")
    elif os.path.getsize(path) > _MOST_BYTES:
        why = f"{quoted_path(path)} has more than {_MOST_BYTES >> 20} MB"
        problems.add(place, f"{place} is too large: {why}", "correct the path")


def quoted_path(path: str) -> str:
    """A path for a message, in full: its end matters most."""
    return quoted(path, longest=4096)


def _missing_hint(written: str, otherwise: str) -> str:
    return NOT_EXPANDED if "$" in written else otherwise


def find_interpreter(script: str, environ: Mapping[str, str]) -> Interpreter:
    """Return the interpreter on this machine for a script, or for a module (empty).

    It is used if neither the spec nor a host names one: that of the active environment, else that
    of the script's first line, as if the script was started by hand; else the one that runs
    distrun.
    """
    lacking = ""
    for name in _ACTIVE:
        folder = environ.get(name, "")
        if folder and os.path.realpath(folder) == os.path.realpath(sys.prefix):
            return OWN_INTERPRETER
        path = os.path.abspath(os.path.join(folder, "bin", "python"))
        if folder and os.access(path, os.X_OK):
            return Interpreter(path, f"of the active environment ({name})")
        if folder:
            lacking += f" ({name} is set, and {quoted_path(path)} is not there)"
    is_program = script and os.access(script, os.X_OK)
    if line := _FIRST_LINE.match(beginning(script, _LONGEST_LINE)) if is_program else None:
        word = os.fsdecode(line[1])
        found = shutil.which(word, path=environ.get("PATH"))
        if found:
            options = "" if line[2] in (None, b"-u") else ", without its options"
            return Interpreter(found, f"of the script's first line{options}{lacking}")
        lacking += f" (the script's first line names {quoted_path(word)}, which is not there)"
    return Interpreter(OWN_INTERPRETER.path, OWN_INTERPRETER.why + lacking)
