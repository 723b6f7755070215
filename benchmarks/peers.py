"""Installs the launchers that distrun is compared with, into a folder of their own.

Debian's packages are unpacked there and not installed: nothing outside of the folder changes. What
cannot be had, because there is no apt or no network, is left out with a line that says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_FROM_DEBIAN = ("openmpi-bin", "mpich", "parallel")
_FROM_PYPI = ("honcho", "ClusterShell")
TORCH = "torch==2.13.0"
"""The requirement of torchrun. PyPI's needs 3 GB with what it requires; another can be named."""
_DONE = "installed"
_LINE = re.compile(r"\d[\d.]{2,}")


@dataclass(frozen=True)
class Peers:
    """The folder with the peers.

    Attributes:
        folder: has `venv`, for the packages of PyPI, and `root`, for those of Debian.
    """

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def variables(self) -> dict[str, str]:
        """What the programs of `root` need, because they are not where they were built for."""
        libraries = self.root / "usr" / "lib" / "x86_64-linux-gnu"
        found = (libraries, libraries / "openmpi" / "lib", self.root / "lib" / libraries.name)
        prefix = self.root / "usr"
        has_own = (prefix / "share" / "openmpi").exists()  # else this machine has the package
        return {
            "LD_LIBRARY_PATH": ":".join(map(str, found)),
            **({"OPAL_PREFIX": str(prefix)} if has_own else {}),
            "PMIX_MCA_pcompress_base_silence_warning": "1",
        }

    def program(self, name: str) -> str | None:
        """The path of a program; None if it could not be installed."""
        for folder in (self.folder / "venv" / "bin", self.root / "usr" / "bin"):
            if (folder / name).exists():
                return str(folder / name)
        return None

    def version(self, argv: list[str]) -> str:
        """The first version that a command prints."""
        done = subprocess.run(
            argv,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        found = _LINE.search(done.stdout + done.stderr)
        return found[0] if found else "?"


def install(folder: Path, torch: str = TORCH) -> Peers:
    """Install the peers into a folder, once; say what is missing."""
    peers = Peers(folder)
    wanted = "\n".join((*_FROM_DEBIAN, *_FROM_PYPI, torch))
    stamp = folder / _DONE
    if stamp.exists() and stamp.read_text() == wanted:
        return peers
    folder.mkdir(parents=True, exist_ok=True)
    _unpack_packages(folder)
    python = folder / "venv" / "bin" / "python"
    _run(sys.executable, "-m", "venv", str(folder / "venv"))
    for requirement in (*_FROM_PYPI, torch):
        _run(str(python), "-m", "pip", "install", "--quiet", requirement)
    stamp.write_text(wanted)
    return peers


def _unpack_packages(folder: Path) -> None:
    """Unpack Debian's packages, and those that they need and this machine lacks."""
    if shutil.which("apt-get") is None:
        print(f"no apt-get: {', '.join(_FROM_DEBIAN)} are left out", file=sys.stderr)
        return
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = (f"Dir::Cache::archives={archives}", "Debug::NoLocking=1", "APT::Sandbox::User=root")
    chosen = [word for option in options for word in ("-o", option)]
    flags = ("--yes", "-qq", "--no-install-recommends", "--download-only", "--reinstall")
    for package in _FROM_DEBIAN:
        _run("apt-get", *chosen, *flags, "install", package)
    for archive in sorted(archives.glob("*.deb")):
        _run("dpkg", "-x", str(archive), str(folder / "root"))


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        print(f"{' '.join(argv)}: {' '.join(last)}", file=sys.stderr)
