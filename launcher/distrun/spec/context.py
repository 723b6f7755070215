"""The circumstances of a call of `distrun` on which the meaning of a spec depends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distrun.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


class LoadContext(Frozen, kw_only=True):
    """File, folders, environment and options. Folders are absolute; `folder` is the spec's."""

    file: str
    folder: str
    cwd: str
    environ: Mapping[str, str]
    name: str | None
    extra_args: tuple[str, ...]
    is_draft: bool = False
    """Whether the tasks are not known yet, so that placeholders cannot be checked."""
    is_submitted: bool = False
    """Whether the job is to be queued: its hosts are nodes that Slurm has not chosen yet."""

    def resolve(self, path: str) -> str:
        """The absolute path of `path`, which is relative to the spec's folder; `~` is the home."""
        whole = os.path.join(self.folder, os.path.expanduser(path))
        if ".." in path.split("/"):
            # Behind a symbolic link, only the file system knows what `..` means.
            return os.path.realpath(whole)
        return os.path.normpath(whole)
