"""The agent as bytes that go down ssh's standard input to a host that has only a python3.

The command on the host is one line that reads one line, a program, from standard input; that
reads the agent's modules behind it, exactly so many bytes, and the link begins. Each module goes
as its source, and compiled as well, for hosts with the same Python as this one: compiling takes
them longer than everything else they do to start.
"""

from __future__ import annotations

import ast
import marshal
import zlib
from functools import lru_cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path

COMMAND = "exec python3 -I -S -c \"exec(open(0,'rb',0,closefd=False).readline())\""
"""Means the same to sh, csh and fish; with `exec` no shell stays in between."""
EXIT_TOO_OLD = 67
_OLDEST = (3, 8)
_WITHOUT_DOCSTRINGS = 2
_AGENT = Path(__file__).parents[1] / "agent"
_PACKAGES = ("distrun", "distrun.agent")
_KNOCK = ("door", "knock")

_FIRST = """\
import os, sys
if sys.version_info < {oldest!r}:
    sys.stderr.write("distrun: its python3 is %d.%d\\n" % tuple(sys.version_info[:2]))
    sys.stderr.flush()
    os._exit({too_old})
block = b""
while len(block) < {size}:
    more = os.read(0, {size} - len(block))
    if not more:
        os._exit(0)
    block += more
import zlib
inflate = zlib.decompressobj()
exec(compile(inflate.decompress(block), "distrun", "exec"))
"""

_SECOND = """\
import marshal
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER

class Carried:
    def __init__(self, magic, modules):
        self.is_compiled = magic == MAGIC_NUMBER
        self.modules = modules
    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            is_package = name in ("distrun", "distrun.agent")
            return ModuleSpec(name, self, origin="distrun", is_package=is_package)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        source, code = self.modules[module.__name__]
        if self.is_compiled:
            code = marshal.loads(code)
        else:
            code = compile(source, module.__name__, "exec")
        exec(code, module.__dict__)

sys.meta_path.insert(0, Carried(*marshal.loads(zlib.decompress(inflate.unused_data))))
del block, inflate
"""


def agent(mark: bytes) -> bytes:
    """What starts an agent that says `mark` before all else."""
    names = tuple(sorted(path.stem for path in _AGENT.glob("*.py") if path.stem != "__init__"))
    return _bootstrap(names, f"from distrun.agent.remote import main\nmain({mark!r})\n")


def knock(mark: bytes, token: str) -> bytes:
    """What hands a new ssh over to the running agent with that token."""
    return _bootstrap(_KNOCK, f"from distrun.agent.knock import main\nmain({mark!r}, {token!r})\n")


def _bootstrap(names: tuple[str, ...], start: str) -> bytes:
    block = zlib.compress((_SECOND + start).encode("ascii")) + _modules(names)
    first = _FIRST.format(oldest=_OLDEST, too_old=EXIT_TOO_OLD, size=len(block))
    return f"exec({first!r})\n".encode("ascii") + block


@lru_cache(maxsize=2)
def _modules(names: tuple[str, ...]) -> bytes:
    """The modules as (source, code) by name, and which Python the code is for."""
    modules = {name: (b"", marshal.dumps(compile("", name, "exec"))) for name in _PACKAGES}
    for stem in names:
        name = f"distrun.agent.{stem}"
        source = _AGENT.joinpath(f"{stem}.py").read_text()
        tree = ast.parse(source)
        code = compile(tree, name, "exec", dont_inherit=True, optimize=_WITHOUT_DOCSTRINGS)
        modules[name] = (_without_docstrings(source, tree).encode(), marshal.dumps(code))
    # Version 2 of the format has what every Python reads; the code in it is bytes here.
    return zlib.compress(marshal.dumps((MAGIC_NUMBER, modules), 2))


def _without_docstrings(source: str, tree: ast.Module) -> str:
    """The same program with its lines where they were: tracebacks tell the right ones."""
    lines = source.split("\n")
    waiting: list[ast.stmt] = list(tree.body)
    for node in waiting:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            waiting += node.body
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first] = " " * node.col_offset + '""'
            lines[first + 1 : last] = [""] * (last - first - 1)
    return "\n".join("" if line.lstrip().startswith("#") else line for line in lines)
