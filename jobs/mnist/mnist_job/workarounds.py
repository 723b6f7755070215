"""What TensorFlow 2.21 needs done in another way than one would write it, and why."""

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn


def select_keras_2() -> None:
    """Keras 3 fails with several strategies (docs/strategies.md): tf.keras is tf_keras."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its messages stay out of the task's log


@contextlib.contextmanager
def fast_imports() -> Iterator[None]:
    """Importing makes many objects and no garbage: searching them takes a fifth of the time."""
    gc.disable()
    yield
    gc.freeze()  # no later search looks at them
    gc.enable()


def leave(code: int) -> NoReturn:
    """Deleting distributed iterators takes up to 40 s with two workers: exits without."""
    atexit._run_exitfuncs()  # noqa: SLF001 - these remove the code that TensorFlow generates
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_search_for_cloud() -> None:
    """A preemption handler asks for a cloud, and waits 5 s where the network drops packets."""
    # It would ignore SIGTERM in a cloud. This address refuses at once. No other request follows.
    os.environ.update(GCE_METADATA_IP="127.0.0.1:1", NO_PROXY="*", no_proxy="*")


def compile_updates(optimizer: Any, strategy: str, steps: int) -> None:
    """XLA updates a variable in one pass over memory: 9 ms less a step, after 1 s to compile."""
    # Keras compiles with GPUs, also for ps, which cannot do it. A TPU compiles the whole step.
    optimizer.jit_compile = strategy not in ("parameter_server", "tpu") and steps >= 150
