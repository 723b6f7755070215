"""Copies what tasks have written on other hosts into a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.file_messages import FileRead, FileReadEnd, ReadFile, is_match
from distrun.codec import decode
from distrun.errors import HostError, UsageError
from distrun.frozen import Frozen
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.job.job import Job
from distrun.spec.model import Spec
from distrun.spec.problems import printable
from distrun.spec.regular_file import read_regular_file
from distrun.supervisor.hosts.file_source import FileSource, Found, is_plain
from distrun.supervisor.hosts.former_agents import make_former_reach
from distrun.supervisor.hosts.link import MAX_CONNECTING, Links
from distrun.supervisor.hosts.reach import Lifetime
from distrun.supervisor.received_tree import RESERVE, Part, ReceivedTree
from distrun.words.formats import format_host_names, format_names

_LARGEST_FILE = 64 << 20
_MOST_NAMED = 10
_CLOCK_SECONDS = 0.1
"""How far the time of a file may be behind the clock that its host shows."""


class File(Frozen):
    """A file to bring: from which working folder of which host, and where it goes."""

    label: str
    path: str
    found: Found
    target: str


class _Task(Frozen, kw_only=True):
    name: str
    host: str
    workdir: str
    or_home: bool = False


class _Plan(Frozen):
    tasks: tuple[_Task, ...]


class Fetched(Frozen, kw_only=True):
    """What has been brought, into which folder.

    `files`: those that are there. `new`: the targets of those that came. `left_out`: host, path,
    and why it does not come. `failures`: why not everything has come from a host.
    """

    folder: str
    files: tuple[File, ...]
    new: frozenset[str]
    left_out: tuple[tuple[str, str, str], ...]
    failures: dict[str, Cause]

    @property
    def lacks_files(self) -> bool:
        """Whether a file that is wanted did not come: links, named pipes and devices are none."""
        return bool(self.failures) or any(
            not why.startswith(("a symbolic link", "a named pipe")) for _, _, why in self.left_out
        )

    @property
    def apart(self) -> tuple[str, ...]:
        """The folders of hosts whose files differ from those of the same names on others."""
        return tuple(dict.fromkeys(e.label for e in self.files if e.target != e.path))

    @property
    def reasons(self) -> list[str]:
        """What is left out, in words; the hosts and paths with the same reason are together."""
        hosts: dict[tuple[str, str], list[str]] = {}
        for host, path, why in self.left_out:
            hosts.setdefault((path, why), []).append(host)
        paths: dict[tuple[str, str], list[str]] = {}
        for (path, why), names in hosts.items():
            paths.setdefault((format_host_names(names), why), []).append(path)
        return [
            ": ".join(filter(None, (names, format_names(each), why)))
            for (names, why), each in paths.items()
        ]


def place(
    found: Mapping[str, Mapping[str, Found]],
    digests: Mapping[tuple[str, str], str],
    own: Collection[str] = (),
) -> tuple[list[File], list[tuple[str, str, str]]]:
    """Return where each file goes, and what is left out because two need the same place.

    A name that several hosts have goes to the folder of each host if the files differ, else once.
    `found`: the files by the host's label, and by path. `digests`: of files that may be the same.
    `own`: the paths of those that tasks of this machine have written themselves.
    """
    files: list[File] = []
    left_out = []
    paths = dict.fromkeys(path for each in found.values() for path in each)
    above = {path: [path[:at] for at, each in enumerate(path) if each == "/"] for path in paths}
    folders = {each for names in above.values() for each in names}
    taken: set[str] = set()
    for path in paths:
        having = [(label, each[path]) for label, each in found.items() if path in each]
        stamps = {(each.size, each.changed) for _, each in having}
        known = {digests.get((label, path)) for label, _ in having}
        is_same = len(stamps) == 1 or (len(known) == 1 and None not in known)
        clashes = path in own or path in folders or any(each in paths for each in above[path])
        for label, each in having[:1] if is_same and not clashes else having:
            target = path if is_same and not clashes else f"{label}/{path}"
            if target in taken:
                left_out.append((label, path, f"{target} is the place of another file"))
            else:
                taken.add(target)
                files.append(File(label, path, each, target))
    return files, left_out


def _require_names(task: _Task) -> _Task:
    """Return a task. Raises ValueError: its host or folder has a name that no command can have."""
    if b"\0" in os.fsencode(task.host + task.workdir):
        raise ValueError(task)
    return task


def clean_patterns(patterns: Iterable[str]) -> list[str]:
    """Return patterns as hosts match them. Raises UsageError if one leads out of the folder."""
    found = [os.path.normpath(each) for each in patterns]
    for given, each in zip(patterns, found, strict=True):
        if each != "." and not is_plain(each):
            raise UsageError(f"{given!r} is not a path below the working folder of the tasks")
    found += [each.replace("**/", "") for each in found if "**/" in each]  # in no folder, too
    found += [each.replace("[", "[[]") for each in found if "[" in each]  # in a name, too
    return [] if "." in found else found


class Fetch:
    """One fetch of a job.

    Args:
        patterns: of the files that are wanted; none: all that tasks have written.
        may_replace: asked whether newer files may be replaced, with their names; None: they stay,
            and are left out.
        on_progress: called with bytes that have come, and those that come in all.
    """

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        patterns: Sequence[str],
        target: str,
        may_replace: Callable[[Sequence[str]], bool] | None,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._folder, self._spec = folder, spec
        self._patterns = clean_patterns(patterns)
        self._tree = ReceivedTree(target)
        self._may_replace, self._on_progress = may_replace, on_progress
        self._loop = Loop()
        self._links = Links(self._loop, folder.job_id)
        self._places: dict[str, tuple[FileSource, int]] = {}
        """By label: the host, and the number of its working folder."""
        self._left_out: list[tuple[str, str, str]] = []
        self._failures: dict[str, Cause] = {}
        self._parts: list[Part] = []
        self._new: set[str] = set()
        self._done = self._total = self._budget = 0
        self._own_since: float | None = None
        """Since when tasks of this machine have written into the target."""

    def run(self) -> Fetched:
        """Copy the files; the next call continues what was interrupted.

        Raises UsageError or HostError before anything is done, or OSError.
        """
        try:
            self._list()
            files = self._placed()
            needed = self._check(files)
            self._read(needed)
        finally:
            for source, _ in self._places.values():
                source.close()
            for part in self._parts:
                part.close()
            self._loop.close()
        sources = dict.fromkeys(source for source, _ in self._places.values())
        self._failures.update({s.name: s.failure for s in sources if s.failure is not None})
        on_hosts = [(source.name, *each) for source in sources for each in source.left_out]
        return Fetched(
            folder=self._tree.path,
            files=self._here(files, needed),
            new=frozenset(self._new),
            left_out=(*self._left_out, *on_hosts),
            failures=self._failures,
        )

    def _here(self, files: Sequence[File], needed: Sequence[File]) -> tuple[File, ...]:
        """Return the files that are there now: they had not changed, or have come."""
        lacking = {each.target for each in needed} - self._new
        left_out = {(label, path) for label, path, _ in self._left_out}
        return tuple(
            each
            for each in files
            if each.target not in lacking and (each.label, each.path) not in left_out
        )

    def _list(self) -> None:
        self._start_sources()
        self._wait()

    def _turn(self) -> None:
        self._loop.turn(0.5)
        self._links.check_exits()

    def _tasks(self) -> tuple[_Task, ...]:
        """Return the tasks of the plan, which are known also if the record is damaged."""
        path = self._folder.plan_file
        if not os.path.lexists(path):
            raise UsageError(f"job {self._folder.job_id} has started no task yet")
        try:
            data = read_regular_file(str(path), largest=_LARGEST_FILE) or b""
            return tuple(map(_require_names, decode(_Plan, data).tasks))
        except ValueError as error:
            text = f"the plan of job {self._folder.job_id} is damaged"
            text += ", so it is not known where its tasks ran"
            raise HostError(text, hint=f"it is {self._folder.shown(path)}") from error

    def _start_sources(self) -> None:
        history = Job(self._folder).history
        tasks = self._tasks()
        agents = {e.host: e for e in history if isinstance(e, events.HostReady)}
        skipped = os.path.abspath(self._tree.path)
        for host in dict.fromkeys(task.host for task in tasks):
            agent = agents.get(host)
            reach = make_former_reach(host, self._spec, "" if agent is None else agent.found_as)
            own = [task for task in tasks if task.host == host]
            if reach.lifetime is Lifetime.SUPERVISOR:
                target = os.path.realpath(self._tree.path)
                names = {t.name for t in own if os.path.realpath(t.workdir) == target}
                self._own_since = _written_since(history, names)
                continue
            workdirs = list(dict.fromkeys(task.workdir for task in own))
            source = FileSource(host, reach, self._links)
            for number, workdir in enumerate(workdirs):
                first = next(task.name for task in own if task.workdir == workdir)
                label = host if len(workdirs) == 1 else f"{host}-{first.replace(':', '-')}"
                self._places[label.replace("/", "_")] = source, number
            names = {task.name for task in own}
            begins = [e.at for e in history if isinstance(e, events.TaskStarted) if e.task in names]
            inside = os.path.relpath(skipped, self._spec.program.workdir)
            folder = "" if agent is None else agent.folder
            homes = [("~", "")] if any(task.or_home for task in own) else []
            places = [[_place(each, folder), *homes] for each in workdirs]
            behind = 0.0 if agent is None else agent.behind
            began = min(begins, default=0.0) - behind - _CLOCK_SECONDS
            outside = inside.startswith("..") or inside == "."
            state, name = os.path.split(os.path.dirname(folder))
            own_folders = [state if name == "agents" else folder]
            own_folders += [] if outside else [skipped]
            source.start(places, self._patterns, began, own_folders)
        if not self._places:
            raise UsageError(
                f"job {self._folder.job_id} has no tasks on other hosts",
                hint="what its tasks wrote is on this machine",
            )

    def _placed(self) -> list[File]:
        found = {
            label: source.files[number]
            for label, (source, number) in self._places.items()
            if source.failure is None or source.is_listed
        }
        digests = self._digests(found)
        files, left_out = place(found, digests, self._own(found))
        self._left_out += left_out
        return files

    def _own(self, found: Mapping[str, Mapping[str, Found]]) -> set[str]:
        """Return which of the paths are those of files that tasks of this machine have written."""
        if self._own_since is None:
            return set()
        own = set()
        for path in {path for each in found.values() for path in each}:
            with contextlib.suppress(OSError):
                here = self._tree.find(path)
                if here is None or here.st_ctime < self._own_since:
                    continue
                stamps = {(f[path].size, f[path].changed) for f in found.values() if path in f}
                if (here.st_size, here.st_mtime_ns) not in stamps:  # it is not shared, or fetched
                    own.add(path)
        return own

    def _digests(self, found: Mapping[str, Mapping[str, Found]]) -> dict[tuple[str, str], str]:
        by_name: dict[str, dict[str, Found]] = {}
        for label, files in found.items():
            for path, each in files.items():
                by_name.setdefault(path, {})[label] = each
        digests: dict[tuple[str, str], str] = {}

        def note(label: str, path: str, end: FileReadEnd) -> None:
            if not end.errno:
                digests[label, path] = end.digest

        for path, having in by_name.items():
            stamps = {(each.size, each.changed) for each in having.values()}
            if len(stamps) > 1 and len({size for size, _ in stamps}) == 1:
                for label in having:
                    source, number = self._places[label]
                    on_end = partial(note, label, path)
                    size = having[label].size
                    source.read(ReadFile(number, path, 0, size, digest=True), on_end)
        self._wait()
        return digests

    def _wait(self) -> None:
        while not all(source.is_idle for source, _ in self._places.values()):
            self._turn()

    def _check(self, files: Sequence[File]) -> list[File]:
        """Return the files that must come. Raises an error before anything is written."""
        needed, newer = [], []
        self._tree.find(".")  # raises OSError if it is no folder
        for each in files:
            try:
                present = self._tree.find(each.target)
            except OSError as error:
                why = error.strerror or ""
                if error.errno == errno.ENOTDIR:
                    above = os.path.dirname(each.target)
                    why = f"{above} is, or is in, a link or a file here; fetch it with -o FOLDER"
                self._left_out.append((each.label, each.path, why))
                continue
            if present is not None and not stat.S_ISREG(present.st_mode):
                why = f"{each.target} is a folder or a link here"
                self._left_out.append((each.label, each.path, why))
                continue
            if present is not None and present.st_mtime_ns > each.found.changed:
                if self._may_replace is None:
                    self._left_out.append((each.label, each.path, f"{each.target} is newer here"))
                    continue
                newer.append(each.target)
            if present is None or (
                (present.st_size, present.st_mtime_ns) != (each.found.size, each.found.changed)
            ):
                needed.append(each)
        if newer and self._may_replace is not None and not self._may_replace(newer):
            names = ", ".join(map(printable, newer[:_MOST_NAMED]))
            more = f" and {len(newer) - _MOST_NAMED} more" if len(newer) > _MOST_NAMED else ""
            raise UsageError(
                f"these files in {self._tree.path} are newer than those on the hosts: "
                f"{names}{more}; nothing was fetched",
                hint="to replace them: --force",
            )
        self._total = sum(min(each.found.size, each.found.used) for each in needed)
        self._budget = self._tree.room
        if self._total > self._budget:
            from distrun.spec.units import format_bytes

            raise HostError(
                f"{format_bytes(self._total)} would come, and {self._tree.path} has room for "
                f"{format_bytes(self._budget)}, as {format_bytes(RESERVE)} stay free; "
                "nothing was fetched",
                hint="name a PATTERN, or another folder with -o",
            )
        return needed

    def _read(self, needed: Sequence[File]) -> None:
        for each in needed:
            source, number = self._places[each.label]
            if source.failure is not None:
                continue
            if (part := self._open_part(each)) is None:
                continue
            self._parts.append(part)
            self._done += min(part.received, each.found.used)
            on_data, on_end = partial(self._write, each, part), partial(self._end, each, part)
            size, at = each.found.size, part.received
            source.read(ReadFile(number, each.path, at, size, digest=False), on_end, on_data)
            while len(self._parts) >= MAX_CONNECTING and not source.is_idle:
                self._turn()
        self._wait()

    def _open_part(self, file: File) -> Part | None:
        source, found = f"{file.label}\0{file.path}", file.found
        stamps = found.size, found.changed, found.mode
        try:
            return self._tree.open_part(file.target, source, *stamps)
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
                raise  # no other file can be written either
            self._left_out.append((file.label, file.path, error.strerror or ""))
            return None

    def _write(self, file: File, part: Part, data: FileRead) -> None:
        size = len(data.data)
        self._done, self._budget = self._done + size, self._budget - size
        if self._budget < 0:
            raise HostError(
                f"{file.label} sends more than it said, and {self._tree.path} has no more room"
            )
        try:
            part.write(data.offset, data.data)
        except OSError as error:
            if error.errno != errno.EPROTO:
                raise
            cause = Cause(Code.REPORT_UNASKED, name=type(data).__name__)
            self._places[file.label][0].fail(cause)
        self._on_progress(self._done, self._total)

    def _end(self, file: File, part: Part, end: FileReadEnd) -> None:
        self._parts.remove(part)
        why = os.strerror(end.errno) if end.errno else ""
        if end.errno == errno.ENOENT:
            why = "it was removed before it was read: fetch it again"
        # One that has grown is a log: its beginning comes, and the rest with the next call.
        is_same = (end.size, end.changed) == (file.found.size, file.found.changed)
        if not why and not is_same and end.size <= file.found.size:
            why = "it changed while it was read: fetch it again"
        try:
            if not why:
                part.finish()
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            part.discard()
            self._left_out.append((file.label, file.path, why))
        else:
            self._new.add(file.target)


def _written_since(history: Sequence[events.Event], tasks: Collection[str]) -> float | None:
    """Return when these tasks began; after a resume, when the results before it were here."""
    starts = [e.at for e in history if isinstance(e, events.TaskStarted) and e.task in tasks]
    if not starts:
        return None
    fetched = [e.at for e in history if isinstance(e, events.ResultsFetched) if e.at < starts[-1]]
    return max([starts[0] - _CLOCK_SECONDS, *fetched])


def _place(workdir: str, agent: str) -> tuple[str, str]:
    """Return where a working folder is: see :func:`distrun.agent.written_files.main`."""
    is_sent = agent and f"{workdir}/".startswith(f"{os.path.join(agent, 'files')}/")
    return workdir, os.path.join(agent, "files.sent") if is_sent else ""


class KeptFetch(Fetch):
    """One fetch of the results that a submitted job has brought into its folder."""

    def _list(self) -> None:
        """Ask no host: the results are here."""

    def _placed(self) -> list[File]:
        files, folder = [], self._folder.results
        for each in sorted(folder.rglob("*")):
            path = str(each.relative_to(folder))
            if each.is_file() and is_match(path, self._patterns):
                of = each.stat()
                found = Found(of.st_size, of.st_mtime_ns, of.st_size, of.st_mode)
                files.append(File("", path, found, path))
        return files

    def _read(self, needed: Sequence[File]) -> None:
        for file in needed:
            if (part := self._open_part(file)) is None:
                continue
            with open(self._folder.results / file.path, "rb") as source:
                source.seek(part.received)
                while block := source.read(1 << 20):
                    part.write(part.received, block)
            part.finish()
            self._new.add(file.target)
