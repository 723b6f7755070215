"""What every test with real processes needs.

The test process is a child subreaper: whatever a job leaves behind becomes its child, even a
process that called setsid or cleared its environment. After each test outside `tests/unit` it
counts those children, so "nothing is left" is not judged by what distrun knows of itself.
A consequence: orphans that end during a test stay zombies until it is over, so ask
`alive(pid)`, not `/proc`, whether a process still runs.
"""

import contextlib
import ctypes
import gc
import os
import pkgutil
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import distrun as distrun_package
from harness.command import Distrun
from harness.examples import register_profiles
from harness.parts.linux import usable_cores
from harness.preloaded import PreloadedPython
from harness.processes import alive, descendant_ids, processes_of
from harness.requirements import left_out
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TAIL = 4000

register_profiles()

# What is started is to find what it finds in most shells, wherever the tests are run.
for _name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "CONDA_PREFIX"):
    os.environ.pop(_name, None)
# What is started once for many tests has this checkout's launcher, too.
_paths = (str(ROOT / "launcher"), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as below a shell's `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:  # as below nohup, or `&`
        signal.signal(_number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def _homes() -> Iterator[Path]:
    # Not pytest's tmp_path: its long paths would test the 108 bytes of a socket's path
    # everywhere. Removed at the very end only, when nothing can be writing there any more.
    folder = Path(tempfile.mkdtemp(prefix="dr-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def distrun_home(_homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty DISTRUN_HOME and an environment without a job's variables."""
    for name in list(os.environ):
        if name.startswith("DISTRUN_") or name == "TF_CONFIG":
            monkeypatch.delenv(name)
    home = Path(tempfile.mkdtemp(dir=_homes, prefix=""))
    monkeypatch.setenv("DISTRUN_HOME", str(home))
    return home


@pytest.fixture
def distrun(
    distrun_home: Path, tmp_path: Path, _preloaded_distrun: PreloadedPython
) -> Iterator[Distrun]:
    """Run the command line: `distrun("launch", spec)`, or `distrun.start(...)`; cwd is tmp_path."""
    command = Distrun(distrun_home, tmp_path, _preloaded_distrun)
    yield command
    command.close()


@pytest.fixture(scope="session")
def _subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@pytest.fixture(scope="session")
def kept_processes() -> set[int]:
    """Ids of processes that outlive the test they were started in: the hosts of tests/ssh."""
    return set()


@pytest.fixture(scope="session")
def preloaded(_subreaper: None) -> Iterator[PreloadedPython]:
    """A server whose forks have TensorFlow imported; one for all tests of this process."""
    python = PreloadedPython("tensorflow", "tf_keras")
    yield python
    python.close()


@pytest.fixture(scope="session")
def _preloaded_distrun(_subreaper: None) -> Iterator[PreloadedPython]:
    """A server whose forks have the command line imported; one for all tests of this process."""
    names = [found.name for found in pkgutil.walk_packages(distrun_package.__path__, "distrun.")]
    unneeded = ("__main__", "watch_screen")  # Textual may be missing, and is for one command
    late = ("encodings.utf_8_sig", "jinja2", "rich._emoji_codes")  # imported by many commands
    python = PreloadedPython(*(each for each in names if not each.endswith(unneeded)), *late)
    yield python
    python.close()


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest, kept_processes: set[int]) -> Iterator[None]:
    if "unit" in request.path.relative_to(ROOT).parts:
        yield
        return
    request.getfixturevalue("_subreaper")
    me = os.getpid()
    # A child that ends while the kernel lists its siblings may hide one of them.
    before = descendant_ids(me) | descendant_ids(me)
    yield

    def left() -> list[psutil.Process]:
        return _living(processes_of(descendant_ids(me) - before - kept_processes))

    try:
        wait_until(lambda: not left(), 30.0)  # what tests start would run for longer
    except AssertionError:
        remaining = left()
        names = [_describe(process) for process in remaining]
        for process in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        pytest.fail("left behind by this test:\n" + "\n".join(names))


def _living(processes: set[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run, reaping the zombies that this process has adopted."""
    living = []
    for process in processes:
        if alive(process):
            living.append(process)
            continue
        try:
            os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:  # a zombie that has another parent, or already reaped
            continue
    return living


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())}"
    except psutil.NoSuchProcess:
        return f"{process.pid} ended just now"


@pytest.fixture(scope="session")
def small_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an mnist.npz of few digits; 101 test images divide evenly among nothing."""
    import numpy as np

    from mnist_job.data import synthetic

    folder = tmp_path_factory.mktemp("small-mnist")
    digits = synthetic()
    np.savez(
        folder / "mnist.npz",
        x_train=digits.train_images[::15],
        y_train=digits.train_labels[::15],
        x_test=digits.test_images[:4999:49][:101],
        y_test=digits.test_labels[:4999:49][:101],
    )
    return folder


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None]:
    """Print the tables that tests have made, and as the last line which tests were left out."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, lines in report.user_properties:
            if name == "table" and report.when == "call":
                terminalreporter.write_sep("-", report.nodeid)
                terminalreporter.write_line(lines)
    yield
    line = left_out(report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    if line is not None:
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Search for no garbage among tests: they stay to the end, and there are thousands."""
    gc.disable()
    found: Any = yield
    gc.freeze()
    gc.enable()
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from harness.schedule import rank

        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the processes for `-n auto`: more than there are cores, because tests mostly wait."""
    return max(2, round(3 * usable_cores()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    # Markers of pytest-xdist do not group tests with pytest 9.2: it ignores the names they set.
    from harness.schedule import Schedule

    return Schedule(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show a failed test's records, the latest first: they are gone when one looks."""
    report: Any = yield
    home = getattr(item, "funcargs", {}).get("distrun_home")
    if report.failed and home is not None:
        for _, name, text in sorted(_ends_of_files(home), reverse=True):
            report.sections.append((name, text))
    return report


def _ends_of_files(home: Path) -> Iterator[tuple[float, str, str]]:
    """When each was written, its name, its end; of a job that may still run, and remove some."""
    for folder, _, names in os.walk(home):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if path.is_file() and path.suffix != ".idx":
                    with path.open("rb") as file:
                        file.seek(max(0, path.stat().st_size - TAIL))
                        text = file.read(TAIL).decode(errors="replace")
                    yield path.stat().st_mtime, str(path.relative_to(home)), text


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start jobs on emulated hosts, with the arguments of its `World` behind the folder."""
    from harness.hostile import World

    with contextlib.ExitStack() as stack:
        yield lambda *args, **about: stack.enter_context(
            contextlib.closing(World(tmp_path, *args, **about))
        )
