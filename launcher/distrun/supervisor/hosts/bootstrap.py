"""The agent as bytes for the standard input of a login on a host that has only a python3.

The command on the host reads one line from standard input: a program, which knows the size of the
agent's modules. It reads them and runs the agent. The link's messages follow the modules. Each
module is sent as source, and also compiled for hosts with the same version of Python as this one,
because compiling would take most of an agent's start.

A host keeps the modules, and later agents are started from its copy: see :mod:`.sent_agents`. If
that is gone, or has changed, the login prints NO_COPY, and the next one sends the modules.

To pack the modules takes a third of a second. So they are kept packed where Python keeps its
compiled modules, and are packed again once a source has changed.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import os
import sys
import zlib
from functools import lru_cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.linux.regular import open_regular
from distrun.job import held_package

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

ARGUMENTS = ("-I", "-S", "-c", "exec(open(0,'rb',0,closefd=False).readline())")
"""Of a python3 that reads its program from standard input."""
COMMAND = 'exec python3 {} {} {} "{}"'.format(*ARGUMENTS)
"""It means the same to sh, csh and fish; `exec` leaves no shell in between."""
EXIT_TOO_OLD = 67
TOO_OLD = "distrun: its python3 is"
"""Printed before the version if Python is too old for the agent."""
EXIT_NO_COPY = 69
NO_COPY = "distrun: its copy of the agent is gone"
"""Printed if a host cannot start the agent from its copy of the modules."""
_OLDEST = (3, 8)
_CHECK_BYTES = 4
_SOURCES = Path(__file__).parents[3]
_REATTACH = (
    *("distrun", "distrun.agent", "distrun.agent.reattach", "distrun.agent.structs"),
    *("distrun.agent.linux", "distrun.agent.linux.peers"),
)
"""The modules that pass a new connection to a running agent."""
_ORPHANS = (
    *("distrun.agent.orphans", "distrun.agent.linux.job_processes", "distrun.agent.linux.facts"),
    *("distrun.agent.linux.labels", "distrun.agent.linux.processes", "distrun.agent.linux.regular"),
    "distrun.agent.linux.cgroups",
)
"""The modules that end what the agent has left, if it is gone."""
_APART = ("distrun.agent.former", "distrun.agent.written_files")
"""The modules of logins that start no agent: no agent needs them."""
_SAME_FILES = "distrun.agent.linux.same_files"
"""The module for hosts that may share a file system with this one."""
_SOURCE_ONLY = (
    *("distrun.agent.linux.sock_diag", "distrun.agent.linux.gpus"),
    *("distrun.agent.orphans", "distrun.agent.linux.job_processes"),
    *("distrun.agent.tasks.stacks", "distrun.agent.tasks.profile"),
    "distrun.agent.linux.port_owners",
)
"""Modules that so few agents need that they are not sent compiled."""

# kubectl waits for ever for a process that ends with much of its input unread.
_FIRST = """\
import os, sys
block = b""
while len(block) < {size}:
    more = os.read(0, {size} - len(block))
    if not more:
        os._exit(0)
    block += more
if sys.version_info < {oldest!r}:
    sys.stderr.write("{words} %d.%d\\n" % tuple(sys.version_info[:2]))
    sys.stderr.flush()
    os._exit({too_old})
import zlib
inflate = zlib.decompressobj()
exec(compile(inflate.decompress(block), "distrun", "exec"))
"""

_SENT = """\
modules = inflate.unused_data
"""
_KEPT = """\
modules, path = b"", {path!a}
for name in ("_sha2", "_sha256", "hashlib"):
    try:
        sha256 = __import__(name).sha256
        break
    except ImportError:
        pass
try:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    modules = os.read(file, {size} + 1)
    os.close(file)
    if sha256(modules).hexdigest() == {digest!r}:
        os.utime(path)
    else:
        modules = b""
        os.unlink(path)
except OSError:
    pass
if not modules:
    sys.stderr.write("{words}\\n")
    sys.stderr.flush()
    os._exit({gone})
"""
_SECOND = """\
import marshal
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER

class Modules:
    def __init__(self, magic, names, codes, sources):
        self.names = self.load(names)
        self.codes = self.load(codes) if magic == MAGIC_NUMBER else {}
        self.packed = sources
        self.sources = {}
    def load(self, packed):
        return marshal.loads(zlib.decompress(packed))
    def find_spec(self, name, path=None, target=None):
        if name in self.names or name in self.sources:
            is_package = self.names.get(name)
            return ModuleSpec(name, self, origin="distrun", is_package=is_package)
    def source(self, name):
        if name not in self.sources:
            self.sources.update(self.load(self.packed))
        return self.sources[name]
    def get_source(self, name):
        return self.source(name).decode()
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(self.codes.get(name) or compile(self.source(name), name, "exec"), module.__dict__)

sys.meta_path.insert(0, Modules(*marshal.loads(modules)))
del block, inflate
"""


_AGENT = """\
from distrun.agent import main
main.main_over_ssh({!r}{})
"""


def start_agent(mark: bytes, copy: str = "", *, in_pod: bool = False) -> bytes:
    """Return the input that starts an agent, from the host's own copy if there is one at `copy`."""
    keeping = "" if copy else f", {digest()!r}, modules"
    start = _AGENT.format(mark, ", in_pod=True" if in_pod else keeping)
    return _bootstrap(_agent_modules(), start, copy=copy)


@lru_cache(maxsize=1)
def digest() -> str:
    """The SHA-256 of the agent's modules, packed, as a host keeps them."""
    # Imported here because agents on this machine need none.
    import hashlib

    return hashlib.sha256(_modules(_agent_modules())).hexdigest()


