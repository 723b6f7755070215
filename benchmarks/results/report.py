"""Writes docs/results.md from the measured figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TABLES = (
    ("tutorial's first table", (0.833, 0.936, 0.959), (0.531, 0.215, 0.141)),
    ("tutorial's second table", (0.822, 0.928, 0.947), (0.589, 0.240, 0.172)),
)
"""What the tutorial on custom loops with MultiWorkerMirroredStrategy prints: accuracy, loss."""
GOAL_OF_TWO_WORKERS = 0.70
GOAL_OF_ONE_PROCESS = 1.05
FIRST_STEP_LATER = 0.5
"""Seconds by which the job's first step may come after that of the tutorials' form."""
TWO_WORKERS_SPEED = 1450
"""Images a second of two workers."""
TUTORIAL_ON_FASHION = 0.911
"""Test accuracy after 10 epochs, as the tutorial on custom training prints it."""
TRIED = {
    "alone": "no all-reduce: two processes, each for itself (the floor)",
    "alone+xla-optimizer": "the same, with each variable's update compiled by XLA",
    "as it is": "the tutorial's step: gradients packed into one all-reduce",
    "ring": "`CommunicationImplementation.RING` (AUTO chooses it without GPUs)",
    "one-tensor": "all gradients copied into one tensor before the reduction",
    "split": "the largest gradient reduced in four pieces, so that sending one overlaps the next",
    "loop": "25 steps inside one tf.function: no Python between them",
    "jit": "loss and gradients compiled by XLA",
    "fused-optimizer": "Keras's older RMSprop: one fused kernel a variable",
    "bfloat16": "gradients cast to bfloat16 for the reduction",
    "float16": "gradients cast to float16 for the reduction",
    "xla-optimizer": "each variable's update compiled by XLA: one pass over memory",
    "malloc": "malloc told to keep freed memory, in large pages (`GLIBC_TUNABLES`)",
    "xla-optimizer+malloc": "the job's step: these two together",
    "xla-optimizer+malloc+float16": "the job's, with gradients cast to float16",
    "xla-optimizer+malloc+float16+loop": "and with `--loop epoch`",
}
"""In the order of the page: a row can refer to the rows above it."""


def write(figures: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        _head(figures),
        _learning(figures["strategies"]),
        _fashion(figures["fashion"]),
        _times(figures["strategies"]),
        _two_workers(figures),
        _one_process(figures["strategies"]),
        _steps(figures["steps"]),
        _not_run(figures["fashion"]),
    ]
    return "\n".join(parts)


def _head(figures: dict[str, Any]) -> str:
    machine, (epochs, steps, batch) = figures["machine"], figures["shape"]
    of_two, of_others = figures["rounds"]
    return f"""\
# Results

<!-- written by `make results`: change benchmarks/results, not this page -->

The bundled job on MNIST with every strategy, launched by distrun, compared with the same training
in the form of TensorFlow's tutorials, started by hand ([the
script](../benchmarks/results/tutorial_form.py): a new iterator each epoch, a Python loop over the
steps). {epochs} epochs of {steps} steps of {batch} images a worker, RMSprop 1e-3, a checkpoint
after each epoch. Measured on {figures["date"]} with {machine["cores"]} cores, {machine["memory"]}
GiB, Python {machine["python"]}, TensorFlow {machine["tensorflow"]}, no GPU; both sides in turn, in
{of_two} rounds for the two workers and {of_others} for the rest; times are medians. Machines
differ, so compare the ratios, not the seconds. To measure yours:

<!-- not run: 25 minutes -->
```sh
make results DATA_DIR=/folder/of/mnist.npz
```
"""


def _learning(strategies: dict[str, Any]) -> str:
    rows = []
    for name, sides in strategies.items():
        for side in ("job", "tutorial"):
            if side in sides:
                epochs = sides[side]["epochs"]
                tested = epochs[-1].get("test_accuracy")
                rows.append(
                    (
                        name,
                        side,
                        _series(epoch["accuracy"] for epoch in epochs),
                        _series(epoch["loss"] for epoch in epochs),
                        "" if tested is None else f"{tested:.3f}",
                    )
                )
        if name == "multi_worker_mirrored":
            rows += [
                (name, who, _series(accuracy), _series(loss), "") for who, accuracy, loss in TABLES
            ]
    table = _table(("strategy", "who", "accuracy", "loss", "test accuracy"), rows)
    return f"""\
## Accuracy and loss

