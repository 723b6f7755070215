"""--loop fit: Model.fit runs the loop, with the `train_step` of the other loops.

As in Keras's guide "Customizing what happens in fit()". A callback tests, reports and saves at the
end of each epoch: Keras's own evaluation would make a new distributed iterator each epoch, and
other loops could not resume from Keras's own checkpoints.
"""

from typing import Any

import tf_keras


class FittedModel(tf_keras.Sequential):  # type: ignore[misc]
    """A model whose fit takes the steps of a training."""

    training: Any
    train_function: Any

    def train_step(self, batch: Any) -> dict[str, Any]:
        """One replica's step. Keras returns the sum of the replicas' parts of the loss."""
        return {"loss": self.training.train_step(batch)}

    def make_train_function(self, force: bool = False) -> Any:
        """Returns the function that fit calls for each step: that of Keras, run by the training."""
        if self.train_function is None or force:
            step = super().make_train_function(force)
            self.train_function = lambda iterator: self.training.take_steps(step, iterator)
        return self.train_function


def fit(training: Any) -> None:
    """Trains the remaining epochs of a Loop whose model is a FittedModel."""
    model, counters, epochs = training.model, training.counters, training.options.epochs
    model.__dict__["training"] = training  # past Keras, which would make it part of checkpoints
    model.distribute_reduction_method = "sum"
    with training.strategy.scope():
        model.compile(optimizer=training.optimizer)
    ends = tf_keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: training.end_epoch())
    datasets = [training.dataset]  # kept, because deleting one stalls
    while counters.epoch < epochs:
        if not training.steps_left:  # this launch asks for fewer steps than are trained already
            training.end_epoch()
            continue
        # All epochs of a fit have as many steps: an interrupted epoch is finished first.
        until = counters.epoch + 1 if counters.step else epochs
        steps = {"steps_per_epoch": training.steps_left, "initial_epoch": counters.epoch}
        model.fit(datasets[-1], **steps, epochs=until, callbacks=[ends], verbose=0)
        if counters.epoch < epochs:
            datasets.append(training.make_dataset())
