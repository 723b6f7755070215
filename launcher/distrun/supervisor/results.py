"""Copies `program.results` from other hosts once all tasks have ended."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial

from distrun.agent.linux.forked_call import ForkedCall
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.file_messages import TransferProgress, is_match
from distrun.codec import from_json
from distrun.errors import DistrunError
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.job.scheduler import SUBMITTED
from distrun.spec.model import Spec
from distrun.supervisor.file_fetch import Fetch, clean_patterns
from distrun.supervisor.hosts.former_agents import make_former_reach
from distrun.supervisor.hosts.reach import Lifetime
from distrun.supervisor.running_job import RunningJob

_LONGEST_SECONDS = 6 * 3600.0
"""A host that sends nothing for a minute is given up long before."""
_MOST_CAUSES = 20
_PROGRESS_SECONDS = 0.2


class Results:
    """The results of one job. `on_end` gets the event for the record once that is over."""

    def __init__(self, job: RunningJob, on_end: Callable[[events.ResultsFetched], None]) -> None:
        self._job, self._loop, self._spec, self._on_end = job, job.loop, job.spec, on_end
        self._hosts = 0
        self._progress = -1
        self._call: ForkedCall | None = None

    def start(self, hosts: Iterable[str]) -> bool:
        """Start to fetch them from the hosts of the tasks. Returns whether that takes time."""
        reaches = [make_former_reach(host, self._spec) for host in dict.fromkeys(hosts)]
        self._hosts = sum(each.lifetime is not Lifetime.SUPERVISOR for each in reaches)
        if not self._hosts:
            return False
        self._progress, writer = os.pipe()
        self._loop.watch(self._progress, self._on_progress)
        ask = partial(_fetch, self._job.folder, self._spec, writer)
        self._call = self._job.hosts.calls.begin(
            ask, self._on_answer, kept=(writer,), seconds=_LONGEST_SECONDS
        )
        os.close(writer)
        return True

    def _on_progress(self) -> None:
        last_line = os.read(self._progress, 4096).split(b"\n")[-2:-1]
        if last_line:
            done, total = map(int, last_line[0].split())
            self._job.clients.broadcast(TransferProgress(done, total, self._hosts))
        else:
            self._loop.unwatch(self._progress)

    def stop(self) -> None:
        """Stop waiting for them: the job must end at once. `distrun fetch` can continue."""
        if self._call is not None:
            self._call.close()
            self._end(_failed(self._spec, "the job was ended meanwhile"))

    def _on_answer(self, found: bytes | Cause) -> None:
        why = found if isinstance(found, Cause) else Cause(Code.PROBE_DIED)
        event = _failed(self._spec, within=(why,))
        if not isinstance(found, Cause):
            with contextlib.suppress(ValueError):
                event = from_json(events.ResultsFetched, json.loads(found))
        self._end(event)

    def _end(self, event: events.ResultsFetched) -> None:
        self._call = None
        self._loop.unwatch(self._progress)
        os.close(self._progress)
        self._on_end(event)


def _failed(spec: Spec, why: str = "", within: tuple[Cause, ...] = ()) -> events.ResultsFetched:
    causes = (Cause(Code.RESULTS_NOT_FETCHED, text=why, within=within),)
    return events.ResultsFetched(
        at=time.time(), folder=spec.program.workdir, files=0, size=0, causes=causes
    )


def _fetch(folder: JobFolder, spec: Spec, progress: int) -> events.ResultsFetched:
    """Fetch them, in a process of its own; write how many bytes of how many have come."""
    program, told_at = spec.program, time.monotonic()
    target = str(folder.results) if SUBMITTED in os.environ else program.workdir

    def report(done: int, total: int) -> None:
        nonlocal told_at
        if time.monotonic() >= told_at + _PROGRESS_SECONDS:
            told_at = time.monotonic()
            os.write(progress, b"%d %d\n" % (done, total))

    fetch = Fetch(*(folder, spec, program.results, target), may_replace=None, on_progress=report)
    try:
        found = fetch.run()
    except DistrunError as error:
        return _failed(spec, error.message)
    except OSError as error:
        return _failed(spec, f"{error.filename or target}: {error.strerror}")
    causes = [
        Cause(Code.RESULTS_NOT_FETCHED, host=host, within=(why,))
        for host, why in found.failures.items()
    ]
    causes += [Cause(Code.RESULTS_NOT_FETCHED, text=each) for each in found.reasons]
    paths = {each.path for each in found.files} | {path for _, path, _ in found.left_out}
    # Of tasks on this machine, and of hosts that failed, the files are not known.
    for each in () if found.failures or spec.local_host else program.results:
        if not any(is_match(path, clean_patterns([each])) for path in paths):
            text = f"no file that a task wrote matches {each!r}"
            causes.append(Cause(Code.RESULTS_NOT_FETCHED, text=text))
    new = [each for each in found.files if each.target in found.new]
    return events.ResultsFetched(
        at=time.time(),
        # There, they are in its folder, and `fetch` brings them on.
        folder=f"distrun fetch {folder.job_id}" if SUBMITTED in os.environ else found.folder,
        files=len(new),
        size=sum(each.found.size for each in new),
        apart=found.apart,
        causes=tuple(causes[:_MOST_CAUSES]),
    )
