"""The digits that the job draws."""

from pathlib import Path

import numpy as np
import pytest

import synthetic

SIZE = (600, 100, 4)
"""Training images, test images, drawings of each digit."""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "distrun"


def test_the_same_every_time() -> None:
    first, second = synthetic.draw(300, 50, 4), synthetic.draw(300, 50, 4)
    assert np.array_equal(first.train_images, second.train_images)
    assert np.array_equal(first.test_labels, second.test_labels)


def test_shapes_and_all_classes() -> None:
    digits = synthetic.draw(*SIZE)
    assert digits.train_images.shape == (600, 28, 28)
    assert digits.test_images.shape == (100, 28, 28)
    assert digits.train_images.dtype == digits.train_labels.dtype == np.uint8
    assert set(digits.train_labels) == set(digits.test_labels) == set(range(10))


def test_classes_can_be_told_apart_but_not_at_a_glance() -> None:
    digits = synthetic.draw(4000, 500, 20)
    means = np.stack(
        [digits.train_images[digits.train_labels == label].mean(axis=0) for label in range(10)]
    ).reshape(10, -1)
    means -= means.mean(axis=1, keepdims=True)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    guesses = (digits.test_images.reshape(500, -1) @ means.T).argmax(axis=1)
    assert 0.4 < (guesses == digits.test_labels).mean() < 0.9


def test_kept_in_the_cache(cache: Path) -> None:
    drawn = synthetic.load(*SIZE)
    again = synthetic.load(*SIZE, lambda *_: pytest.fail("drawn twice"))
    assert np.array_equal(again.train_images, drawn.train_images)
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock", ".npz"]


def test_a_broken_cache_is_replaced(cache: Path) -> None:
    drawn = synthetic.load(*SIZE)
    (path,) = cache.glob("*.npz")
    path.write_bytes(path.read_bytes()[:1000])
    assert np.array_equal(synthetic.load(*SIZE).train_images, drawn.train_images)
    assert len(path.read_bytes()) > 1000


def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert len(synthetic.load(*SIZE).train_images) == 600
