"""Hosts made of namespaces: each with its own network, processes, name, home folder and sshd.

    launching side (the machine's own network) --- switch --- h1, h2, h3, ...

Everything lives in namespaces that nothing but a process holds: when those processes end, however
the tests end, the kernel takes the interfaces, bridges and mounts away with them. The file system
is shared, as on a cluster with one; a host's home folder, `/run`, `/etc/passwd` and
`/etc/hosts` are its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO

import psutil

from harness.command import write_program
from harness.processes import captured
from harness.requirements import AS_ROOT, missing, reason
from harness.waiting import wait_until

NEEDED = ("ip", "nsenter", "ssh", "ssh-keygen", "sshd", "unshare", "mount", "nft")
_PR_SET_PDEATHSIG = 1
_DEADLINE = 60.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_SSHD = Path(__file__).with_name("sshd_config").read_text()
# The key exchange that costs least: the tests open hundreds of connections on two cores.
_CLIENT = """\
Host *
  KexAlgorithms curve25519-sha256
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""
_BOOT = Path(__file__).with_name("host_boot.sh").read_text()


def why_not() -> str | None:
    """Why such hosts cannot be made here; None where they can."""
    if os.geteuid() != 0:
        return reason("network namespaces need root", AS_ROOT)
    lacking = missing(NEEDED, _PATH)
    if lacking:
        return lacking
    trial = _run("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true", check=False)
    if trial.returncode:
        why = f"namespaces cannot be made here: {trial.stderr.strip()}"
        return reason(why, "allow them, or use a virtual machine")
    return None


def _run(*argv: str, check: bool = True, given: str = "") -> subprocess.CompletedProcess[str]:
    done = captured(argv, input=given, env={**os.environ, "PATH": _PATH})
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return done


def hold(
    *command: str, env: dict[str, str] | None = None, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that ends with the tests."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**os.environ, "PATH": _PATH, **(env or {})},
        # It takes no lock.
        preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        start_new_session=True,
    )


def _children(pid: int) -> list[int]:
    """Ids of what a process of one thread has begun; none where it is gone."""
    with contextlib.suppress(OSError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


def _child(pid: int) -> int:
    """The first process in the namespaces that `unshare --fork` made, as seen from here."""
    return wait_until(lambda: _children(pid), _DEADLINE, f"process {pid} has made its namespace")[0]


def _wait_for_end(pid: int) -> None:
    """Until a process that was killed has ended; whoever is its parent by now may reap it."""

    def has_ended() -> bool:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] in b"ZX"

    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        wait_until(has_ended, _DEADLINE, f"process {pid} has ended")


