"""Makes the spec of `distrun run` from its options, as :mod:`distrun.spec.loader` from a file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

from distrun.errors import UsageError
from distrun.frozen import Frozen, replace
from distrun.spec.build import build, default_name
from distrun.spec.context import LoadContext
from distrun.spec.host_spec import CLUSTERS
from distrun.spec.hosts import HOST_WITH_SLOTS
from distrun.spec.loader import current_folder, override
from distrun.spec.model import BY_RUN, SPEC, Spec, SpecOrigin
from distrun.spec.nodes import Entry, Mapping, Scalar, escape
from distrun.spec.problems import Mark, Problems, printable
from distrun.spec.resources import bundled_jobs
from distrun.spec.target import find_target
from distrun.spec.yamlnodes import Verbatim, node_of
from distrun.spec.yamltext import yaml_text
from distrun.strategies import STRATEGIES, USUAL, Role, Strategy, Workers

_SEPARATOR = re.compile(r",(?![^\[\]]*\])")
"""A comma that is not inside the brackets of a range of hosts."""
_DRAFT_KEYS = ("program", "hosts", "hostfile", "kubernetes", "ssh")
_SINGLE = "default"
_OPTIONS = {
    "": "distrun run", "name": "--name", "strategy": "--strategy", "cluster": "-n",
    "cluster.chief": "--chief", "cluster.ps": "--ps", "hosts": "--hosts",
    "hostfile": "--hostfile", "kubernetes": "--image", "program": "SCRIPT",
    "program.args": "the script's arguments", "program.python": "--python",
    "program.workdir": "--print-spec", "program.env": "--env", "program.pass_env": "--env",
}  # fmt: skip
"""The option that each key of the spec comes from."""


class RunOptions(Frozen, kw_only=True):
    """What a command line of `distrun run` says. Paths are relative to the current folder."""

    program: str
    """A script, a bundled job, a module or a command."""
    args: tuple[str, ...] = ()
    is_module: bool = False
    name: str | None = None
    strategy: str | None = None
    workers: int | None = None
    ps: int | None = None
    has_chief: bool = False
    hosts: tuple[str, ...] = ()
    """Names, ranges or `name:slots`, separated by commas."""
    hostfile: str | None = None
    image: str | None = None
    python: str | None = None
    env: tuple[str, ...] = ()
    """`NAME=VALUE` each, or `NAME`, which is taken from the launching shell."""

    def content(self, cwd: str, base: str) -> dict[str, Any]:
        """Return the spec without strategy and cluster. Paths begin with `base`, if it has any."""
        name = default_name(self._main_word) if self.name is None else self.name
        content: dict[str, Any] = {"name": Verbatim(name), "program": self._program(cwd, base)}
        if len(self.hosts) == 1 and self.hosts[0] in CLUSTERS:
            content["hosts"] = self.hosts[0]
        elif self.hosts:
            items = Counter(item for each in self.hosts for item in _SEPARATOR.split(each))
            content["hosts"] = [_host(*each) for each in items.items()]
        if self.hostfile is not None:
            content["hostfile"] = os.path.join(base, self.hostfile)
        if self.image is not None:
            content["kubernetes"] = {"image": Verbatim(self.image)}
        return content

    def cluster(self, strategy: Strategy | None, workers: int) -> dict[str, int]:
        """Return the tasks by role: `workers`, and those that options ask for or that it needs."""
        rules = strategy.roles if strategy is not None else {}
        least = {role: rules[role].least if role in rules else 0 for role in Role}
        counts = {
            Role.CHIEF: int(self.has_chief) or least[Role.CHIEF],
            Role.WORKER: workers,
            Role.PS: least[Role.PS] if self.ps is None else self.ps,
        }
        return {role.value: count for role, count in counts.items() if count}

    @property
    def _main_word(self) -> str:
        """The word that names the job: the script, also if an interpreter stands before it."""
        if self.is_module:
            return self.program.rpartition(".")[2]
        is_plain = "." not in self.program and "/" not in self.program
        scripts = [word for word in self.args if word.endswith(".py")] if is_plain else []
        return scripts[0] if scripts else self.program

    def _program(self, cwd: str, base: str) -> dict[str, Any]:
        word, path = self.program, os.path.join(cwd, self.program)
        program: dict[str, Any] = {}
        if self.is_module:
            program["module"] = word
        elif _is_command(word, path):
            here = base or ("" if "/" in word else os.curdir)
            word = os.path.join(here, word) if os.path.isfile(path) else word
            program["command"] = [Verbatim(word)]
        else:
            is_path = os.path.exists(path) or "/" in word
            program["script"] = os.path.join(base, word) if is_path else word
        if self.args:
            program["args"] = [Verbatim(each) for each in self.args]
        if self.python is not None:
            is_path = "/" in self.python
            program["python"] = os.path.join(base, self.python) if is_path else self.python
        if base:
            program["workdir"] = base
        given = (each.partition("=") for each in self.env if "=" in each)
        env = {name: Verbatim(value) for name, _, value in given}
        passed = [each for each in self.env if "=" not in each]
        return {
            **program,
            **({"env": env} if env else {}),
            **({"pass_env": passed} if passed else {}),
        }


def _is_command(word: str, path: str) -> bool:
    """Whether a word is no Python script but another program, by its path or in PATH."""
    if word.lower().endswith((".py", ".pyw", ".ipynb")) or os.path.isdir(path):
        return False
    if os.path.isfile(path) or "/" in word:
        return os.access(path, os.X_OK)
    is_found = shutil.which(word) is not None
    return is_found and word not in bundled_jobs() and not os.path.exists(f"{path}.py")


def _host(item: str, times: int) -> str | dict[str, Any]:
    """Return a host; one that is named several times has as many slots, as for mpirun."""
    found = HOST_WITH_SLOTS.fullmatch(item)
    if found is None and times == 1:
        return item
    name, slots = (item, 1) if found is None else (found[1], int(found[2]))
    return {"name": name, "slots": times * slots}


def load(
    options: RunOptions,
    comment: str,
    *,
    overrides: Sequence[str],
    absolute: bool = False,
    is_forced: bool = False,
    is_printed: bool = False,
) -> tuple[Spec, list[str]]:
    """Choose what the options leave open. Return the spec, and what was chosen and why.

    `comment`: the first lines of the spec's text. `absolute`: it has absolute paths. `is_printed`:
    nothing runs, so that nodes of Slurm need not be known.

    Raises:
        UsageError: the program is a YAML file.
        SpecProblemsError: an InvalidSpecError. Each problem names the option that it is about.
    """
    _refuse_spec(options.program)
    loader = _Loader(options, overrides, is_forced=is_forced, is_printed=is_printed)
    return loader.load(comment, absolute=absolute), loader.choices


def _refuse_spec(program: str) -> None:
    if program.endswith((".yaml", ".yml")) and not os.access(program, os.X_OK):
        raise UsageError(
            f"{printable(program)} is a YAML file, and `run` takes a script",
            hint=f"distrun launch {printable(shlex.quote(program))}",
        )


class _Loader:
    def __init__(
        self, options: RunOptions, overrides: Sequence[str], *, is_forced: bool, is_printed: bool
    ) -> None:
        self._options = options
        # Without -n, there is a worker for each of the nodes.
        self._is_submitted = None if is_printed and options.workers is not None else False
        self._overrides = overrides
        self._is_forced = is_forced
        self.choices: list[str] = []
        self._marks = {key: Mark(option) for key, option in _OPTIONS.items()}
        passed = 0
        for name, equals, _ in (each.partition("=") for each in options.env):
            key = f"program.env.{name}" if equals else f"program.pass_env[{passed}]"
            self._marks[key] = Mark(f"--env {name}")
            passed += not equals
        cwd = current_folder()
        self._origin = SpecOrigin(file=BY_RUN, folder=cwd, cwd=cwd)

    def load(self, comment: str, *, absolute: bool) -> Spec:
        cwd = self._origin.cwd
        content = self._options.content(cwd, cwd if absolute else "")
        written = self._nodes(content)
        chosen = self._choose(written, self._draft(written))
        root = self._nodes({"name": content.pop("name"), **chosen, **content})
        text = comment + yaml_text(escape(root))
        return replace(self._read(root), source=text, origin=self._origin)

    def _nodes(self, content: dict[str, Any]) -> Mapping:
        problems = Problems()
        root = override(node_of(content, "", problems, self._marks), self._overrides, problems)
        problems.raise_if_any()
        assert isinstance(root, Mapping)  # noqa: S101 - a setting changes what is in it
        return root

    def _read(self, root: Mapping, *, is_draft: bool = False) -> Spec:
        problems = Problems()
        document = SPEC.read(root, "", problems)
        context = LoadContext(
            **vars(self._origin),
            environ=os.environ,
            is_draft=is_draft,
            is_submitted=self._is_submitted,
            is_forced=self._is_forced,
        )
        return build(document, context, problems)

    def _draft(self, written: Mapping) -> Spec:
        mark = written.mark
        strategy = Entry(Scalar(mark, "strategy"), Scalar(mark, _SINGLE))
        entries = (each for each in written.entries if each.key.text in _DRAFT_KEYS)
        return self._read(replace(written, entries=(strategy, *entries)), is_draft=True)

    def _choose(self, written: Mapping, draft: Spec) -> dict[str, Any]:
        """Return strategy, tasks and `workers`: those of the options, or what fits the program."""
        options = self._options
        strategy = _text(written, "strategy") or options.strategy
        if strategy is None and options.ps is not None:
            strategy = next(row.name for row in STRATEGIES.values() if Role.PS in row.roles)
            self._marks["strategy"] = Mark("--ps")
        is_python = find_target(draft) is not None  # other programs need no time for the checks
        slots = sum(host.slots or 1 for host in draft.hosts)
        is_group = options.has_chief or (options.workers or slots) > 1
        found = None
        if strategy is None and is_python:
            from distrun.lint.program import read_program
            from distrun.spec.program_strategy import choose_strategy

            found = choose_strategy(read_program(draft), is_group=is_group)
        usual = USUAL if is_group else _SINGLE
        if found is not None:
            strategy, self._marks["strategy"] = found[0], found[1].mark
            if strategy != usual:  # else it is as without the script
                where = self._marks["strategy"]
                self.choices.append(f"strategy: {strategy}, because {where} {found[2]}")
        elif strategy is None:
            strategy, self._marks["strategy"] = usual, self._marks[""]
        row = STRATEGIES.get(strategy)
        chosen: dict[str, Any] = {"strategy": strategy}
        kind = _text(written, "workers")
        if row and row.independent and not kind and is_python:
            from distrun.lint.program import read_program
            from distrun.lint.rules import short
            from distrun.spec.program_strategy import independent_use

            if (shown := independent_use(read_program(draft))) is not None:
                kind = chosen["workers"] = Workers.INDEPENDENT.value
                self._marks["workers"] = shown.mark
                self.choices.append(f"workers: {kind}, because {shown.mark} uses {short(shown)}")
        if row is not None and kind == Workers.INDEPENDENT.value:
            row = row.with_workers(Workers.INDEPENDENT)
        is_single = row is not None and not row.tf_config
        others = len(options.cluster(row, 0))
        workers = options.workers or (1 if is_single else max(1, slots - others))
        if is_single and workers > 1:
            what = f"the script {found[2]}, which" if found else strategy
            message = f"{what} runs in one process, but -n is {workers}"
            hint = f"leave out -n, or use the strategy {USUAL} in the script and as --strategy"
            problems = Problems()
            problems.add(self._marks["strategy"], message, hint)
            problems.raise_if_any()
        cluster = options.cluster(row, workers)
        return chosen if is_single and len(cluster) == 1 else {**chosen, "cluster": cluster}


def _text(root: Mapping, key: str) -> str | None:
    """Return what is written for a key; None: nothing, or no text."""
    entry = root.get(key)
    return entry.value.text if entry is not None and isinstance(entry.value, Scalar) else None
