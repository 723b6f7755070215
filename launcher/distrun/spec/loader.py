"""Loads a spec file: YAML in, the frozen :class:`~distrun.spec.model.Spec` or its problems out."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Environ
from dataclasses import fields, replace
from typing import Any, TypeAlias

from distrun.errors import UsageError
from distrun.spec import nodes
from distrun.spec.build import build
from distrun.spec.context import LoadContext
from distrun.spec.input_files import DESCRIPTORS, STDIN, STDIN_NAME, decode, read_spec
from distrun.spec.model import BY_RUN, SPEC, Spec, SpecOrigin
from distrun.spec.nodes import Entry, Mapping, Node, Scalar, describe, expand
from distrun.spec.problems import Mark, Problems, nearest, printable, quoted
from distrun.spec.schema import keys_in
from distrun.spec.yamlnodes import MAX_DEPTH, OF_PROGRAM, node_of, parse
from distrun.spec.yamltext import yaml_text

_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[([0-9]{1,6})\]")
_Step: TypeAlias = str | int
_TFJOB = re.compile(r"""(?:^|[{,])[ \t]*["']?kind["']?:[ \t]*["']?TFJob\b""", re.MULTILINE)
_BEGIN = "begin with 'strategy: multi_worker_mirrored', or let 'distrun init' write a spec"


def refuse_script(path: str) -> None:
    """Raise UsageError if the path is that of a Python script."""
    if path.endswith((".py", ".pyw")):
        shown = printable(shlex.quote(path))
        raise UsageError(
            f"{shown} is a Python script, and no YAML file; to run it: distrun run {shown}",
            hint=f"to write its YAML file: distrun run --print-spec {shown} > job.yaml",
        )


def load(
    path: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    extra_args: Sequence[str] = (),
    name: str | None = None,
    cwd: str | None = None,
    environ: Environ[str, str] | None = None,
    is_submitted: bool | None = False,
    is_forced: bool = False,
) -> Spec:
    """Read the spec at `path` (`-`: standard input).

    Args:
        path: the file; relative to `cwd`.
        overrides: `PATH=VALUE` each, as for `--set`.
        extra_args: appended to the program's arguments.
        name: the job's name; overrides the name in the spec.
        cwd: the folder where launch was called. Default: the current folder.
        environ: the environment for `pass_env`. Default: this process's.
        is_submitted: whether the job is to be queued, so that its hosts are not known yet;
            None: it is only checked.
        is_forced: take a notebook or the like as a script, too.

    Raises:
        UsageError: there is no such file.
        SpecProblemsError: an InvalidSpecError with every problem and its position.
    """
    path = os.fspath(path)
    refuse_script(path)
    problems = Problems()
    cwd = os.path.abspath(cwd or current_folder())
    shown = STDIN_NAME if path == STDIN else path
    whole = path if path == STDIN else os.path.join(cwd, path)
    is_piped = path == STDIN or whole.startswith(DESCRIPTORS)
    context = LoadContext(
        file=shown,
        folder=cwd if is_piped else os.path.normpath(os.path.dirname(whole)),
        cwd=cwd,
        name=name,
        extra_args=tuple(extra_args),
        overrides=tuple(overrides),
        environ=os.environ if environ is None else environ,
        is_submitted=is_submitted,
        is_forced=is_forced,
    )
    return _read(read_spec(whole, shown, problems), context, problems)


def load_mapping(
    content: Environ[str, Any],
    *,
    overrides: Sequence[str] = (),
    extra_args: Sequence[str] = (),
    name: str | None = None,
) -> Spec:
    """Read a spec that a program has made of dicts, lists and values.

    The place of a problem is its key, such as `cluster.worker`. Paths are relative to the current
    folder. The other arguments are those of :func:`load`.

    Raises:
        SpecProblemsError: as :func:`load`.
    """
    problems, cwd = Problems(), current_folder()
    root = node_of(content, "", problems)
    problems.raise_if_any()
    context = LoadContext(
        file=OF_PROGRAM,
        folder=cwd,
        cwd=cwd,
        name=name,
        extra_args=tuple(extra_args),
        overrides=tuple(overrides),
        environ=os.environ,
    )
    return _build(root, yaml_text(root), context, problems)


def reload(
    spec: Spec, overrides: Sequence[str], extra_args: Sequence[str] | None = None, **how: Any
) -> Spec:
    """Read the text of a spec again, with further `PATH=VALUE`, in this process's environment.

    `extra_args` replace those of before; of `distrun run`, all of the script. None: they stay, but
    not beside `program.args` in `overrides`. `program.workdir` there is where a folder has moved.
    `how`: `is_submitted`, as for :func:`load`.

    Raises:
        SpecProblemsError: as :func:`load`.
    """
    assert spec.origin is not None  # noqa: S101 - both loaders set it
    context = LoadContext(**vars(spec.origin), **how, environ=os.environ)
    keys = {each.partition("=")[0] for each in overrides}
    if extra_args is not None and context.file == BY_RUN:
        overrides = (*overrides, "program.args=[]")
    if extra_args is not None or "program.args" in keys:
        context = replace(context, extra_args=tuple(extra_args or ()))
    if "program.workdir" in keys and not os.path.isdir(context.folder):
        context = replace(context, folder=current_folder(), cwd=current_folder())
    context = replace(context, overrides=(*context.overrides, *overrides))
    return _read(spec.source.encode(), context, Problems())


def _read(content: bytes | None, context: LoadContext, problems: Problems) -> Spec:
    root = None if content is None else _root(content, context.file, problems)
    if content is None or root is None:
        raise problems.error()
    return _build(root, content.decode("utf-8"), context, problems)


def _build(root: Node, text: str, context: LoadContext, problems: Problems) -> Spec:
    root = expand(override(root, context.overrides, problems), context.environ, problems)
    spec = build(SPEC.read(root, "", problems), context, problems)
    origin = SpecOrigin(**{each.name: getattr(context, each.name) for each in fields(SpecOrigin)})
    return replace(spec, source=text, origin=origin)


def current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", hint="cd to one that exists") from None


def _root(content: bytes, shown: str, problems: Problems) -> Node | None:
    """The outermost mapping of the spec, or None after adding a problem."""
    text = decode(content, shown, problems)
    if text is not None and _TFJOB.search(text):
        path = STDIN if shown == STDIN_NAME else printable(shlex.quote(shown))
        hint = f"convert it: distrun import {path}"
        problems.add(Mark(shown, 1, 1), "this is a TFJob of Kubeflow, not a spec", hint)
        return None
    root = None if text is None else parse(text, shown, problems)
    if root is None or (isinstance(root, Mapping) and not _is_foreign(root)):
        return root
    if isinstance(root, Scalar) and root.empty:
        problems.add(Mark(shown, 1, 1), "this file is empty", _BEGIN)
    elif isinstance(root, Mapping):
        names = [quoted(each.key.text) for each in root.entries]
        few = ", ".join((*names[:3], *["..."][: len(names[3:])]))
        what = f"this is not a spec: it has no key that distrun knows ({few})"
        inner = root.entries[0].value
        is_around = not names[1:] and isinstance(inner, Mapping) and not _is_foreign(inner)
        hint = f"write what is below {names[0]} at the top level" if is_around else _BEGIN
        problems.add(Mark(shown, 1, 1), what, hint)
    else:
        problems.add(root.mark, f"a spec is a mapping of keys, not {describe(root)}", _BEGIN)
    return None


def _is_foreign(root: Mapping) -> bool:
    """Whether a file is for another tool: no key is a spec's, and few are like one of a spec."""
    names = [each.key.text.casefold() for each in root.entries]
    inner = {each for key in SPEC.keys.values() for each in keys_in(key.schema)}
    if not names or any(each in SPEC.keys or each in inner for each in names):
        return False
    return 2 * sum(nearest(each, SPEC.keys) is not None for each in names[:20]) < len(names)


class _PathError(Exception):
    """The path cannot be followed. The message says where it ends."""


def override(root: Node, settings: Iterable[str], problems: Problems) -> Node:
    """`root` with every `PATH=VALUE` applied in order. Invalid ones become problems."""
    for setting in settings:
        root = _apply(root, setting, problems)
    return root


def _apply(root: Node, setting: str, problems: Problems) -> Node:
    mark = Mark(f"--set {setting}")
    path, equals, text = setting.partition("=")
    steps = _steps(path)
    if not equals or steps is None:
        problems.add(mark, "this is not PATH=VALUE", "write for example cluster.worker=4")
        return root
    value = parse(text, mark.file, problems, whole=mark)
    if value is None:
        return root
    if isinstance(value, Scalar) and value.plain and re.search(r"(^|\s)#", text):
        problems.add(mark, "to YAML, '#' begins a comment", "put quotes around the text as well")
        return root
    try:
        return _assigned(root, steps, value, mark, "")
    except _PathError as error:
        problems.add(mark, str(error), "set the whole of it instead")
        return root


def _steps(path: str) -> list[_Step] | None:
    """`hosts[1].slots` -> ["hosts", 1, "slots"]; None if that is not a path."""
    steps: list[_Step] = []
    end = 0
    while end < len(path):
        match = _STEP.match(path, end)
        if not match or len(steps) == MAX_DEPTH:
            return None
        steps.append(match[1] or int(match[2]))
        end = match.end()
    return steps if steps and isinstance(steps[0], str) else None


def _assigned(node: Node | None, steps: list[_Step], value: Node, mark: Mark, path: str) -> Node:
    """A copy of `node`, which is at `path`, with the value at the end of `steps`.

    Missing keys on the way are created. Raises _PathError.
    """
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        if node is None:
            raise _PathError(f"{path} is not there, so it has no item {step}")
        if not isinstance(node, nodes.Sequence):
            raise _PathError(f"{path} is {describe(node)}, not a list")
        if step > len(node.items):
            raise _PathError(f"{path} has {len(node.items)} items and no {path}[{step}]")
        old = node.items[step] if step < len(node.items) else None
        new = _assigned(old, rest, value, mark, f"{path}[{step}]")
        return replace(node, items=(*node.items[:step], new, *node.items[step + 1 :]))
    if node is None or (isinstance(node, Scalar) and node.empty):
        node = Mapping(mark, ())
    if re.fullmatch(r"cluster\.\w+", path) and not isinstance(node, Mapping):
        form = "addresses" if isinstance(node, nodes.Sequence) else "count"  # short for a mapping
        node = Mapping(node.mark, (Entry(Scalar(node.mark, form), node),))
    if not isinstance(node, Mapping):
        raise _PathError(f"{path} is {describe(node)}, which has no key {quoted(step)}")
    found = node.get(step)
    inner = f"{path}.{step}" if path else step
    child = _assigned(found.value if found else None, rest, value, mark, inner)
    # An existing key keeps its place, so that problems with it name the place in the file.
    entry = Entry(found.key if found else Scalar(mark, step), child)
    entries = tuple(entry if old is found else old for old in node.entries)
    return replace(node, entries=entries if found else (*entries, entry))
