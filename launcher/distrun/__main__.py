"""Entry point of `distrun` and `python -m distrun`."""

# Not signal: Ctrl-C while that is being imported would show a traceback.
import _signal  # type: ignore[import-not-found]
import gc
import os
import sys

try:
    if __name__ == "__main__" and sys.path[0] == os.getcwd():
        del sys.path[0]  # of `python -m`: modules are not taken from where the user's programs are
except OSError:  # that folder is gone
    pass

_LAUNCHES = ("launch", "run", "resume")
_ASKS = {"-h", "--help", "--dry-run", "--resume-lost"}
_ALLOCATIONS = 50_000
"""Between two looks for garbage: Python's usual 700 are over after each few imports."""
_DESCRIPTORS = 24
"""A command that cannot open as many refuses to begin. Hosts and tasks of a job need more."""
_MEMORY = 32 << 20
"""Bytes, likewise. The plots of a report need more."""


def main() -> None:
    """Run the command line. Ctrl-C while it is being imported ends it without a traceback."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    gc.set_threshold(_ALLOCATIONS)
    _open_closed_streams()
    try:
        _try_resources()
    except (OSError, MemoryError) as error:
        from distrun.cli.main import refuse

        refuse(error)
    if sys.argv[1:2] and sys.argv[1] in _LAUNCHES and not _ASKS.intersection(sys.argv):
        from distrun.supervisor import supervisor_process

        supervisor_process.start_early()
    from distrun.cli.main import main as run

    run()


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise the next file or socket would get its number, and what is printed would go there.
    Standard output is opened for reading only: writing to it fails, as to the closed one.
    """
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free number, which is this one
            os.set_inheritable(descriptor, True)


def _try_resources() -> None:
    """Find out whether there are enough descriptors and memory.

    In the middle of its work, a command could neither say what it lacks nor remove its temporary
    files.

    Raises:
        OSError, MemoryError: there are too few.
    """
    opened: list[int] = []
    try:
        opened.extend(os.dup(0) for _ in range(_DESCRIPTORS))  # which keeps those before an error
    finally:
        for descriptor in opened:
            os.close(descriptor)
    bytes(_MEMORY)  # which is reserved, and not used


if __name__ == "__main__":
    main()
