"""Loads a spec file: YAML in, the frozen :class:`~distrun.spec.model.Spec` or its problems out."""

from __future__ import annotations

import dataclasses
import os
import shlex
from typing import TYPE_CHECKING

from distrun.errors import UsageError
from distrun.spec.build import build
from distrun.spec.context import LoadContext
from distrun.spec.expansion import expand
from distrun.spec.input_files import STDIN, STDIN_NAME, decode, read_spec
from distrun.spec.keys.document import SPEC
from distrun.spec.overrides import override
from distrun.spec.problems import Mark, Problems, printable
from distrun.spec.yamlnodes import Mapping, Node, Scalar, describe, parse

if TYPE_CHECKING:
    from collections.abc import Mapping as Environ
    from collections.abc import Sequence

    from distrun.spec.model import Spec

_BEGIN = "begin with 'strategy: multi_worker_mirrored', or let 'distrun init' write a spec"


def load(
    path: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    extra_args: Sequence[str] = (),
    name: str | None = None,
    cwd: str | None = None,
    environ: Environ[str, str] | None = None,
    allow_unsupported: bool = False,
) -> Spec:
    """Read the spec at `path` (`-`: standard input).

    Args:
        path: the file; relative to `cwd`.
        overrides: `PATH=VALUE` each, as for `--set`.
        extra_args: appended to the program's arguments.
        name: the job's name; overrides the name in the spec.
        cwd: the folder where launch was called. Default: the current folder.
        environ: the environment for `pass_env`. Default: this process's.
        allow_unsupported: accept keys that distrun does not support yet.

    Raises:
        UsageError: there is no such file.
        SpecProblemsError: an InvalidSpecError with every problem and its position.
    """
    path = os.fspath(path)
    if path.endswith((".py", ".pyw")):
        raise UsageError(
            f"{printable(path)} is a Python script, not a YAML file",
            hint=f"distrun run {printable(shlex.quote(path))}",
        )
    problems = Problems()
    cwd = os.path.abspath(cwd or current_folder())
    shown = STDIN_NAME if path == STDIN else path
    whole = path if path == STDIN else os.path.join(cwd, path)
    context = LoadContext(
        file=shown,
        folder=cwd if path == STDIN else os.path.normpath(os.path.dirname(whole)),
        cwd=cwd,
        environ=os.environ if environ is None else environ,
        name=name,
        extra_args=tuple(extra_args),
    )
    content = read_spec(whole, shown, problems)
    root = None if content is None else _root(content, shown, problems)
    if content is None or root is None:
        raise problems.error()
    root = expand(override(root, overrides, problems), context.environ, problems)
    document = SPEC.read(root, "", problems)
    spec = build(document, context, problems, allow_unsupported=allow_unsupported)
    return dataclasses.replace(spec, source=content.decode("utf-8"))


def current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", hint="cd to one that exists") from None


def _root(content: bytes, shown: str, problems: Problems) -> Node | None:
    """The outermost mapping of the spec, or None after adding a problem."""
    text = decode(content, shown, problems)
    root = None if text is None else parse(text, shown, problems)
    if root is None or isinstance(root, Mapping):
        return root
    if isinstance(root, Scalar) and root.empty:
        problems.add(Mark(shown, 1, 1), "this file is empty", _BEGIN)
    else:
        problems.add(root.mark, f"a spec is a mapping of keys, not {describe(root)}", _BEGIN)
    return None