def start_agent_beside_files(mark: bytes, *arguments: object) -> bytes:
    """Return the same input, for a host that first says whether it sees the same files."""
    start = _call(_SAME_FILES, "announce", *arguments) + _AGENT.format(mark, "")
    return _bootstrap(_agent_modules(), start, _SAME_FILES)


def run(module: str, mark: bytes, *arguments: object) -> bytes:
    """Return the input that runs `main` of a module of the agent's, in place of an agent."""
    start = _call(module, "main", mark, *arguments)
    if module in _REATTACH:
        return _bootstrap(_REATTACH, start, *_ORPHANS)
    return _bootstrap(_agent_modules(), start, module)


def _call(module: str, function: str, *arguments: object) -> str:
    return f"from {module} import {function}\n{function}({', '.join(map(ascii, arguments))})\n"


@lru_cache(maxsize=1)
def _agent_modules() -> tuple[str, ...]:
    """The dotted names of the modules that every agent is sent, packages included."""
    found = {"distrun"}
    for path in (_SOURCES / "distrun" / "agent").rglob("*.py"):
        parts = path.relative_to(_SOURCES).with_suffix("").parts
        found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return tuple(sorted(found.difference({*_APART, _SAME_FILES})))


def _file_of(name: str) -> tuple[Path, bool]:
    """A module's file, and whether the module is a package."""
    path = _SOURCES.joinpath(*name.split("."))
    inside = path / "__init__.py"
    is_package = held_package.exists(str(inside))
    return (inside, True) if is_package else (path.with_suffix(".py"), False)


def _source_of(name: str) -> bytes:
    return held_package.read(str(_file_of(name)[0]))


def _bootstrap(names: tuple[str, ...], start: str, *others: str, copy: str = "") -> bytes:
    """Return the input that runs `start`, a program, with some modules, which are sent packed.

    `others` are sent as sources: to compile them would keep a supervisor from its other hosts.
    """
    if others:
        sources = {name: _source_of(name) for name in others}
        start = f"sys.meta_path[0].sources.update({sources!r})\n{start}"
    modules = _modules(names)
    source = _SENT
    if copy:
        source = _KEPT.format(
            path=copy, size=len(modules), digest=digest(), words=NO_COPY, gone=EXIT_NO_COPY
        )
        modules = b""
    block = zlib.compress((source + _SECOND + start).encode("ascii")) + modules
    first = _FIRST.format(oldest=_OLDEST, words=TOO_OLD, too_old=EXIT_TOO_OLD, size=len(block))
    return f"exec({first!r})\n".encode("ascii") + block


@lru_cache(maxsize=2)
def _modules(names: tuple[str, ...]) -> bytes:
    """The modules, packed: see :func:`_pack`."""
    state, kept = _state_of(names), Path(cache_from_source(__file__)).with_suffix(".modules")
    with contextlib.suppress(OSError):
        found = _read(kept)
        packed = found[len(state) : -_CHECK_BYTES]
        if found == state + packed + _check(packed):
            return packed
    packed = _pack(names)
    if not sys.dont_write_bytecode and names != _REATTACH:
        # Imported here because it is needed once after an installation.
        from distrun.job.folder import replace_file

        with contextlib.suppress(OSError):  # the installation may be read-only
            kept.parent.mkdir(exist_ok=True)
            replace_file(kept, state + packed + _check(packed))
    return packed


def _pack(names: tuple[str, ...]) -> bytes:
    """Python's version, the modules, and compressed the code of most, and all sources."""
    # Imported here because it is needed once after an installation.
    import ast

    sources = {name: _without_comments(_source_of(name)) for name in names}
    sources["distrun"] = b""  # the agent needs nothing that users import from the top package
    codes = {}
    for name in names:
        if name not in _SOURCE_ONLY:
            tree = ast.parse(sources[name])
            tree.body = [*_executed(tree.body)]
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    node.returns = None
                elif isinstance(node, ast.arg):
                    node.annotation = None
                # Tracebacks show lines only: columns would be a fifth of all bytes.
                if isinstance(node, (ast.stmt, ast.expr)):
                    node.end_lineno = node.lineno
                    node.col_offset = node.end_col_offset = -1
            codes[name] = compile(tree, name, "exec", dont_inherit=True, optimize=2)
    is_package = {name: _file_of(name)[1] for name in names}
    # Every Python reads version 2 of the format. The code is marshalled as one object so that names
    # that many modules use are stored once. The sources are apart: most agents need none.
    parts = (marshal.dumps(is_package, 2), marshal.dumps(codes), marshal.dumps(sources, 2))
    return marshal.dumps((MAGIC_NUMBER, *(zlib.compress(each, 9) for each in parts)), 2)


def _without_comments(source: bytes) -> bytes:
    """Return a module without its comments; the numbers of its lines stay."""
    import tokenize

    lines = source.decode().split("\n")
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines).encode()


def _executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Leave out what only type checkers need: `typing` would take a tenth of an agent's start."""
    for each in body:
        if getattr(getattr(each, "test", None), "id", "") == "TYPE_CHECKING":
            yield from getattr(each, "orelse", ())
        elif getattr(each, "module", "") != "typing":
            yield each


def _read(path: Path) -> bytes:
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _check(packed: bytes) -> bytes:
    """Bytes that show damage, as a full disk or a power failure leaves it."""
    return zlib.crc32(packed).to_bytes(_CHECK_BYTES, "big")


def _state_of(names: tuple[str, ...]) -> bytes:
    """Bytes that change when a module changes, or what packs it, or Python."""
    files = (Path(__file__), *(_file_of(name)[0] for name in names))
    state = (MAGIC_NUMBER, sys.version, names, [held_package.state(str(each)) for each in files])
    return repr(state).encode()
