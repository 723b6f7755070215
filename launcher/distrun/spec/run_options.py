"""The options of `distrun run`, and the spec that they amount to."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec.build import default_name
from distrun.spec.hosts import HOST_WITH_SLOTS
from distrun.spec.model import CLUSTERS
from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence
from distrun.spec.problems import Mark
from distrun.strategies import Role

if TYPE_CHECKING:
    from distrun.spec.context import LoadContext
    from distrun.strategies import Strategy

_COUNT, _SCRIPT = "-n", "SCRIPT"
_SEPARATOR = re.compile(r",(?![^\[\]]*\])")
"""A comma that is not inside the brackets of a range of hosts."""


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

    def document(self, context: LoadContext, *, absolute: bool) -> Mapping:
        """Return the spec without strategy and cluster. The mark of each node is its option.

        Absolute paths make a spec that means the same in any folder.
        """
        base = context.cwd if absolute else ""
        name = default_name(self._main_word) if self.name is None else self.name
        keys: dict[str, Node] = {
            "name": _scalar("--name", name, verbatim=True),
            "program": _mapping(_SCRIPT, self._program(context, base)),
        }
        if len(self.hosts) == 1 and self.hosts[0] in CLUSTERS:
            keys["hosts"] = _scalar("--hosts", self.hosts[0])
        elif self.hosts:
            items = [item for each in self.hosts for item in _SEPARATOR.split(each)]
            keys["hosts"] = Sequence(Mark("--hosts"), tuple(map(_host, items)))
        if self.hostfile is not None:
            keys["hostfile"] = _scalar("--hostfile", os.path.join(base, self.hostfile))
        if self.image is not None:
            image = _scalar("--image", self.image, verbatim=True)
            keys["kubernetes"] = _mapping("--image", {"image": image})
        return _mapping("distrun run", keys)

    def cluster(self, strategy: Strategy | None, workers: int) -> Mapping:
        """Return the tasks by role: `workers`, and those that options ask for or that it needs."""
        rules = strategy.roles if strategy is not None else {}
        least = {role: rules[role].least if role in rules else 0 for role in Role}
        counts = (
            (Role.CHIEF, "--chief", int(self.has_chief) or least[Role.CHIEF]),
            (Role.WORKER, _COUNT, workers),
            (Role.PS, "--ps", least[Role.PS] if self.ps is None else self.ps),
        )
        keys: dict[str, Node] = {
            role.value: _scalar(mark, count) for role, mark, count in counts if count
        }
        return _mapping(_COUNT, keys)

    @property
    def _main_word(self) -> str:
        """The word that names the job: the script, also if an interpreter stands before it."""
        if self.is_module:
            return self.program.rpartition(".")[2]
        is_plain = "." not in self.program and "/" not in self.program
        scripts = [word for word in self.args if word.endswith(".py")] if is_plain else []
        return scripts[0] if scripts else self.program

    def _program(self, context: LoadContext, base: str) -> dict[str, Node]:
        word, path = self.program, os.path.join(context.cwd, self.program)
        keys: dict[str, Node] = {}
        if self.is_module:
            keys["module"] = _scalar(_SCRIPT, word)
        elif _is_command(word, path, context):
            word = os.path.join(base or os.curdir, word) if os.path.isfile(path) else word
            keys["command"] = _texts(_SCRIPT, (word,))
        else:
            is_path = os.path.exists(path) or "/" in word
            keys["script"] = _scalar(_SCRIPT, os.path.join(base, word) if is_path else word)
        if self.args:
            keys["args"] = _texts("the script's arguments", self.args)
        if self.python is not None:
            is_path = "/" in self.python
            python = os.path.join(base, self.python) if is_path else self.python
            keys["python"] = _scalar("--python", python)
        if base:
            keys["workdir"] = _scalar("--print-spec", base)
        return {**keys, **self._variables()}

    def _variables(self) -> dict[str, Node]:
        given: dict[str, Node] = {}
        for name, equals, text in (each.partition("=") for each in self.env):
            if equals:
                given[name] = _scalar(f"--env {name}", text, verbatim=True)
        passed = tuple(_scalar(f"--env {each}", each) for each in self.env if "=" not in each)
        keys: dict[str, Node] = {}
        if given:
            keys["env"] = _mapping("--env", given)
        if passed:
            keys["pass_env"] = Sequence(Mark("--env"), passed)
        return keys


def _is_command(word: str, path: str, context: LoadContext) -> bool:
    """Whether a word is no Python script but another program, by its path or in PATH."""
    if word.endswith((".py", ".pyw")) or os.path.isdir(path):
        return False
    if os.path.isfile(path) or "/" in word:
        return os.access(path, os.X_OK)
    from distrun.spec.resources import bundled_jobs

    is_found = shutil.which(word, path=context.environ.get("PATH")) is not None
    return is_found and word not in bundled_jobs() and not os.path.exists(f"{path}.py")


def _host(item: str) -> Node:
    found = HOST_WITH_SLOTS.fullmatch(item)
    if found is None:
        return _scalar("--hosts", item)
    name, slots = _scalar("--hosts", found[1]), _scalar("--hosts", int(found[2]))
    return _mapping("--hosts", {"name": name, "slots": slots})


def _scalar(option: str, value: str | int, *, verbatim: bool = False) -> Scalar:
    """Return a node for a value. With `verbatim`, a text that is a number needs no quotes."""
    node = Scalar(Mark(option), str(value))
    kinds = (str, int, float) if verbatim or isinstance(value, int) else (str,)
    return Scalar(node.mark, node.text, plain=type(node.value) in kinds)


def _texts(option: str, values: tuple[str, ...]) -> Sequence:
    items = tuple(_scalar(option, value, verbatim=True) for value in values)
    return Sequence(Mark(option), items)


def _mapping(option: str, keys: dict[str, Node]) -> Mapping:
    entries = tuple(Entry(Scalar(value.mark, key), value) for key, value in keys.items())
    return Mapping(Mark(option), entries)
