"""Progress that is read from the lines of training loops, as tutorials and examples print them."""

from __future__ import annotations

import pytest

from distrun.job.printed_progress import PrintedProgress

# `E`: the epoch, `S`: the step. What is read of the second line, beside LOSS.
FORMS = {
    # TensorFlow's tutorials
    "Epoch: {E}, accuracy: 0.8360, train_loss: {L}.": "EPOCH TRAIN_LOSS",
    "Epoch {E} Batch {S} Loss {L}": "EPOCH STEP LOSS",
    "Epoch {E} (best so far), loss: {L}": "EPOCH LOSS",
    "Training loss (for one batch) at step {S}: {L}": "STEP LOSS",
    "step {S}: mean loss = {L}": "STEP LOSS",
    "INFO:tensorflow:loss = {L}, step = {S} (1.2 sec)": "STEP LOSS",
    # PyTorch's and others'
    "Train Epoch: {E} [{S}/60000 (1%)]\tLoss: {L}": "EPOCH STEP STEPS LOSS",
    "[{E},  {S}] loss: {L}": "EPOCH STEP LOSS",
    "Epoch [{E}/5], Step [{S}/600], Loss: {L}": "EPOCH EPOCHS STEP STEPS LOSS",
    "Epoch: [{E}][ {S}/391]\tTime 0.100 (0.200)\tLoss {L} (6.9)\tAcc@1 10.0 (9)": "EPOCH STEP LOSS",
    "| epoch   {E} |   {S}/ 2928 batches | lr 5.00 | ms/batch 20.3 | loss  {L} | ppl  3478.0":
        "EPOCH STEP STEPS LOSS PPL",
    "[{E}/25][{S}/1583]\tLoss_D: {L}\tLoss_G: 2.1\tD(x): 0.6": "EPOCH EPOCHS STEP STEPS LOSS_D",
    "[Epoch {E}/200] [Batch {S}/938] [D loss: {L}] [G loss: 1.2]": "EPOCH EPOCHS STEP STEPS LOSS",
    "{{'loss': {L}, 'learning_rate': 4e-05, 'epoch': {E}.5}}": "EPOCH LOSS LEARNING_RATE",
    "step {S}: train loss {L}, val loss 10.9": "STEP TRAIN_LOSS VAL_LOSS",
    "2026-01-01 10:00:0{E} | INFO | train_inner | epoch 00{E}:    {S} / 1102 loss={L}, ppl=38.5":
        "EPOCH STEP STEPS LOSS PPL",
    " iteration      {S}/  500000 | elapsed time: 812.3 | lm loss: {L} | loss scale: 1.0 |":
        "STEP STEPS LOSS",
    "08/21 02:58:4{E} - mmengine - INFO - Epoch(train) [{E}][{S}/25] lr: 1.0000e-02 loss: {L}":
        "EPOCH STEP STEPS LOSS",
    "{{'loss': '{L}', 'grad_norm': '2.1', 'epoch': '0.{E}8', 'step': {S}}}": "EPOCH STEP LOSS",
    # everybody's
    "| epoch |   {E} | step |   {S} | loss  | {L} |": "EPOCH STEP LOSS",
    "epoch {E}/10 step {S}/500 loss={L}": "EPOCH EPOCHS STEP STEPS LOSS",
    "[{S}/500] loss: {L}": "STEP STEPS LOSS",
    "[2026-11-25 10:00:0{E}][INFO] Epoch {E} | train_loss: {L} | val_acc: 0.91": "EPOCH VAL_ACC",
    "\x1b[32mEpoch {E}\x1b[0m: Loss = {L}, Acc = 0.9": "EPOCH LOSS ACC",
    "epoch:  {E}  loss:  nan": "EPOCH LOSS",
    "train | step:    {S} | steps/sec:   1.0 | output: {{'training_loss': {L}}}": "STEP",
    "[gpu01:0/2] (trainer:464) INFO: {E}epoch:train:1-{S}batch: loss={L}, acc=0.1":
        "EPOCH STEP LOSS",
    "Epoch {E} Loss tf.Tensor({L}, shape=(), dtype=float32)": "EPOCH LOSS",
    "{{'loss': np.float32({L}), 'epoch': {E}}}": "EPOCH LOSS",
    '{{"step": {S}, "loss": {L}}}': "STEP LOSS",
}  # fmt: skip
BARE = {
    # without a metric
    "train | step:    {S} | steps/sec:   12.3 | output: ": "STEP",
    "step: {S}/1000, 12.{E} it/s, eta 00:1{E}": "STEP STEPS",
    "Epoch {E} of 10 (3.2 sec)": "EPOCH EPOCHS",
    "[Epoch {E}][Batch {S}]": "EPOCH STEP",
    "Time taken for epoch {E} is 13.2 sec": "EPOCH",
    "2024-01-01 12:00:0{E} INFO train: step {S}": "STEP",
    "I0101 12:00:00.{S} 140 model_lib_v2.py:705] Step {S} per-step time 0.421s": "STEP",
}
OTHERS = (
    "Epoch {E}: val_loss improved from inf to 0.{S}, saving model to best.keras",
    "Restoring model weights from the end of the best epoch: {E}.",
    "Saved checkpoint for step {S}: ckpt-{E}",
    "Test set: Average loss: 0.02, Accuracy: {S}/10000 (99%)",
    "Evaluation at step {S}: loss 0.2",
    "2026-11-25 12:00:0{E} Validation: epoch {E} loss 0.2",
    "epoch {E}: lr 0.{S}",
    "LR milestones: epoch {S}, lr 0.0{E}",
    "INFO:tensorflow:Recording summary at step {S}.",
    "Loading {E}/10 shards",
    "{{'epochs': {E}, 'batch_size': 64, 'lr': 0.1}}",
    "batch: {S}, epochs: 5",
    "Step {E}/7 : RUN pip install tensorflow",
    "Tokenizing batch {E}/10",
    "Best epoch: {E}, loss: 0.{S}",
    "08/21 02:58:4{E} - mmengine - INFO - Epoch(val) [1][{S}/300] accuracy: 0.5 time: 0.1",
    "| {E}            | 5.2557       | 1.36s        |",
    "step {E} of the plan: accuracy matters",
    "WARNING: loss of precision in step {S}",
    "loss: 0.{S}",
    "epochs {E} accuracy of 5 folds",
    "learning rate set to 0.{S} for epoch {E}",
)


