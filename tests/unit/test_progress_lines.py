"""Progress that is read from the lines of training loops, as tutorials and examples print them."""

from collections.abc import Iterator

import pytest

from distrun.job.printed_progress import PrintedProgress
from distrun.words.progress import TimeLeft, progress_words

# `E`: the epoch, `S`: the step. What is read of the second line, beside LOSS.
FORMS = {
    # TensorFlow's tutorials
    "Epoch: {E}, accuracy: 0.8360, train_loss: {L}.": "EPOCH TRAIN_LOSS",
    "Epoch {E} Batch {S} Loss {L}": "EPOCH STEP LOSS",
    "Training loss (for one batch) at step {S}: {L}": "STEP LOSS",
    "INFO:tensorflow:loss = {L}, step = {S} (1.2 sec)": "STEP LOSS",
    "Finished epoch {E}, accuracy is {L}.": "EPOCH ACCURACY",
    "The average loss for epoch {E} is    {L} and mean absolute error is    2.40.": "EPOCH LOSS",
    "For batch {S}, loss is    {L}.": "STEP LOSS",
    "Mean squared error for step {S}: {L}": "STEP ERROR",
    "Epoch: {E}, Test set ELBO: {L}, time elapse for current epoch: 6.2": "EPOCH ELBO",
    # PyTorch's and others'
    "Train Epoch: {E} [{S}/60000 (1%)]\tLoss: {L}": "EPOCH STEP STEPS LOSS",
    "[{E},  {S}] loss: {L}": "EPOCH STEP LOSS",
    "Epoch [{E}/5], Step [{S}/600], Loss: {L}": "EPOCH EPOCHS STEP STEPS LOSS",
    "Epoch: [{E}][ {S}/391]\tTime 0.100 (0.200)\tLoss {L} (6.9)\tAcc@1 10.0 (9)": "EPOCH STEP LOSS",
    "| epoch   {E} |   {S}/ 2928 batches | lr 5.00 | ms/batch 20.3 | loss  {L} | ppl  3478.0":
        "EPOCH STEP STEPS LOSS PPL",
    "[{E}/25][{S}/1583]\tLoss_D: {L}\tLoss_G: 2.1\tD(x): 0.6": "EPOCH EPOCHS STEP STEPS LOSS_D",
    "{{'loss': {L}, 'learning_rate': 4e-05, 'epoch': {E}.5}}": "EPOCH LOSS LEARNING_RATE",
    "step {S}: train loss {L}, val loss 10.9": "STEP TRAIN_LOSS VAL_LOSS",
    "{{'loss': '{L}', 'grad_norm': '2.1', 'epoch': '0.{E}8', 'step': {S}}}": "EPOCH STEP LOSS",
    # everybody's
    "epoch {E}/10 step {S}/500 loss={L}": "EPOCH EPOCHS STEP STEPS LOSS",
    "[2026-11-25 10:00:0{E}][INFO] Epoch {E} | train_loss: {L} | val_acc: 0.91": "EPOCH VAL_ACC",
    "\x1b[32mEpoch {E}\x1b[0m: Loss = {L}, Acc = 0.9": "EPOCH LOSS ACC",
    "train | step:    {S} | steps/sec:   1.0 | output: {{'training_loss': {L}}}": "STEP",
    "[gpu01:0/2] (trainer:464) INFO: {E}epoch:train:1-{S}batch: loss={L}, acc=0.1":
        "EPOCH STEP LOSS",
    "Epoch {E} Loss tf.Tensor({L}, shape=(), dtype=float32)": "EPOCH LOSS",
    '{{"step": {S}, "loss": {L}}}': "STEP LOSS",
    '{{"episode": 8.0, "mean_episode_reward": {L}, "step": {S}}}': "STEP EPISODE_REWARD",
    "step tf.Tensor({S}, shape=(), dtype=int64) loss tf.Tensor({L}, shape=(), dtype=float32)":
        "STEP LOSS",
    "Train - Epoch: [{E}/300][ {S}/464]\tTime  0.7 ( 0.7)\tLoss {L} (1.5)":
        "EPOCH EPOCHS STEP STEPS LOSS",
    "Time: 0.2 Epoch: 00{E} Iter: {S}/ 526 LR: 0.0002 Loss content: {L}":
        "EPOCH STEP STEPS LOSS_CONTENT",
    "02:31:56: train iter: {S} loss_net: {L} loss_scale: 785.4 norm: nan": "STEP LOSS_NET",
    "Epoch {E} Val Batch {S}/100 Loss: {L}": "EPOCH LOSS",
    "Cost after iteration {S}: {L}": "STEP COST",
    "INFO:root:Steps: {S} | LR 0.001 | Loss {L} | 2.3 it/s": "STEP LR LOSS",
    # an episode is an epoch
    "episode: {E}/1000, score: {L}, e: 0.99": "EPOCH EPOCHS SCORE",
    "Ep {E} | iter {S} | reward: {L}": "EPOCH STEP REWARD",
    # programs that do not say what they count
    "{S} [D loss: {L}, acc.: 51.56%] [G loss: 0.789012]": "STEP D_LOSS G_LOSS",
    "[{S} | 28.30] loss={L} avg=3.41": "STEP LOSS",
    "I0101 10:00:00.000000 139 logging_writer.py:48] [{S}] learning_rate=0.1, loss={L}":
        "STEP LOSS LEARNING_RATE",
    "[{S}]\ttrain-rmse:{L}\teval-rmse:0.59": "STEP TRAIN_RMSE EVAL_RMSE",
    "[{S}]\tvalid_0's l2: 0.500102\tvalid_0's auc: {L}": "STEP AUC",
    "{E}/10 epochs, loss {L}": "EPOCH EPOCHS LOSS",
    "{S}/1000 train_loss: {L}": "STEP STEPS TRAIN_LOSS",
    "updates {S} | loss {L}": "STEP LOSS",
    "{S}:\tlearn: 0.67\ttest: 0.68\ttotal: 58.1ms\tloss: {L}": "STEP LOSS",
}  # fmt: skip
BARE = {
    # without a metric
    "Epoch {E} of 10 (3.2 sec)": "EPOCH EPOCHS",
    "[Epoch {E}][Batch {S}]": "EPOCH STEP",
    "(epoch: {E}, iters: {S}, time: 0.078, data: 3.094) G_GAN: 18.23 D_fake: 0.5": "EPOCH STEP",
    "End of epoch {E} / 400 \t Time Taken: 88 sec": "EPOCH EPOCHS",
    "Iter #{S}: 100.5 img/sec per GPU": "STEP",
    "1511.1: Worker 0: training step {S} done (global step: {S})": "STEP",
    "Time taken for epoch {E} is 13.2 sec": "EPOCH",
    "I0101 12:00:00.{S} 140 model_lib_v2.py:705] Step {S} per-step time 0.421s": "STEP",
    "INFO:tensorflow:Step {S} per-step time 0.421s": "STEP",
    "train | step:    {S} | steps/sec:    2.0 | output: ": "STEP",
    "[  {E}]    {S} || B: 4.213 | C: 5.120 || ETA: 1 day, 3:04:05 || timer: 0.310": "EPOCH STEP",
    " {S}: 825.548706, 680.210022 avg, 0.000000 rate, 10.086429 seconds, 960 images": "STEP",
    "{S}\timages/sec: 124.4 +/- 0.0 (jitter = 0.0)\t7.7": "STEP",
}
OTHERS = (
    "Epoch {E}: val_loss improved from inf to 0.{S}, saving model to best.keras",
    "Test set: Average loss: 0.02, Accuracy: {S}/10000 (99%)",
    "LR milestones: epoch {S}, lr 0.0{E}",
    "{{'epochs': {E}, 'batch_size': 64, 'lr': 0.1}}",
    "Best epoch: {E}, loss: 0.{S}",
    "08/21 02:58:4{E} - mmengine - INFO - Epoch(val) [1][{S}/300] accuracy: 0.5 time: 0.1",
    "learning rate set to 0.{S} for epoch {E}",
    "Retrying batch {S}: error 104",
    "Generating batch {S} of 900, epoch {E}",
    "[{E}]<stdout>: loss: 0.5, acc: 0.4",
    "10:00:0{E} loss: 0.5, acc: 0.4",
    "{E}: packet loss: 0%, time: 12",
    "{E}/10 folds: accuracy 0.5",
    "[{E}] cat: 0.5, dog: 0.4",
    "{E}: 0.12, 0.13, 0.14",
    "Test Episode {E}/10, reward: 10",
    "http://host/ep/{E} score: 1",
    '{{"epoch": 170000000{E}.5, "level": "info", "loss": 0.5}}',
    "loss: 0.5, ms_per_step: {E}, time per batch {E}.532, avg step 0.{S}s",
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
    assert "0.625" in printed.values.values()
    assert not printed.is_moving, "other output is a sign of life, too"


@pytest.mark.parametrize("form", BARE)
def test_a_line_without_a_metric_is_progress_if_it_begins_with_an_epoch_or_step(form: str) -> None:
    first, second, _ = lines(form)
    printed = PrintedProgress()
    assert not printed.read(first + first)
    assert printed.read(second)
    assert printed.values.keys() == set(BARE[form].split())
    assert {"EPOCH": "2", "STEP": "200"}.items() & printed.values.items()


TABLES = {
    "  epoch    train_loss    valid_acc     dur\n-------  ----------  ------  ------\n":
        "      {E}        {L}       0.6150  0.0412\n",
    "epoch,loss,acc,note\n": "{E},{L},0.8,a word\n",
    "| Epoch | Step | Train loss | Time |\n|---|---|---|---|\n": "| {E} | {S} | {L} | 00:12 |\n",
}  # fmt: skip


@pytest.mark.parametrize("header", TABLES)
def test_the_rows_of_a_table_are_progress(header: str) -> None:
    first, second, third = lines(TABLES[header].rstrip("\n"))
    printed = PrintedProgress()
    assert not printed.read(header + first), "one row can be anything"
    assert printed.read(f"Epoch begins\nother output, 3 lines\n{second}")
    assert printed.values["EPOCH"] == "2"
    assert {printed.values.get(key) for key in ("LOSS", "TRAIN_LOSS")} == {None, "0.725"}
    assert "TIME" not in printed.values
    printed.read(f"{third}7 8\n")
    assert printed.values["EPOCH"] == "3"


@pytest.mark.parametrize(
    "table",
    ["1,0.5\n2,0.4\n", "epoch,name\n1,2\n2,3\n", "epoch,loss\n1,a\n2,b\n",
     "epoch,loss\n0.1,1\n0.2,2\n", "epoch,step,loss\n1,1.5,0.5\n2,2.5,0.4\n",
     "epoch: a loss is shown\n1 2 3 4 5\n2 3 4 5 6\n", "epoch 1 loss 0.5\n1 2 3 4\n2 3 4 5\n"],
)  # fmt: skip
def test_other_tables_are_none(table: str) -> None:
    printed = PrintedProgress()
    assert not printed.read(table)
    assert printed.values == {}


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


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    ["epoch 1 loss ", "a: step 1/", "[epoch 1", "1-1batch", ": ", "[1/1 ", "train_loss ", "\t",
     "1%|", " - a: 1", ", a=1", "━", "\x1b[", "  1%|█| 1/100 [", "\r1%|"],
)  # fmt: skip
def test_the_time_is_linear(part: str) -> None:
    """200 kB of one line, or of short ones. Quadratic time would be hours."""
    line = part * (200_000 // len(part))
    printed = PrintedProgress()
    printed.read(line)
    printed.read(f"1 loss {line}\n")
    printed.read(f"{part} 1 loss\n" * 4000)


def test_counts_with_commas_are_whole() -> None:
    printed = PrintedProgress()
    printed.read("Step 9,000/100,000 loss: 0.5\nStep 10,000/100,000 loss: 0.4\n")
    assert printed.values == {"STEP": "10000", "STEPS": "100000", "LOSS": "0.4"}
    printed.read("[iter:  20,100, lr:(1e-4,)] loss: 0.5\n[iter:  20,200, lr:(1e-4,)] loss: 0.3\n")
    assert printed.values["STEP"] == "20200"


def test_a_step_begins_anew_with_each_epoch() -> None:
    printed = PrintedProgress()
    printed.read("".join(f"epoch {e} step {s} loss 0.1\n" for e in (1, 2) for s in (50, 100)))
    assert (printed.values["EPOCH"], printed.values["STEP"]) == ("2", "100")
    printed.read("epoch 3 step 50 loss 0.1\n")
    assert (printed.values["EPOCH"], printed.values["STEP"]) == ("3", "50")


# Progress in words, and the time that is left -----------------------------------------------------

Values = dict[str, str]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EPOCH=3 EPOCHS=3", "epoch 3/3"),
        ("STEP=120 STEPS=500", "step 120/500 24%"),
        ("STEP=501 STEPS=500", "step 501"),
        ("STEP=3 STEPS=0", "step 3"),
        ("MAE=0.12345 ACCURACY=0.951 LOSS=0.16384", "loss 0.1638, accuracy 0.951, mae 0.1235"),
        ("EXAMPLES_PER_SEC=1800", "1,800/s"),
        ("A=1 B=2 C=3 D=4 E=5 F=6 G=7", "a 1, b 2, c 3, d 4, e 5, f 6"),
        ("X\x1b[2J=1", "x\\x1b[2j 1"),
    ],
)
def test_words(text: str, words: str) -> None:
    values = dict(word.split("=") for word in text.split())
    assert ", ".join(progress_words(values)) == words