class Host:
    """One host. `pid` is that of its sshd, the first of its processes, as seen from outside."""

    def __init__(self, network: Network, number: int) -> None:
        self.name = f"h{number}"
        self.address = f"{network.prefix}.{number}"
        # The same after each start: others remember which card an address belongs to.
        self.card = f"02:00:00:00:00:{number:02x}"
        self.folder = network.folder / self.name
        self.home = self.folder / "hôme"
        self._network = network
        self._holder: subprocess.Popen[bytes] | None = None
        self.is_changed = False
        self.pid = 0
        self.home.mkdir(parents=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key"))
        shutil.copy(network.folder / "client_key.pub", self.folder / "authorized_keys")
        self._configure()

    def change(self, *, shell: str = "/bin/sh", sshd: str = "") -> None:
        """Start it anew with another login shell, or with lines before the usual ones of sshd."""
        self._configure(shell, sshd)
        self.restart()
        self.is_changed = True

    def provide(self, name: str, text: str) -> None:
        """Have its logins find this as a program."""
        program = write_program(self.folder / "bin" / name, text)
        self.change(sshd=f"SetEnv PATH={program.parent}:/bin\n")

    def _configure(self, shell: str = "/bin/sh", sshd: str = "") -> None:
        others = re.sub("^root:.*\n", "", Path("/etc/passwd").read_text(), flags=re.MULTILINE)
        self._write("passwd", f"root:x:0:0:root:{self.home}:{shell}\n{others}")
        self._write("hosts", f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        self._write("sshd_config", sshd + _SSHD.format(folder=self.folder))

    def _write(self, name: str, text: str) -> None:
        self.folder.joinpath(name).write_text(text)

    def start(self) -> None:
        self.folder.joinpath("sshd.log").unlink(missing_ok=True)
        sshd = shutil.which("sshd", path=_PATH) or "sshd"
        self._holder = hold(
            "unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child",
            "--mount-proc", "sh", "-c", _BOOT, "boot", self.name, str(self.folder), sshd,
        )  # fmt: skip
        self.pid = _child(self._holder.pid)
        self._network.processes.update((self._holder.pid, self.pid))
        self._network.plug(self)

    def run(self, *argv: str, check: bool = True, given: str = "") -> str:
        spaces = ("-n", "-u", "-m", "-p")
        return _run(
            "nsenter", "-t", str(self.pid), *spaces, "--", *argv, check=check, given=given
        ).stdout

    def cut(self) -> None:
        """Pull its cable: nothing is told to anybody."""
        self.is_changed = True  # its sshd may never hear of the other side's end
        self._network.at_switch("ip", "link", "set", self.name, "down")

    def mend(self) -> None:
        self._network.at_switch("ip", "link", "set", self.name, "up")

    def block(self, verdict: str, ports: str, *callers: str) -> None:
        """Have its firewall `drop` or `reject` calls of addresses to these ports (`1-65535`)."""
        self.is_changed = True
        from_ = ", ".join(callers)
        rule = f"ip saddr {{ {from_} }} tcp dport {ports} tcp flags & (syn | ack) == syn {verdict}"
        chain = f"chain input {{\ntype filter hook input priority 0\n{rule}\n}}"
        self.run("nft", "-f", "-", given=f"table inet tasks {{\n{chain}\n}}\n")

    def slow_down(self, rate: str) -> None:
        """Have its card send no faster than so much (`4mbit`): packets wait in a queue."""
        self.is_changed = True
        shaper = ("tbf", "rate", rate, "burst", "4kb", "latency", "1s")
        self.run("tc", "qdisc", "add", "dev", "eth0", "root", *shaper)

    def cover(self, path: Path, other: Path) -> None:
        """Have it see `other` where `path` is: the hosts share a file system."""
        self.is_changed = True
        self.run("mount", "--bind", str(other), str(path))

    def hide(self, folder: Path) -> None:
        self.is_changed = True
        self.run("mount", "-t", "tmpfs", "none", str(folder))

    def reset(self) -> None:
        if self.is_changed or self._holder is None:
            self.is_changed = False
            self._configure()
            self.restart()
        else:
            self._wait_until_idle()
        for each in self.home.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()
        self.mend()

    def _wait_until_idle(self) -> None:
        """Until nothing but its sshd runs: what is about to end may be removing files still.

        What never ends is found by the test's own count of what it has left.
        """
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not _children(self.pid), _DEADLINE)

    def power_off(self) -> None:
        if self._holder is None:
            return
        with contextlib.suppress(RuntimeError):
            self.cut()
        self._holder.kill()
        self._holder.wait()
        self._holder = None
        # It goes last: the kernel has ended all others of its namespace by then.
        _wait_for_end(self.pid)

    def restart(self) -> None:
        self.power_off()
        self.start()

    @property
    def sshd_log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.folder.joinpath("sshd.log").read_text()
        return ""


def _a_free_prefix() -> tuple[str, socket.socket]:
    """Three bytes of an address that no other tests here use, while the socket is open."""
    # 198.18.0.0/15 is for tests of networks (RFC 2544): nobody's own.
    prefixes = [f"198.{second}.{third}" for second in (18, 19) for third in range(1, 255)]
    random.shuffle(prefixes)
    for prefix in prefixes:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0distrun-tests-{prefix}")
        except OSError:
            claim.close()
        else:
            return prefix, claim
    raise RuntimeError("all networks for tests are in use")


class Network:
    """The switch, the launching side's end of it, and hosts that are made as they are needed."""

    def __init__(self, processes: set[int]) -> None:
        self.processes = processes
        """Ids of those that hosts and switch are made of; those of ended ones stay."""
        self.folder = Path(tempfile.mkdtemp(prefix="dr-net-"))
        self.prefix, self._claim = _a_free_prefix()
        self.gateway = f"{self.prefix}.254"
        self.ssh_config = self.folder / "ssh_config"
        self._hosts: list[Host] = []
        self._cable = "dr" + self.prefix.partition(".")[2].replace(".", "-")
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "client_key"))
        self._switch = hold("unshare", "--net", "--fork", "--kill-child", "sleep", "infinity")
        self._switch_pid = _child(self._switch.pid)
        processes.update((self._switch.pid, self._switch_pid))
        self._wait_for_namespace(self._switch_pid)
        self.at_switch("ip", "-batch", "-", given="link add br0 type bridge\nlink set br0 up\n")
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "up0",
             "netns", str(self._switch_pid))  # fmt: skip
        self.at_switch("ip", "-batch", "-", given="link set up0 master br0\nlink set up0 up\n")
        _run("ip", "addr", "add", f"{self.gateway}/24", "dev", self._cable)
        _run("ip", "link", "set", self._cable, "up")

    def _wait_for_namespace(self, pid: int) -> None:
        """Until the process is in a network of its own."""
        ours = os.readlink("/proc/self/ns/net")
        wait_until(
            lambda: os.readlink(f"/proc/{pid}/ns/net") != ours,
            _DEADLINE,
            f"process {pid} has a network of its own",
        )

    def at_switch(self, *argv: str, given: str = "") -> None:
        _run("nsenter", "-t", str(self._switch_pid), "-n", "--", *argv, given=given)

    def plug(self, host: Host) -> None:
        """Lay the cable from a host to the switch, and wait until its sshd answers."""
        self._wait_for_namespace(host.pid)
        with contextlib.suppress(RuntimeError):
            # The kernel takes a dead host's cable away a moment after the host.
            self.at_switch("ip", "link", "del", host.name)
        self.at_switch(
            "ip", "-batch", "-",
            given=f"link add {host.name} type veth peer name eth0 address {host.card} "
            f"netns {host.pid}\n"
            f"link set {host.name} master br0\nlink set {host.name} up\n",
        )  # fmt: skip
        _run(
            "nsenter", "-t", str(host.pid), "-n", "--", "ip", "-batch", "-",
            given=f"addr add {host.address}/24 dev eth0\nlink set lo up\nlink set eth0 up\n"
            f"route add default via {self.gateway}\n",
        )  # fmt: skip
        wait_until(
            lambda: "Server listening" in host.sshd_log, _DEADLINE, f"sshd listens on {host.name}"
        )

    def hosts(self, count: int) -> list[Host]:
        """The first `count` hosts, running and with their cables plugged in."""
        while len(self._hosts) < count:
            self._hosts.append(Host(self, len(self._hosts) + 1))
            self._hosts[-1].start()
        self._write_client_files()
        return self._hosts[:count]

    def _write_client_files(self) -> None:
        names, known = [], []
        for host in self._hosts:
            key = host.folder.joinpath("host_key.pub").read_text()
            known.append(f"{host.address} {key}")
            names.append(f"Host {host.name}\n  HostName {host.address}\n")
        self.folder.joinpath("known_hosts").write_text("".join(known))
        self.ssh_config.write_text("".join(names) + _CLIENT.format(folder=self.folder))

    def mend(self) -> None:
        for host in self._hosts:
            host.reset()

    def close(self) -> None:
        for host in self._hosts:
            host.power_off()
        self._switch.kill()
        self._switch.wait()
        self._claim.close()
        shutil.rmtree(self.folder)


def processes_on(host: Host, name: str | None = None) -> list[psutil.Process]:
    """What runs on a host besides its sshd and that one's sessions; of one name, if it is given."""
    try:
        below = psutil.Process(host.pid).children(recursive=True)
        return [each for each in below if _counts(each, name)]
    except psutil.NoSuchProcess:
        return []


def _counts(process: psutil.Process, name: str | None) -> bool:
    try:
        its_name = process.name()
        wanted = not its_name.startswith("sshd") if name is None else its_name == name
        return wanted and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pid_on_host(process: psutil.Process) -> int | None:
    """The id that a process has in the innermost of its namespaces; None if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None
