"""The evaluator: evaluates each checkpoint that others save, and exits after the last one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from checkpoints import CheckpointError
from evaluation import Evaluation, newest_whole_in
from progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from arguments import Arguments
    from digits import Digits

_POLL_SECONDS = 0.2


class Evaluator:
    """Evaluates the newest checkpoint whenever there is a new one, without a strategy."""

    def __init__(
        self, digits: Digits, folder: Path, arguments: Arguments, say: Callable[[str], None]
    ) -> None:
        """Builds the model.

        Args:
            digits: the test half is used.
            folder: the chief's checkpoints.
            arguments: those of the training tasks. The checkpoint with all their epochs is the
                last one.
            say: called with one line per result.
        """
        self._digits, self._folder, self._say = digits, folder, say
        self._epochs = arguments.epochs
        self._evaluation = Evaluation(digits, arguments)
        self._progress = Progress(os.environ)

    @property
    def headline(self) -> str:
        """One line that names the checkpoints and the data."""
        return (
            f"evaluator: follows the checkpoints in {self._folder} to epoch {self._epochs}; data: "
            f"{self._digits.source}, {len(self._digits.test_images):,} images"
        )

    def run(self) -> None:
        """Evaluates checkpoints, up to that of the last epoch."""
        seen, epoch = None, 0
        while epoch < self._epochs:
            newest = newest_whole_in(self._folder)
            if newest in {None, seen}:
                time.sleep(_POLL_SECONDS)
                continue
            try:
                epoch = self._evaluate(newest)
            except CheckpointError as error:
                if newest != newest_whole_in(self._folder):
                    continue  # the chief has removed it, because there are newer ones
                self._say(str(error))
            seen = newest

    def _evaluate(self, path: str) -> int:
        """Evaluates one checkpoint; returns its number of finished epochs."""
        started = time.monotonic()
        result = self._evaluation.of(path)
        self._say(str(result))
        self._progress.send(
            step=result.total_steps,
            epoch=max(result.epoch, 1),
            loss=result.loss,
            examples_per_sec=len(self._digits.test_images) / max(time.monotonic() - started, 1e-9),
        )
        return result.epoch
