"""SIGTERM: the run saves at the end of a step and exits, so that a later launch can resume."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from mnist_job import workarounds

EXIT_CODE = 42  # the default of TensorFlow's own PreemptionCheckpointHandler


class Preempted(Exception):  # noqa: N818 - not an error: the run ends early, and its state is saved
    """The run has saved and must exit with EXIT_CODE."""


class SigtermWatch:
    """Waits for SIGTERM in a thread, which calls `act`. At first, SIGTERM ends the process.

    TensorFlow takes over SIGTERM when it joins a cluster, and a process that is blocked in
    TensorFlow runs no handler of Python. So this blocks the signal before numpy or TensorFlow start
    a thread. (While TensorFlow waits for its peers, the thread waits for the interpreter's lock.)
    """

    def __init__(self) -> None:
        self.act: Callable[[], None] = lambda: os._exit(128 + signal.SIGTERM)
        self._over = threading.Event()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._thread = threading.Thread(target=self._watch, name="SIGTERM", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        # Polls, because Python's sigtimedwait with a timeout reports a signal that never came when
        # the process was stopped and continued, or when the machine slept.
        while not self._over.wait(0.1):
            if signal.sigtimedwait({signal.SIGTERM}, 0) is not None:
                self.act()

    def end(self) -> None:
        """Stops watching: from now on, other handlers receive SIGTERM."""
        self._over.set()
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def agreed_handler(watch: SigtermWatch, save: Callable[[], None], strategy: Any) -> Any:
    """Returns TensorFlow's handler of SIGTERM for several workers: its `run` runs a training step.

    The workers agree on a step when any of them has received SIGTERM: instead of it, all save and
    raise Preempted. (If the handler's manager had checkpoints, the handler would restore its
    counter of steps on the chief only, and the workers would never agree.)
    """
    import tensorflow as tf

    def leave() -> None:
        raise Preempted

    actions = tf.distribute.experimental.TerminationConfig(exit_fn=leave, save_fn=save)
    unused = tf.train.CheckpointManager(tf.train.Checkpoint(), os.devnull, max_to_keep=1)
    workarounds.end_search_for_cloud()
    handler = tf.distribute.experimental.PreemptionCheckpointHandler
    made = handler(strategy.cluster_resolver, unused, termination_config=actions)
    watch.end()
    return made
