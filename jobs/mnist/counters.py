"""How far a run has come: Python numbers that are saved in its checkpoints."""

from __future__ import annotations

import json

import tensorflow as tf

_NUMBERS = ("epoch", "step", "epoch_images", "total_steps", "images_seen")


class Counters(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Counts in Python: variables would have to be written and read again at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        """Finished epochs."""
        self.step = 0
        """Finished steps of the current epoch."""
        self.epoch_images = 0
        """Images in those steps."""
        self.total_steps = 0
        self.images_seen = 0

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, after step {self.step}"

    def count_steps(self, steps: int, images: int) -> None:
        """Counts finished steps and the images in them."""
        self.step += steps
        self.total_steps += steps
        self.epoch_images += images
        self.images_seen += images

    def begin_epoch(self) -> None:
        """Counts a finished epoch."""
        self.epoch += 1
        self.step = self.epoch_images = 0

    def serialize(self) -> str:
        """Called when a checkpoint is saved."""
        return json.dumps({name: getattr(self, name) for name in _NUMBERS})

    def deserialize(self, string_value: str | bytes) -> None:
        """Called when a checkpoint is restored."""
        for name, number in json.loads(string_value).items():
            if name in _NUMBERS:
                setattr(self, name, int(number))
