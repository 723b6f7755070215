"""Loads a spec file: YAML in, the frozen :class:`~distrun.spec.model.Spec` or its problems out."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping as Environ
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from distrun.errors import UsageError
from distrun.spec.build import build
from distrun.spec.input_files import STDIN, STDIN_NAME, decode, read_spec
from distrun.spec.model import BY_RUN, SPEC, LoadContext, Spec, SpecOrigin
from distrun.spec.nodes import Mapping, Node, Scalar, describe, expand
from distrun.spec.overrides import override
from distrun.spec.problems import Mark, Problems, printable
from distrun.spec.yamlnodes import OF_PROGRAM, node_of, parse
from distrun.spec.yamltext import yaml_text

_BEGIN = "begin with 'strategy: multi_worker_mirrored', or let 'distrun init' write a spec"


def refuse_script(path: str) -> None:
    """Raise UsageError if the path is that of a Python script."""
    if path.endswith((".py", ".pyw")):
        raise UsageError(
            f"{printable(path)} is a Python script, and no YAML file: "
            "`distrun run --print-spec` writes one",
            hint=f"distrun run {printable(shlex.quote(path))}",
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
    context = LoadContext(
        file=shown,
        folder=cwd if path == STDIN else os.path.normpath(os.path.dirname(whole)),
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
    if text is not None and re.search(r"^kind:[ \t]*[\"']?TFJob\b", text, re.MULTILINE):
        path = STDIN if shown == STDIN_NAME else printable(shlex.quote(shown))
        hint = f"convert it: distrun import {path}"
        problems.add(Mark(shown, 1, 1), "this is a TFJob of Kubeflow, not a spec", hint)
        return None
    root = None if text is None else parse(text, shown, problems)
    if root is None or isinstance(root, Mapping):
        return root
    if isinstance(root, Scalar) and root.empty:
        problems.add(Mark(shown, 1, 1), "this file is empty", _BEGIN)
    else:
        problems.add(root.mark, f"a spec is a mapping of keys, not {describe(root)}", _BEGIN)
    return None
