"""The ways to reach hosts: this machine, ssh, Slurm and Kubernetes, each with two real hosts."""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.pods import PodSpec
from harness.processes import alive
from harness.slurm_fixtures import InAllocation, WriteSlurmSpec
from harness.waiting import wait_until

_NUMBERS = itertools.count()


@dataclass
class Reach:
    """A way to reach hosts, and what tests do with it. Its hosts need not share files.

    Attributes:
        write_spec: writes a spec of workers, one a host, that run a shell script.
        start: starts a command of distrun where it finds the hosts, its output in pipes.
        carrier: a word in the command line of a process that carries a link; "" where none does.
        restores_links: whether a link whose carrier has died is taken up again.
        mark: a number of seconds, and in the command line of whatever the tests' tasks run.
        fetched_later: what `fetch` says once the job has ended.
    """

    distrun: Distrun
    write_spec: Callable[..., Path]
    start: Callable[..., subprocess.Popen[str]]
    carrier: str
    restores_links: bool
    mark: str
    fetched_later: str

    def launch(self, script: str, **keys: Any) -> subprocess.Popen[str]:
        """Launch two workers that run a script, in which MARK is a number of its own."""
        return self.start("launch", self.write_spec(script.replace("MARK", self.mark), **keys))

    def processes(self, name: str = "") -> list[psutil.Process]:
        """What the tasks run, wherever that is: the hosts are namespaces of this machine."""
        return [
            each
            for each in psutil.process_iter(["cmdline", "name"])
            if any(self.mark in word for word in each.info["cmdline"] or ())
            and name in each.info["name"]
            and alive(each)
        ]

    def wait_for_processes(self, count: int, name: str = "") -> list[psutil.Process]:
        wait_until(lambda: len(self.processes(name)) == count, what=f"{count} processes {name}")
        return self.processes(name)

    def carriers(self) -> list[psutil.Process]:
        supervisor = psutil.Process(self.distrun.status()["supervisor_pid"])
        below = supervisor.children()
        return [
            each
            for each in below
            if self.carrier in (os.path.basename(word) for word in each.cmdline())
        ]


@pytest.fixture
def in_local(distrun: Distrun) -> dict[str, Any]:
    said = "what its tasks wrote is on this machine"
    return {"write_spec": distrun.write_spec, "carrier": "", "fetched_later": said}


@pytest.fixture
def in_ssh(distrun: Distrun, ssh: Ssh) -> dict[str, Any]:
    def write(script: str, **keys: Any) -> Path:
        return ssh.spec(script, ssh.hosts(2), **keys)

    made = {"carrier": "ssh", "restores_links": True, "fetched_later": "fetched 3 files ("}
    return {"write_spec": write, **made}


@pytest.fixture
def in_srun(in_allocation: InAllocation, slurm_spec: WriteSlurmSpec) -> dict[str, Any]:
    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        return in_allocation(["-N2"], *arguments)

    said = "if its allocation has ended: on a shared file system, what tasks wrote is still there"
    return {"write_spec": slurm_spec, "start": start, "carrier": "srun", "fetched_later": said}


@pytest.fixture
def in_kubernetes(distrun: Distrun, pod_spec: PodSpec) -> dict[str, Any]:
    distrun.asks_here = False
    said = "was deleted; not all of its files are here\n  the files of a pod are gone with it"
    made = {"carrier": "exec", "restores_links": True, "fetched_later": said}
    return {"write_spec": pod_spec, **made}


_CLUSTERS = {"local": (), "ssh": ("network",), "srun": ("cluster",), "kubernetes": ("kubernetes",)}


@pytest.fixture(scope="package", params=_CLUSTERS)
def way(request: pytest.FixtureRequest) -> str:
    """The name of each way in turn, once its cluster is there, which is not the test's to end."""
    for each in _CLUSTERS[request.param]:
        request.getfixturevalue(each)
    return str(request.param)


@pytest.fixture
def reach(request: pytest.FixtureRequest, way: str, distrun: Distrun) -> Iterator[Reach]:
    """Each way in turn. What a test's tasks have left at its end fails the test."""
    mark = f"1000.{os.getpid():08}{next(_NUMBERS):04}"
    start = partial(distrun.start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    made = {"start": start, "restores_links": False, **request.getfixturevalue(f"in_{way}")}
    here = Reach(distrun=distrun, mark=mark, **made)
    yield here
    wait_until(lambda: not here.processes(), what="the tasks are gone")
