"""The evaluator: follows the checkpoints that others save, and ends after the last one."""

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

_LOOK_SECONDS = 0.2


class Evaluator:
    """Evaluates the newest checkpoint whenever there is a new one, without any strategy."""

    def __init__(
        self, digits: Digits, folder: Path, arguments: Arguments, say: Callable[[str], None]
    ) -> None:
        """Takes what the training tasks were given too.

        Args:
            digits: the test half is used.
            folder: where the chief saves.
            arguments: the checkpoint that has as many epochs as they say is the last one.
            say: told each result in a line.
        """
        self._digits, self._folder, self._say = digits, folder, say
        self._epochs = arguments.epochs
        self._evaluation = Evaluation(digits, arguments)
        self._progress = Progress(os.environ)

    @property
    def headline(self) -> str:
        """What is evaluated on what, in one line."""
        return (
            f"evaluator: follows the checkpoints in {self._folder} to epoch {self._epochs}; data: "
            f"{self._digits.source}, {len(self._digits.test_images):,} images"
        )

    def run(self) -> None:
        """Evaluates, until the checkpoint of the last epoch has been."""
        seen, epoch = None, 0
        while epoch < self._epochs:
            newest = newest_whole_in(self._folder)
            if newest in {None, seen}:
                time.sleep(_LOOK_SECONDS)
                continue
            try:
                epoch = self._evaluate(newest)
            except CheckpointError as error:
                if newest != newest_whole_in(self._folder):
                    continue  # the chief has removed it meanwhile, for newer ones
                self._say(str(error))
            seen = newest

    def _evaluate(self, path: str) -> int:
        """Evaluates one checkpoint; returns how many epochs it holds."""
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
