"""The versions of distrun, and of Python and TensorFlow where the tasks of this machine run.

They are read from the names of files, because each launch waits for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from distrun.spec.model import ProgramSpec

_PACKAGE = re.compile(
    # Not tensorflow_datasets and the like, which have versions of their own.
    r"(?:(?:tensorflow|tf_nightly)(?:_(?:aarch64|cpu|cpu_aws|gpu|intel|macos|rocm|tpu))?"
    r"|intel_tensorflow(?:_avx512)?)-(\d[^-]*)\.dist-info"
)
_PYTHON = re.compile(r"python(\d+\.\d+)")


def versions(program: ProgramSpec) -> dict[str, str]:
    """Return the versions by name. What is not found is left out.

    Args:
        program: its interpreter on this machine counts; a command has none.
    """
    found = {"distrun": sys.modules["distrun"].__version__}  # the package of this module
    named = program.python or (program.interpreter.path if program.interpreter else "")
    if not named and program.argv:
        return found
    path = shutil.which(named or sys.executable) or ""
    is_own = os.path.abspath(path) == os.path.abspath(sys.executable)
    folders = [Path(each) for each in sys.path if each] if is_own else []
    libraries = Path(os.path.abspath(path)).parent.parent / "lib"
    for library in sorted(libraries.glob("python3.*")) if path else ():
        folders += [library / "site-packages", library / "dist-packages"]
        if version := _PYTHON.fullmatch(library.name):
            found["Python"] = version[1]
    if is_own:
        found["Python"] = ".".join(map(str, sys.version_info[:3]))
    tensorflow = next(_tensorflow(folders), "")
    return {**found, "TensorFlow": tensorflow} if tensorflow else found


def _tensorflow(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if package := _PACKAGE.fullmatch(name):
                    yield package[1]


def here() -> dict[str, str]:
    """Return the versions of distrun, and of packages for this interpreter."""
    from importlib import metadata  # slow, and a launch does not need it

    found = {"distrun": sys.modules["distrun"].__version__}
    for name in ("tensorflow", "tf_keras", "keras", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
