"""How far a run is: numbers of Python's own, which a checkpoint holds too."""

from __future__ import annotations

import json

import tensorflow as tf

_NUMBERS = ("epoch", "step", "epoch_images", "total_steps", "images_seen")


class Position(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Counted in Python: variables would have to be written at each step, and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        """Epochs finished."""
        self.step = 0
        """Steps done of the epoch after them."""
        self.epoch_images = 0
        """Images seen in these steps."""
        self.total_steps = 0
        self.images_seen = 0

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, after step {self.step}"

    def count_steps(self, steps: int, images: int) -> None:
        """Takes note of steps that have been trained, and of the images they saw."""
        self.step += steps
        self.total_steps += steps
        self.epoch_images += images
        self.images_seen += images

    def begin_epoch(self) -> None:
        """Takes note that an epoch is over."""
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
