"""The circumstances of a call of `distrun` on which the meaning of a spec depends."""

from __future__ import annotations

import os
from collections.abc import Mapping

from distrun.spec.model import SpecOrigin


class LoadContext(SpecOrigin, kw_only=True):
    """How a spec is read, and the environment of the launching shell."""

    environ: Mapping[str, str]
    is_draft: bool = False
    """Whether the tasks are not known yet, so that placeholders cannot be checked."""
    is_submitted: bool | None = False
    """Whether the job is to be queued: its hosts are nodes that Slurm has not chosen yet.

    None: it is only checked, and would be queued with `hosts: slurm` outside of an allocation.
    """
    is_forced: bool = False
    """Whether a script is taken that Python certainly cannot run as it is written."""

    def resolve(self, path: str) -> str:
        """The absolute path of `path`, which is relative to the spec's folder; `~` is the home."""
        whole = os.path.join(self.folder, os.path.expanduser(path))
        # Behind a symbolic link, only the file system knows what `..` means.
        before, up, rest = f"{whole}/".rpartition("/../")
        return os.path.normpath(os.path.join(os.path.realpath(before + up), rest) if up else whole)
