"""What goes wrong, on request: FAULT is `worker:1 step 3 sigkill`, for the corpus' programs."""

import os
import signal
import sys
import time

ME = os.environ.get("DISTRUN_TASK", "worker:0")
WHO, _, WHEN, WHAT = (os.environ.get("FAULT") or "nobody at never nothing").split(" ", 3)


class BadSample(Exception):
    pass


def at(place):
    """To be called at each place where something may go wrong."""
    if ME == WHO and str(place) == WHEN:
        print(f"{ME}: at {place}", flush=True)
        strike(WHAT)


def strike(what):
    if what.startswith("sig"):
        os.kill(os.getpid(), getattr(signal, what.upper()))
        time.sleep(0.1)
    elif what.startswith("exit"):
        os._exit(int(what[4:]))
    elif what.startswith("sysexit"):
        sys.exit(int(what[7:]))
    elif what == "message":
        sys.exit("the learning rate must be positive")
    elif what == "value":
        raise ValueError("labels must lie in [0, 10), got 17")
    elif what == "key":
        {}["learning_rate"]
    elif what == "own":
        raise BadSample("sample 4711 is broken")
    elif what == "chained":
        try:
            open("settings.json")
        except OSError as error:
            raise RuntimeError("no settings") from error
    elif what == "import":
        import tensorflow_addons  # noqa: F401
    elif what == "name":
        from json import no_such_thing  # noqa: F401
    elif what == "disk":
        with open("/dev/full", "w") as file:
            file.write("x" * 100000)
    elif what == "permission":
        open("/sys/kernel/notes", "w")
    elif what == "file":
        open("data/train.tfrecord", "rb")
    elif what == "memory":
        bytearray(1 << 60)
    elif what == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 20)) * 16)
    elif what == "hang":
        time.sleep(600)
    elif what == "assert":
        assert os.getpid() < 0
    elif what == "segv":
        import ctypes

        ctypes.string_at(0)
    else:
        raise SystemExit(f"no such fault: {what}")
