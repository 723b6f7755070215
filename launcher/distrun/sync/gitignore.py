"""Which files are not sent: git says it, or patterns in `.gitignore` files.

In a git work tree, `git ls-files` names what git keeps: tracked files, and others that nothing
excludes. Elsewhere, and where git fails, the patterns are read as fnmatch reads them: `*` matches
slashes, too, and a backslash has no meaning.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import re
import signal
import subprocess

from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen, replace
from distrun.spec.problems import printable
from distrun.spec.regular_file import open_regular_file
from distrun.spec.units import format_bytes

_NAME = b".gitignore"
_MOST_BYTES = 1 << 18
"""Of all the files whose patterns apply to an entry. Each pattern takes memory and time."""
_LONGEST_LINE = 4096
"""Bytes of a pattern: no path is longer."""
_NEVER = (b".git", b"__pycache__")
"""Never sent: git's history, and what this machine's Python has compiled."""
_GIT_SECONDS = 10.0
_KILL_SECONDS = 2.0
_GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
"""Variables that git's hooks get: they name another repository than that of a folder."""


class Pattern(Frozen):
    """One line of a file."""

    glob: bytes
    is_exclusion: bool
    only_folders: bool
    only_name: bool
    """Whether it matches the last part of a path, in any folder."""

    def matches(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether it matches this entry itself. `path` is relative to the folder of the file."""
        if self.only_folders and not is_folder:
            return False
        subject = path.rpartition(b"/")[2] if self.only_name else b"/" + path
        # With as many slashes as the path has, no wildcard can match one.
        is_possible = b"**" in self.glob or subject.count(b"/") == self.glob.count(b"/")
        return is_possible and any(each.match(subject) for each in _expressions(self.glob))


@functools.lru_cache(maxsize=1 << 16)
def _expressions(glob: bytes) -> tuple[re.Pattern[bytes], ...]:
    """A path matches one of these. Two stars that are a whole part match no folder, too."""
    globs = dict.fromkeys(each.decode("latin-1") for each in (glob, glob.replace(b"/**/", b"/")))
    return tuple(re.compile(fnmatch.translate(each).encode("latin-1")) for each in globs)


class IgnoreRules(Frozen):
    """The rules for the entries of one folder.

    Attributes:
        failures: why git did not say which files it keeps; it is not asked again after one.
        kept: the real paths of files that git keeps, and of their folders; None: patterns decide.
        levels: folders (absolute) with their patterns, the deepest folder first.
    """

    failures: list[str]
    kept: frozenset[bytes] | None = None
    levels: tuple[tuple[bytes, tuple[Pattern, ...]], ...] = ()
    size: int = 0

    @classmethod
    def for_folder(cls, folder: bytes, failures: list[str]) -> IgnoreRules:
        """The rules for the entries of a folder that the user selected. Raises InvalidSpecError.

        Rules of the folders above apply only if they do not exclude the folder itself.
        """
        rules = cls(failures)
        for each in _folders_to(folder) or [folder]:
            if rules.matches(each, is_folder=True):
                # git would name only what somebody has added by force.
                return cls(failures).with_patterns(folder)
            rules = rules.with_patterns(each)
        if not _folders_to(os.path.realpath(folder)):
            return rules
        # If git keeps nothing of a folder, it ignores the folder.
        return replace(rules, kept=_list_kept(folder, failures) or None)

    def within(self, folder: bytes) -> IgnoreRules:
        """The rules for the entries of `folder`, to which these apply. Raises InvalidSpecError."""
        rules = self.with_patterns(folder)
        if os.path.lexists(os.path.join(folder, b".git")):
            return replace(rules, kept=_list_kept(folder, self.failures))
        return rules

    def for_target(self, real: bytes) -> IgnoreRules:
        """The rules for the entries of a link's target: if git does not keep it, the patterns."""
        if self.kept is None or real in self.kept:
            return self
        return replace(self, kept=None)

    def excludes(self, path: bytes, real: bytes, *, is_folder: bool) -> bool:
        """Whether this entry, and everything in it, is not sent. `real` is its real path."""
        if os.path.basename(path) in _NEVER:
            return True
        if self.kept is None:
            return self.matches(path, is_folder=is_folder)
        # git knows no folders without files.
        return real not in self.kept and not (is_folder and _is_empty(path))

    def matches(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether the patterns exclude an entry."""
        for folder, lines in self.levels:
            inside = path[len(folder.rstrip(b"/")) + 1 :]
            for line in lines:
                if line.matches(inside, is_folder=is_folder):
                    return line.is_exclusion
        return False

    def with_patterns(self, folder: bytes) -> IgnoreRules:
        """These rules and the patterns of a folder. Raises InvalidSpecError as :meth:`within`."""
        path = os.path.join(folder, _NAME)
        most = _MOST_BYTES - self.size
        try:
            with open_regular_file(path) as file:
                text = file.read(most + 1)
        except OSError:
            return self  # usually there is none; git, too, ignores a file that it cannot read
        if len(text) > most:
            raise InvalidSpecError(
                f"program.sync: {printable(os.fsdecode(path))} is too large: the .gitignore files "
                f"for a folder and those above it may have {format_bytes(_MOST_BYTES)} together",
                hint="shorten it, or write sync: off where the hosts see the same files",
            )
        levels = ((folder, _read_patterns(text, path)), *self.levels)
        return replace(self, levels=levels, size=self.size + len(text))


def _list_kept(folder: bytes, failures: list[str]) -> frozenset[bytes] | None:
    """What git keeps in a folder of a work tree, by real paths; None, and why, if git fails."""
    if failures:
        return None
    real = os.path.realpath(folder)
    try:
        listed = _run_git(real)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        why = "it is not installed" if isinstance(error, FileNotFoundError) else why
        failures.append(
            f"git cannot list the files of {printable(os.fsdecode(folder))} ({why}): the patterns "
            "of .gitignore files are read without it"
        )
        return None
    kept = {real} if listed else set()
    for name in listed.split(b"\0")[:-1]:
        path = os.path.join(real, name.rstrip(b"/"))
        while path not in kept:
            kept.add(path)
            path = os.path.dirname(path)
    return frozenset(kept)


def _run_git(folder: bytes) -> bytes:
    """Return the paths of the files that git keeps. Raises OSError or ValueError if it fails."""
    # The configuration of a repository can name a command that git would run.
    command = [b"git", b"-c", b"core.fsmonitor=false", b"-C", folder, b"ls-files", b"-z"]
    process = subprocess.Popen(
        [*command, b"--cached", b"--others", b"--exclude-standard"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in _GIT_PLACES},
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    try:
        with process.stdout, process.stderr:
            listed, said = process.communicate(timeout=_GIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"it did not answer within {_GIT_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS)
    if process.returncode:
        first = said.decode("utf-8", "replace").partition("\n")[0]
        raise ValueError(printable(first) or f"it ended with {process.returncode}")
    return listed


def _is_empty(folder: bytes) -> bool:
    """Whether there is nothing in a folder but such folders."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return all(each.is_dir(follow_symlinks=False) and _is_empty(each.path) for each in entries)
    return False


def _folders_to(folder: bytes) -> list[bytes]:
    """The folders from the top of the work tree to this one; none outside a work tree."""
    found = [folder]
    while not os.path.lexists(os.path.join(found[0], b".git")):
        parent = os.path.dirname(found[0])
        if parent == found[0]:
            return []
        found.insert(0, parent)
    return found


def _read_patterns(text: bytes, path: bytes) -> tuple[Pattern, ...]:
    """The patterns of a file, the last one first: it takes precedence. Raises InvalidSpecError."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if len(line) > _LONGEST_LINE and not line.startswith(b"#"):
            raise InvalidSpecError(
                f"program.sync: {printable(os.fsdecode(path))}:{number}: the pattern has "
                f"{format_bytes(len(line))}, and no path has more than {_LONGEST_LINE:,} bytes",
                hint="correct the file, or write sync: off where the hosts see the same files",
            )
    found = [_pattern(line.rstrip(b"\r ")) for line in lines]
    return tuple(pattern for pattern in reversed(found) if pattern is not None)


def _pattern(line: bytes) -> Pattern | None:
    glob = line.removeprefix(b"!").removesuffix(b"/")
    if line.startswith(b"#") or not glob:
        return None
    only_name = b"/" not in glob
    if not only_name:
        glob = b"/" + glob.removeprefix(b"/")
    return Pattern(glob, not line.startswith(b"!"), line.endswith(b"/"), only_name)
