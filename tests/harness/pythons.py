"""Other Pythons of this machine, which agents may meet on hosts."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


def of_pyenv(version: str) -> list[Path]:
    """Return pyenv's interpreters of a version, such as `3.8` or `3`; none without a home."""
    home = Path(os.path.expanduser("~"))
    return sorted(home.glob(f".pyenv/versions/{version}.*/bin/python3"))


def python38() -> str | None:
    def candidates() -> Iterator[str]:
        yield from map(str, of_pyenv("3.8"))
        if found := shutil.which("python3.8"):
            yield found

    for each in candidates():
        # A version manager may have a stand-in for a version that is not there.
        if not subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode:
            return each
    return None
