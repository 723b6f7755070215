"""Draws kinds of tqdm's bars, which are its arguments; says after each what they should show."""

import json
import sys
import time
from typing import Any

from tqdm import tqdm, trange

COUNT = 25
METRICS = {"loss": 0.0417, "lr": 0.0012, "phase": "train"}
LAST = {"LOSS": 0.0417, "LR": 0.0012, "PHASE": "train", "STEP": COUNT, "STEPS": COUNT}
STEPS = {"STEP": COUNT, "STEPS": COUNT}


def loop(**options):
    bar = tqdm(range(COUNT), **options)
    for _ in bar:
        bar.set_postfix(METRICS)
        time.sleep(0.004)


def update(total, unit, **options):
    with tqdm(total=total, unit=unit, **options) as bar:
        for _ in range(20):
            time.sleep(0.004)
            bar.update(100)


def endless(**options):
    for _ in tqdm(iter(range(COUNT)), **options):
        time.sleep(0.004)


def nested(*, leave):
    for _ in trange(3, desc="epochs"):
        for _ in tqdm(range(10), leave=leave):
            time.sleep(0.006)


def three_deep():
    for _ in trange(2, desc="runs"):
        for _ in trange(2, desc="epochs"):
            for _ in trange(5, desc="batches"):
                time.sleep(0.006)


def with_text():
    for step in tqdm(range(COUNT), file=sys.stdout):
        time.sleep(0.004)
        if step % 8 == 0:
            print("hello", step, flush=True)
        if step % 8 == 4:
            tqdm.write(f"a line above the bar {step}")


def by_epoch():
    for epoch in range(3):
        loop(desc=f"Epoch {epoch + 1}/3")


KINDS: dict[str, Any] = {
    "plain": (loop, {}, LAST),
    "description": (loop, {"desc": "train"}, LAST),
    "epochs": (by_epoch, {}, {**LAST, "EPOCH": 3, "EPOCHS": 3}),
    "narrow": (loop, {"ncols": 40, "desc": "train"}, STEPS),
    "cut": (loop, {"ncols": 20, "desc": "train"}, STEPS),
    "no_bar": (loop, {"ncols": 0}, LAST),
    "ascii": (loop, {"ascii": True}, LAST),
    "colour": (loop, {"colour": "green"}, LAST),
    "own_form": (loop, {"bar_format": "{l_bar}{bar:9}| {n_fmt}/{total_fmt}{postfix}"}, LAST),
    "fractions": (loop, {"unit_scale": 0.01}, {"STEP": 0.25, "STEPS": 0.25}),
    "endless": (endless, {}, {"STEP": COUNT}),
    "bytes": (endless, {"unit": "B", "unit_scale": True, "unit_divisor": 1024}, {}),
    "examples": (update, {"total": 2000, "unit": "examples"}, {"STEP": 2000, "STEPS": 2000}),
    "by_unit": (update, {"total": 2000, "unit": "epoch"}, {"EPOCH": 2000, "EPOCHS": 2000}),
    "nested": (nested, {"leave": True}, {"EPOCH": 3, "EPOCHS": 3}),
    "nested_gone": (nested, {"leave": False}, {"EPOCH": 3, "EPOCHS": 3}),
    "three_deep": (three_deep, {}, {"STEP": 2, "STEPS": 2, "EPOCH": 2, "EPOCHS": 2}),
    "text": (with_text, {}, STEPS),
}
if __name__ == "__main__":
    for kind in sys.argv[1:]:
        draw, options, expected = KINDS[kind]
        draw(**options)
        print(json.dumps(expected), flush=True)