def lines(form: str) -> list[str]:
    return [form.format(E=each, S=100 * each, L=f"0.{9 - each}25") + "\n" for each in (1, 2, 3)]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_progress_once_it_has_moved_on(form: str) -> None:
    first, second, third = lines(form)
    printed = PrintedProgress()
    assert not printed.read(first), "one line can be anything"
    assert not printed.read(first)
    assert printed.read(f"other output\n{second}")
    assert {"EPOCH": "2", "STEP": "200"}.items() & printed.values.items()
    assert set(FORMS[form].split()) <= printed.values.keys()
    assert printed.first_step.get("STEP", "100") == "100"
    printed.read(third)
    losses = [value for key, value in printed.values.items() if "LOSS" in key]
    assert "0.625" in losses or "nan" in losses
    assert not printed.is_moving, "other output is a sign of life, too"


@pytest.mark.parametrize("form", BARE)
def test_a_line_without_a_metric_is_progress_if_it_begins_with_an_epoch_or_step(form: str) -> None:
    first, second, _ = lines(form)
    printed = PrintedProgress()
    assert not printed.read(first + first)
    assert printed.read(second)
    assert printed.values.keys() == set(BARE[form].split())
    assert {"EPOCH": "2", "STEP": "200"}.items() & printed.values.items()


def test_a_fraction_of_an_epoch_moves_on() -> None:
    printed = PrintedProgress()
    assert not printed.read("epoch 3 loss 0.5\n" * 3 + "epoch 2 loss 0.4\n")
    assert printed.read("{'loss': 0.3, 'epoch': 1.2}\n{'loss': 0.25, 'epoch': 1.4}\n")
    assert printed.values == {"LOSS": "0.25", "EPOCH": "1"}


@pytest.mark.parametrize("form", OTHERS)
def test_other_lines_are_none(form: str) -> None:
    printed = PrintedProgress()
    assert [printed.read(line) for line in lines(form)] == [False] * 3
    assert printed.values == {}


def test_a_step_begins_anew_with_each_epoch() -> None:
    printed = PrintedProgress()
    printed.read("".join(f"epoch {e} step {s} loss 0.1\n" for e in (1, 2) for s in (50, 100)))
    assert (printed.values["EPOCH"], printed.values["STEP"]) == ("2", "100")
    printed.read("epoch 3 step 50 loss 0.1\n")
    assert (printed.values["EPOCH"], printed.values["STEP"]) == ("3", "50")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    ["epoch 1 loss ", "a: step 1/", "[epoch 1", "1-1batch", ": ", "[1/1 ", "train_loss ", "\t"],
)
def test_the_time_is_linear(part: str) -> None:
    line = part * (200_000 // len(part))
    printed = PrintedProgress()
    printed.read(f"1 loss {line}\n")
    printed.read(f"{part} 1 loss\n" * 4000)
