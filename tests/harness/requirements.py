"""What some tests need of the machine. Where it is missing they are skipped, and say what to do."""

import importlib.util
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import pytest

PACKAGES = {
    "chromedriver": "chromium-driver", "chromium": "chromium", "git": "git", "ip": "iproute2",
    "mount": "mount", "munged": "munge", "nft": "nftables", "nsenter": "util-linux",
    "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "ssh": "openssh-client",
    "ssh-keygen": "openssh-client", "sshd": "openssh-server", "unshare": "util-linux",
}  # fmt: skip
"""The package of Debian and Ubuntu that has a program."""
AS_ROOT = "run the tests as root"


def missing(programs: Iterable[str], path: str | None = None) -> str | None:
    """Say which of these programs are not installed, and how to install them; None if all are."""
    names = [name for name in programs if shutil.which(name, path=path) is None]
    if not names:
        return None
    packages = dict.fromkeys(PACKAGES.get(name, name) for name in names)
    return reason(f"not installed: {', '.join(names)}", f"apt-get install {' '.join(packages)}")


def reason(why: str, remedy: str) -> str:
    return f"{why} ({remedy})"


def skip(why: str, remedy: str) -> NoReturn:
    pytest.skip(reason(why, remedy))


def need_root(why: str) -> None:
    if os.geteuid():
        skip(why, AS_ROOT)


def need_tensorflow() -> None:
    """Skip the test where TensorFlow is not installed: scripts/venv.sh can leave it out."""
    if importlib.util.find_spec("tensorflow") is None:
        skip("TensorFlow is not installed", "make venv")


def left_out(reasons: Iterable[str]) -> str | None:
    """Summarize in one line why tests were skipped, and what to do; None if none was."""
    counts = Counter(re.sub(r"^Skipped: ", "", each) for each in reasons)
    if not counts:
        return None
    parts = [f"{count}: {each}" for each, count in counts.most_common()]
    return f"{counts.total()} tests were left out. {'; '.join(parts)}"


def shared(
    make: Callable[[set[int]], Any], kept: set[int], why_not: str | None, *required_by: str
) -> Iterator[Any]:
    """Make what many tests use, and close it; without it, they fail by a variable, or skip."""
    if why_not is not None and any(map(os.environ.get, required_by)):
        pytest.fail(f"these tests are required here: {why_not}")
    if why_not is not None:
        pytest.skip(why_not)
    made = make(kept)
    yield made
    made.close()
