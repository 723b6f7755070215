"""The digits that the job draws."""

import multiprocessing
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import synthetic
from digits import Digits

JOB = str(Path(synthetic.__file__).parent)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(synthetic, "TRAINING", 600)
    monkeypatch.setattr(synthetic, "TEST", 100)
    monkeypatch.setattr(synthetic, "_VARIANTS", 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "distrun"


def test_the_same_every_time(small: Path) -> None:
    first, second = synthetic.draw(300, 50), synthetic.draw(300, 50)
    assert np.array_equal(first.train_images, second.train_images)
    assert np.array_equal(first.test_labels, second.test_labels)


def test_shapes_and_all_classes(small: Path) -> None:
    digits = synthetic.draw(600, 100)
    assert digits.train_images.shape == (600, 28, 28)
    assert digits.test_images.shape == (100, 28, 28)
    assert digits.train_images.dtype == digits.train_labels.dtype == np.uint8
    assert set(digits.train_labels) == set(digits.test_labels) == set(range(10))


def test_classes_can_be_told_apart_but_not_at_a_glance(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "_VARIANTS", 20)
    digits = synthetic.draw(4000, 500)
    means = np.stack(
        [digits.train_images[digits.train_labels == label].mean(axis=0) for label in range(10)]
    ).reshape(10, -1)
    means -= means.mean(axis=1, keepdims=True)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    guesses = (digits.test_images.reshape(500, -1) @ means.T).argmax(axis=1)
    assert 0.4 < (guesses == digits.test_labels).mean() < 0.9


def test_kept_in_the_cache(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = synthetic.load()
    monkeypatch.setattr(synthetic, "draw", lambda *_: pytest.fail("drawn twice"))
    assert np.array_equal(synthetic.load().train_images, drawn.train_images)
    assert sorted(path.suffix for path in small.iterdir()) == [".lock", ".npz"]


def test_a_broken_cache_is_replaced(small: Path) -> None:
    drawn = synthetic.load()
    (path,) = small.glob("*.npz")
    path.write_bytes(path.read_bytes()[:1000])
    assert np.array_equal(synthetic.load().train_images, drawn.train_images)
    assert len(path.read_bytes()) > 1000


def test_a_cache_that_cannot_be_written(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.write_text("a file where the folder should be")
    assert len(synthetic.load().train_images) == 600


def _draw_in_a_child(marks: str, job: str) -> None:
    sys.path.insert(0, job)
    import synthetic as module

    module.TRAINING, module.TEST, module._VARIANTS = 600, 100, 4
    draw = module.draw

    def marked(training: int, test: int) -> Digits:
        Path(marks, str(os.getpid())).touch()
        return draw(training, test)

    module.draw = marked
    assert len(module.load().train_images) == 600


def test_of_several_at_once_one_draws(small: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_draw_in_a_child, args=(str(marks), JOB)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert len(list(marks.iterdir())) == 1
