"""Facts of this host: its cores, GPUs, names and disks."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any, List, Optional, Sequence, Union

from distrun.agent.linux import cgroups
from distrun.agent.linux.regular import LARGEST_SCRIPT, content, numbers, open_regular

_SMALL = 500_000
"""Bytes of a script, for which loading OpenSSL takes longer than what it saves."""
NVIDIA_SMI_SECONDS = 20
_NO_GPU = (6, 9, 12)
"""Exit codes of nvidia-smi also where there is no GPU: none found, no driver, no library of it."""
_LONGEST_TEXT = 300
_PCI_DEVICES = "/sys/bus/pci/devices"
_BLOCK = 1 << 20


def free_bytes(folder: str) -> Optional[int]:
    """The bytes that are free for this user on a folder's disk; None if that is unknown."""
    try:
        found = os.statvfs(os.fsencode(folder))
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def file_digest(path: str) -> str:
    """The SHA-256 of a script. Raises OSError if it cannot be read, or is larger than any."""
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_SCRIPT:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        digest = _sha256(size)
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)
    return str(digest.hexdigest())


def _sha256(size: int) -> Any:
    """Return what computes the SHA-256 of so many bytes.

    OpenSSL is eight times as fast, but to load it takes a tenth of an agent's start.
    """
    if size < _SMALL:
        with contextlib.suppress(ImportError):
            return __import__("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256()
    import hashlib

    return hashlib.sha256()


def pid_namespace() -> str:
    """The kernel's boot id and the namespace of process ids (pid_namespaces(7)), if known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return "{} {}".format(file.read().strip(), os.readlink("/proc/self/ns/pid"))
    except OSError:
        return ""


def libc() -> str:
    """The C library and its version, such as `glibc 2.36`; empty if it is another one, as musl."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return ""


def usable_cores() -> float:
    """Cores, counting CPU affinity and the cgroup's quota."""
    cores = float(len(os.sched_getaffinity(0)))
    quota = cgroup_quota()
    return min(cores, quota) if quota else cores


def cgroup_quota(pid: Union[int, str] = "self") -> float:
    """The tightest quota of a process's cgroups, in cores; 0 if there is none."""
    quotas = []
    for folder in cgroups.folders(pid, "cpu"):
        limit, period = _read_quota(folder)
        if limit > 0 and period > 0:
            quotas.append(limit / period)
    return min(quotas) if quotas else 0.0


def throttled_seconds(pid: int) -> float:
    """For how long the tightest cgroup of a process has kept it from running, in all."""
    most = 0.0
    for folder in cgroups.folders(pid, "cpu"):
        found = numbers(os.path.join(folder, "cpu.stat"))
        seconds = found.get("throttled_usec", 0) / 1e6, found.get("throttled_time", 0) / 1e9
        most = max(most, *seconds)
    return most


def _read_quota(folder: str) -> "tuple[float, float]":
    words = content(os.path.join(folder, "cpu.max")).split()
    for name in () if words else ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
        words += content(os.path.join(folder, name)).split()
    try:
        limit, period = map(float, words)
    except ValueError:  # `max`, or there is none
        return 0.0, 0.0
    return limit, period


class NvidiaSmiError(OSError):
    """nvidia-smi has failed: its exit code and what it printed, or None if it did not answer."""

    def __init__(self, status: Optional[int], text: str = "") -> None:
        super().__init__(text)
        self.status, self.text = status, text


def gpus() -> List[int]:
    """Indices of this host's NVIDIA GPUs. Raises NvidiaSmiError: it has some, but lists none."""
    try:
        answer = ask_nvidia_smi("--query-gpu=index")
        return [int(word) for word in answer.split()]
    except ValueError:
        raise NvidiaSmiError(0, _first_line(answer.strip().encode())) from None
    except NvidiaSmiError as error:
        if error.status in _NO_GPU and not _has_nvidia_device():
            return []
        raise


def _first_line(said: bytes) -> str:
    return said.partition(b"\n")[0][:_LONGEST_TEXT].decode("utf-8", "replace")


def _has_nvidia_device() -> bool:
    """Whether the PCI bus has a display controller of NVIDIA, with or without a driver."""
    try:
        devices = os.listdir(_PCI_DEVICES)
    except OSError:
        return False
    for device in devices:
        vendor, kind = (content(f"{_PCI_DEVICES}/{device}/{name}") for name in ("vendor", "class"))
        if vendor.startswith(b"0x10de") and kind.startswith(b"0x03"):
            return True
    return False


def find_nvidia_smi() -> Optional[str]:
    """The path of the program nvidia-smi; None if this host has none."""
    return find_program("nvidia-smi", os.get_exec_path())


def find_program(name: str, folders: Sequence[str]) -> Optional[str]:
    """The path of a program, in the first of these folders that has it; None if none has it."""
    paths = (os.path.join(folder, name) for folder in folders)
    return next((each for each in paths if os.access(each, os.X_OK) and os.path.isfile(each)), None)


def ask_nvidia_smi(query: str, *form: str, seconds: float = NVIDIA_SMI_SECONDS) -> str:
    """What nvidia-smi prints, as lines of values, or nothing. May block. Raises NvidiaSmiError."""
    program = find_nvidia_smi()
    if program is None:
        return ""
    import subprocess

    command = [program, query, "--format=" + ",".join(("csv", "noheader", *form))]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=seconds, check=True)
    except subprocess.CalledProcessError as error:
        said = error.stdout.strip() or error.stderr.strip()
        raise NvidiaSmiError(error.returncode, _first_line(said)) from None
    except subprocess.TimeoutExpired:
        raise NvidiaSmiError(None) from None
    except OSError as error:
        raise NvidiaSmiError(126, os.strerror(error.errno or 0)) from error
    return answer.stdout.decode("utf-8", "replace")
