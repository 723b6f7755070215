"""Which files a folder's `.gitignore` files leave out: nested ones, and those above it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.sync import patterns

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = b".gitignore"
_NEVER = (b".git", b"__pycache__")
"""Never sent: history, and what this Python has compiled."""


@dataclass(frozen=True)
class Rules:
    """What holds for the entries of one folder: its own patterns, then those of folders above.

    `levels` are (folder, patterns), the deepest first; the folders are absolute.
    """

    levels: tuple[tuple[bytes, tuple[patterns.Pattern, ...]], ...] = ()

    @classmethod
    def of(cls, folder: bytes) -> Rules:
        """The rules for the entries of a folder that is to be sent.

        Those from above count only where they let the folder itself be: who names a folder
        wants it, even one that the repository does not keep.
        """
        rules = cls()
        for above in [*_folders_above(folder), folder]:
            if rules.leave_out(above, is_folder=True):
                return cls().within(folder)
            rules = rules.within(above)
        return rules

    def within(self, folder: bytes) -> Rules:
        """The rules for the entries of `folder`, an entry of what these hold for."""
        try:
            with open(os.path.join(folder, _NAME), "rb") as file:
                text = file.read()
        except OSError:
            return self  # mostly there is none; git, too, goes on without one it cannot read
        return Rules(((folder, patterns.read(text)), *self.levels))

    def leave_out(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether this entry is not to be sent, nor what is in it."""
        if os.path.basename(path) in _NEVER:
            return True
        for folder, lines in self.levels:
            inside = path[len(folder.rstrip(b"/")) + 1 :]
            for line in lines:
                if line.matches(inside, is_folder=is_folder):
                    return line.leaves_out
        return False


def _folders_above(folder: bytes) -> Iterator[bytes]:
    """From the repository's top to the folder's parent; none where there is no repository."""
    above: list[bytes] = []
    here = folder
    while not os.path.lexists(os.path.join(here, b".git")):
        parent = os.path.dirname(here)
        if parent == here:
            return
        above.append(parent)
        here = parent
    yield from reversed(above)
