"""A Slurm cluster, usually of four nodes: the hosts of :mod:`harness.network`, with a slurmd each.

    login node (this machine): munged, slurmctld --- switch --- h1, h2, h3, h4: sshd, slurmd

The file system is shared, the home folder included. Each node says that it has 4 cores, 4,000 MB
and 2 GPUs, which are other names of /dev/null.
There is no accounting database, as Debian's `slurm-wlm` brings none: sacct fails here, and what it
answers elsewhere is tested with a program in its place.
"""

import contextlib
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import psutil

from harness import network as networks
from harness.processes import captured
from harness.requirements import missing
from harness.waiting import wait_until

NEEDED = ("munged", "sbatch", "scontrol", "sinfo", "slurmctld", "slurmd", "squeue", "srun")
GPUS = 2
_DEADLINE = 60.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_CONF = Path(__file__).with_name("slurm.conf").read_text()
"""Its intervals are low: a test waits for each of them."""


def why_not() -> str | None:
    """Why such a cluster cannot be made here; None where it can."""
    return missing(("munged", "slurmctld", "slurmd"), _PATH) or networks.why_not()


class Cluster:
    """The daemons. Commands find them by the environment of :attr:`variables`."""

    def __init__(self, processes: set[int], nodes: int = 4) -> None:
        self.network = networks.Network(processes)
        self.nodes = self.network.hosts(nodes)
        self.folder = self.network.folder / "slurm"
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._processes = processes
        self._munged: subprocess.Popen[bytes] | None = None
        self._slurmctld: subprocess.Popen[bytes] | None = None
        self._slurmds: dict[str, subprocess.Popen[bytes]] = {}
        self._write_files()
        self.start()

    def _write_files(self) -> None:
        self.network.folder.chmod(0o711)  # munged refuses a socket that others cannot reach
        self.folder.mkdir()
        for name in ("state", *(f"spool-{node.name}" for node in self.nodes)):
            self.folder.joinpath(name).mkdir(mode=0o755)
        gpus = []
        for number in range(GPUS):
            # slurmd takes nothing but a device; its last digits are the GPU's index.
            os.mknod(self.folder / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
            gpus.append(f"Name=gpu File={self.folder}/gpu{number}\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self._write("plugstack.conf", "")
        self._write("gres.conf", "".join(gpus))
        version = "v1" if Path("/sys/fs/cgroup/memory").is_dir() else "v2"
        self._write(
            "cgroup.conf",
            f"CgroupAutomount=no\nCgroupPlugin=cgroup/{version}\n"
            "ConstrainCores=no\nConstrainRAMSpace=no\n",
        )
        ports = [_free_port(), _free_port()]
        self._write(
            "slurm.conf",
            _CONF.format(
                hostname=socket.gethostname().partition(".")[0], address=self.network.gateway,
                prefix=self.network.prefix, folder=self.folder, ctld_port=ports[0], cores=4,
                slurmd_port=ports[1], nodes=len(self.nodes), gpus=GPUS, memory=4000,
            ),
        )  # fmt: skip

    def _write(self, name: str, text: str) -> None:
        self.folder.joinpath(name).write_text(text)

    def start(self) -> None:
        """Start what does not run, and wait until all nodes are idle."""
        if self._munged is None:
            files = ("socket", "pid-file", "log-file", "seed-file", "key-file")
            options = [f"--{file}={self.folder}/munge.{file.partition('-')[0]}" for file in files]
            self._munged = self._daemon("munged", "--foreground", *options)
            wait_until(self.folder.joinpath("munge.socket").exists, _DEADLINE, "munged listens")
        self.start_slurmctld()
        for node in self.nodes:
            self.start_slurmd(node)
        wait_until(self.is_idle, _DEADLINE, "all nodes are idle")
        self._keep_daemons()

    def start_slurmctld(self) -> None:
        if self._slurmctld is None:
            self._slurmctld = self._daemon("slurmctld", "-D")

    def start_slurmd(self, node: networks.Host) -> None:
        if node.name in self._slurmds:
            return
        # Neither its own cgroups nor its own /sys: slurmd wants the cgroup mounts.
        enter = ("nsenter", "-t", str(node.pid), "-n", "-u", "-m", "-p", "--")
        self._slurmds[node.name] = self._daemon(*enter, "slurmd", "-D", "-N", node.name)

    def stop_slurmctld(self) -> None:
        """End it, after it has saved its state. What runs on the nodes goes on."""
        if self._slurmctld is not None:
            self._slurmctld.terminate()
            self._slurmctld.wait(_DEADLINE)
            self._slurmctld = None

    def kill_slurmd(self, node: networks.Host) -> None:
        """End it by SIGKILL. Its jobs' own daemons, slurmstepd, go on."""
        holder = self._slurmds.pop(node.name)
        for each in psutil.Process(holder.pid).children():
            each.send_signal(signal.SIGKILL)
        holder.wait(_DEADLINE)

    def power_off(self, node: networks.Host) -> None:
        node.is_changed = True
        node.power_off()
        self._slurmds.pop(node.name).wait(_DEADLINE)

    def is_idle(self) -> bool:
        """Whether no job is left, and all nodes could run one."""
        states = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T", check=False).split()
        jobs = self.run("squeue", "-h", "-o", "%i", check=False)
        return not jobs and states == ["idle"] * len(self.nodes)

    def leftovers(self) -> str:
        """Jobs in the queue, and processes on the nodes that belong to none of the daemons."""
        queued = self.run("squeue", "-h", "-o", "job %i %T %j", check=False)
        lines = queued.splitlines()
        for node in self.nodes:
            for each in networks.processes_on(node):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if each.name() != "slurmd":
                        lines.append(f"{node.name}: {each.pid} {' '.join(each.cmdline())[:150]}")
        return "\n".join(lines)

    def run(self, *argv: str, check: bool = True) -> str:
        env = {**os.environ, **self.variables}
        # sbatch writes the output of jobs there.
        done = captured(argv, timeout=_DEADLINE, cwd=self.folder, env=env)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def wait_for_state(self, job: str, state: str) -> None:
        show = ("scontrol", "-o", "show", "job", job)
        is_in_it = f" JobState={state} "
        wait_until(lambda: is_in_it in self.run(*show, check=False), _DEADLINE, is_in_it)

    def mend(self) -> str:
        """Have the cluster as new. Returns what the test has left there."""
        self.start_slurmctld()
        for node in self.nodes:
            if node.is_changed:
                if node.name in self._slurmds:
                    self.power_off(node)
                node.is_changed = False
                node.start()
            self.start_slurmd(node)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.leftovers(), 20.0)
        left = self.leftovers()
        if left:
            self.run("scancel", "--user=root", check=False)
        wait_until(self._is_idle_again, _DEADLINE, "all nodes are idle")
        self._keep_daemons()
        return left

    def _is_idle_again(self) -> bool:
        if self.is_idle():
            return True
        # A node that Slurm has marked down stays so for a while after its slurmd came back.
        down = self.run("sinfo", "-h", "-N", "-t", "down,drain,fail", "-o", "%N", check=False)
        if down:
            names = ",".join(sorted(set(down.split())))
            self.run("scontrol", "update", f"nodename={names}", "state=resume", check=False)
        return False

    def _daemon(self, *argv: str) -> subprocess.Popen[bytes]:
        with self.folder.joinpath("daemons.log").open("ab") as log:
            process = networks.hold(*argv, env=self.variables, stderr=log)
        self._processes.add(process.pid)
        return process

    def _keep_daemons(self) -> None:
        """Tell the count of what a test leaves which processes it is not to count."""
        for process in (self._munged, self._slurmctld, *self._slurmds.values()):
            if process is not None:
                found = psutil.Process(process.pid).children(recursive=True)
                self._processes.update(each.pid for each in found)

    def close(self) -> None:
        self.stop_slurmctld()
        if self._munged is not None:
            self._munged.kill()
            self._munged.wait()
        self.network.close()
        for holder in self._slurmds.values():
            holder.wait(_DEADLINE)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
        return port