@pytest.mark.parametrize(
    ("text", "left"), [("EPOCH=1 EPOCHS=3 STEP=5", "left in epoch"), ("EPOCH=1 EPOCHS=3", "left")]
)
def test_the_time_that_a_bar_shows(text: str, left: str) -> None:
    values = dict(word.split("=") for word in f"{text} ETA=90".split())
    assert progress_words(values, is_running=True)[-1] == f"1 m 30 s {left}"


def estimates(reports: Iterator[Values], seconds: float) -> list[float | None]:
    left, clock = TimeLeft(), 50.0
    found = []
    for values in reports:
        found.append(left.update("worker:0", values, clock))
        clock += seconds
    return found


def counted(epochs: int, steps: int, *, over_all: bool) -> Iterator[Values]:
    for epoch in range(1, epochs + 1):
        for step in range(1, steps + 1):
            before, total = ((epoch - 1) * steps, epochs * steps) if over_all else (0, steps)
            yield {
                "EPOCH": str(epoch),
                "EPOCHS": str(epochs),
                "STEP": str(before + step),
                "STEPS": str(total),
            }


@pytest.mark.parametrize("over_all", [False, True])
def test_the_rest_takes_as_long_as_the_rate_says(over_all: bool) -> None:
    """The whole takes 3 x 20 x 2 s. The estimate begins when it is known what a step counts."""
    found = estimates(counted(3, 20, over_all=over_all), 2.0)
    known = [(at, left) for at, left in enumerate(found) if left is not None]
    assert known[0][0] <= 22
    assert all(left == pytest.approx((59 - at) * 2.0, abs=0.1) for at, left in known)
    assert len(known) >= 60 - 22


def test_what_does_not_move_any_more_has_no_time_left() -> None:
    steps = [{"STEP": str(min(step, 20)), "STEPS": "100"} for step in range(60)]
    found = estimates(iter(steps), 2.0)
    assert found[20] == pytest.approx(160.0)
    assert found[30] is not None  # it may save or evaluate
    assert set(found[36:]) == {None}
    assert estimates(iter(steps), 20.0)[29] is not None


def test_no_totals_no_estimate() -> None:
    assert set(estimates(({"STEP": str(step)} for step in range(50)), 1.0)) == {None}
    nonsense = {"STEP": "5", "STEPS": "x", "EPOCH": "nan", "EPOCHS": "0"}
    assert set(estimates(iter([nonsense] * 5), 1.0)) == {None}