Accuracy and loss on the training images for each epoch, and the job's accuracy on the 10,000 test
images after the last epoch (the tutorials' form does not test). A step has {64} images on
parameter_server and with the strategies of one process, and twice as many with two workers.

{table}
![accuracy and loss by epoch](results/learning.svg)
"""


def _fashion(fashion: dict[str, Any]) -> str:
    rows = [
        ("tutorial", "Fashion-MNIST", "", f"{TUTORIAL_ON_FASHION:.3f}", ""),
        (
            "job",
            fashion["data"],
            _series(epoch["loss"] for epoch in fashion["epochs"]),
            f"{fashion['epochs'][-1]['test_accuracy']:.3f}",
            f"{fashion['total']:.1f}",
        ),
    ]
    titles = ("who", "data", "loss by epoch", "test accuracy", "s in all")
    return f"""\
### Fashion-MNIST

The training of the tutorial on custom training: `--dataset fashion_mnist --model cnn --optimizer
adam --epochs 10 --steps-per-epoch all` with MirroredStrategy. Where the folder of the data has no
`fashion_mnist.npz`, the images are drawn digits in the format of Fashion-MNIST. Then only the
course of the training can be compared, not its accuracy.

{_table(titles, rows)}"""


def _times(strategies: dict[str, Any]) -> str:
    rows = []
    for name, sides in strategies.items():
        for side, found in sides.items():
            first = found["first_step"]
            rows.append(
                (
                    name,
                    side,
                    "" if first is None else f"{first:.1f}",
                    f"{found['images_per_second']:.0f}",
                    f"{found['total']:.1f}",
                    f"{found['total'] / sides['tutorial']['total']:.2f}",
                )
            )
    table = _table(
        ("strategy", "who", "s to the first step", "images/s", "s in all", "to tutorial's"), rows
    )
    later = {
        name: sides["job"]["first_step"] - sides["tutorial"]["first_step"]
        for name, sides in strategies.items()
        if sides["tutorial"]["first_step"] is not None
    }
    listed = ", ".join(
        f"{name} {seconds:+.1f} ({_verdict(seconds, FIRST_STEP_LATER)})"
        for name, seconds in later.items()
    )
    return f"""\
## How long it takes

Seconds from the start of the command: to the end of the first step, and to its exit. Images a
second are those of the second and third epochs, evaluation not counted. The job also tests after
each epoch; the tutorials' form does not.

{table}
![seconds](results/times.svg)

The goal is that the job's first step comes at most {FIRST_STEP_LATER} s after that of the
tutorials' form. Seconds from one to the other: {listed}.
"""


def _two_workers(figures: dict[str, Any]) -> str:
    sides = figures["strategies"]["multi_worker_mirrored"]
    tutorial = sides["tutorial"]["total"]
    epochs, steps, _ = figures["shape"]
    floor = sides["job"]["first_step"] + epochs * steps * figures["steps"]["alone"]["wall"] / 1e3
    ratio, speed = sides["job"]["total"] / tutorial, sides["job"]["images_per_second"]
    return f"""\
### Two workers

The goal is {GOAL_OF_TWO_WORKERS:.2f} of the tutorial's time, from `distrun launch` to its exit,
although the job tests after each epoch: it takes {ratio:.2f} of it
({_verdict(ratio, GOAL_OF_TWO_WORKERS)}). It trains {speed:.0f} images a second; the goal is
{TWO_WORKERS_SPEED} ({_verdict(TWO_WORKERS_SPEED, speed)}). Single runs, in seconds: job
{_listed(sides["job"]["totals"])}; tutorial {_listed(sides["tutorial"]["totals"])}.

Most of the saved time was spent in stalls. TensorFlow takes seconds to delete a distributed
iterator of two workers. The tutorial's form deletes one at each epoch and when its process ends.
The job keeps one iterator for the whole run, and exits with `os._exit` after everything is written.

The limit: the time to the first step, and {epochs * steps} steps of two processes that
send each other nothing (the floor in the table below), are {floor:.1f} s together:
{floor / tutorial:.2f} of the tutorial's time, before anything is tested or saved.
"""


def _one_process(strategies: dict[str, Any]) -> str:
    rows, ratios = [], []
    for name, sides in strategies.items():
        if "tutorial, launched" in sides:
            alone, launched = sides["tutorial"]["total"], sides["tutorial, launched"]["total"]
            ratios.append(launched / alone)
            rows.append((name, f"{alone:.2f}", f"{launched:.2f}", f"{launched / alone:.3f}"))
    table = _table(("strategy", "s by hand", "s by distrun", "ratio"), rows)
    worst = max(ratios)
    return f"""\
### What the launcher costs

The same script, the tutorials' form for one process, by hand and by `distrun launch`. The goal is
{GOAL_OF_ONE_PROCESS} of plain TensorFlow; the worst is {worst:.3f}
({_verdict(worst, GOAL_OF_ONE_PROCESS)}).

{table}"""


def _steps(steps: dict[str, Any]) -> str:
    plain, floor = steps["as it is"]["wall"], steps["alone"]["wall"]
    rows = [
        (
            what,
            f"{steps[name]['wall']:.0f}",
            f"{steps[name]['cpu']:.0f}",
            f"{steps[name]['wall'] / plain:.2f}",
        )
        for name, what in TRIED.items()
    ]
    table = _table(("what was tried", "ms a step", "ms of CPU", "to the tutorial's step"), rows)
    return f"""\
## Where a step's time goes

Two workers on this machine, the tutorial's model (2.8 million parameters: 11 MB of gradients a
step) and 64 images each, one thread a worker for computing, input from memory. Without any
all-reduce, a step takes {floor:.0f} ms; with it {plain:.0f} ms. So the reduction is
{(plain - floor) / plain:.0%} of the step: 11 MB go through gRPC in each direction, copied several
times on the way, on the cores that compute. What the copies cost shows where fewer bytes are sent.

{table}
![milliseconds of a step](results/steps.svg)

A step has one large collective, into which the gradients are packed, and a small one for the loss.
Metrics are summed only when they are read, and with an endless data set the workers need not agree
whether anyone has a batch left. XLA compiles the update of each variable into one pass over memory
(on one process, too: see the second row). distrun has the C library's malloc keep freed memory,
also for a script of your own ([memory](spec.md#freed-memory)). Gradients cast to
float16 would halve the bytes. The job does not do that, because it rounds each worker's gradients
to 11 bits.
"""


def _not_run(fashion: dict[str, Any]) -> str:
    images = "" if fashion["is_real"] else "- Fashion-MNIST's own images: they were not at hand.\n"
    return f"""\
## Not run here

{images}- tpu, and every strategy on GPUs: there was none.
"""


def _verdict(ratio: float, goal: float) -> str:
    return "reached" if ratio <= goal else "not reached"


def _series(values: Iterable[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
