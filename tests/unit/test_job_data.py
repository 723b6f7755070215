"""MNIST on a disk: what is read, and what is said where it is broken."""

import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mnist_job import JobError, data

TRAIN, TEST = 30, 10
Arrays = dict[str, Any]
Write = Callable[[Path, Arrays], None]


@pytest.fixture
def arrays() -> Arrays:
    rng = np.random.default_rng(1)
    return {
        "x_train": rng.integers(0, 256, (TRAIN, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, TRAIN, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (TEST, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, TEST, dtype=np.uint8),
    }


IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte", "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte", "y_test": "t10k-labels-idx1-ubyte",
}  # fmt: skip


def idx(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes((0, 0, 8, array.ndim))
    return header + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def write_idx(folder: Path, arrays: Arrays, suffix: str = "") -> None:
    for key, name in IDX_NAMES.items():
        content = idx(arrays[key])
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)


def cut(name: str, share: float) -> Write:
    """All files of the kind that the named one has, and this one without its end."""

    def write(folder: Path, arrays: Arrays) -> None:
        if name == "mnist.npz":
            np.savez(folder / name, **arrays)
        else:
            write_idx(folder, arrays)
        os.truncate(folder / name, int((folder / name).stat().st_size * share))

    return write


def pickled(folder: Path, arrays: Arrays) -> None:
    np.save(folder / "x.npy", np.array([{}], dtype=object))
    (folder / "x.npy").rename(folder / "mnist.npz")


def archive(**change: Any) -> Write:
    return lambda folder, arrays: np.savez(folder / "mnist.npz", **{**arrays, **change})


NO_TESTS = {"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, np.uint8)}
OWN_WEIGHTS = np.linspace(0.5, 2, TRAIN)
WRONG: list[tuple[Write, str]] = [
    (lambda *_: None, r"no mnist in .*put mnist\.npz there"),
    (lambda folder, _: folder.rmdir(), "there is no folder /.*, see --data-dir"),
    *((cut(IDX_NAMES["x_train"], share), "train-images-idx3-ubyte cannot be read")
      for share in (0.0, 0.00015, 0.0005, 0.5)),  # nothing, a part of its head, of its images
    *((cut("mnist.npz", share), r"mnist\.npz cannot be read") for share in (0.0, 0.01, 0.5, 0.99)),
    (lambda folder, _: np.savez(folder / "mnist.npz", a=np.zeros(3)), "read \\('x_train is not"),
    (pickled, "cannot be read"),
    # Something else than digits
    (archive(y_train=np.zeros(TRAIN - 1, np.uint8)), r"training .*, labels uint8 \(29,\)"),
    (archive(y_test=np.full(TEST, 10, np.uint8)), "n labels from 0 to 9"),
    (archive(x_train=np.zeros((TRAIN, 28, 28), np.uint8)), "training .*not all black"),
    (archive(**NO_TESTS), r"test images uint8 \(0, 28, 28\)"),
    (archive(w_train=OWN_WEIGHTS + np.inf), r"w_train is .*, not 30 numbers from 0"),
]  # fmt: skip


def test_images_may_have_weights(tmp_path: Path, arrays: Arrays) -> None:
    np.savez(tmp_path / "mnist.npz", **arrays, w_train=OWN_WEIGHTS)
    found = data.read_folder(tmp_path)
    assert np.allclose(found.sample_weights, OWN_WEIGHTS)
    assert np.array_equal(found.train_images, arrays["x_train"])


@pytest.mark.parametrize(("write", "says"), WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, arrays: Arrays, write: Write, says: str) -> None:
    write(tmp_path, arrays)
    with pytest.raises(JobError, match=says):
        data.read_folder(tmp_path)


@pytest.mark.parametrize("form", ["npz", "idx"])
@pytest.mark.parametrize(
    ("asked", "found", "first_labels"),
    [
        ("fashion_mnist", "mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]),
        ("mnist", "fashion_mnist", [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]),
    ],
)
def test_one_data_set_is_not_taken_for_the_other(
    tmp_path: Path, arrays: Arrays, form: str, asked: str, found: str, first_labels: Any
) -> None:
    arrays["y_train"][:10] = first_labels
    if form == "idx":
        write_idx(tmp_path, arrays, ".gz")
    else:
        for name in (asked, found):
            np.savez(tmp_path / f"{name}.npz", **arrays)
    with pytest.raises(JobError, match=f"ask for it with --dataset {found}"):
        data.read_folder(tmp_path, asked)
    source = tmp_path if form == "idx" else tmp_path / f"{found}.npz"
    assert data.read_folder(tmp_path, found).source == f"{found} from {source}"


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Both data sets of what replaces tf_keras, whose import takes seconds."""
    named = SimpleNamespace()
    fake = SimpleNamespace(datasets=SimpleNamespace(mnist=named, fashion_mnist=named))
    monkeypatch.setitem(sys.modules, "tf_keras", fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    return named


def test_keras_loads_what_is_absent(keras: SimpleNamespace, tmp_path: Path, arrays: Arrays) -> None:
    halves = [(arrays[f"x_{half}"], arrays[f"y_{half}"]) for half in ("train", "test")]
    keras.load_data = lambda: halves
    found = data.load("fashion_mnist", None)
    assert np.array_equal(found.train_images, arrays["x_train"])
    assert np.array_equal(found.test_labels, arrays["y_test"])
    assert found.source == f"fashion_mnist from {tmp_path / '.keras' / 'datasets'}"


def test_without_mnist_it_draws(keras: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise Exception("URL fetch failure: no route to host")  # noqa: TRY002 - as Keras does

    keras.load_data = fail
    assert data.load("auto", None).name == "synthetic"
    said = capsys.readouterr().out
    assert "cannot be downloaded (URL fetch failure: no route to host)" in said
    assert said.endswith("training on synthetic digits instead\n")
    for dataset in ("mnist", "fashion_mnist"):
        with pytest.raises(JobError, match=f"no {dataset} in .*name a folder that has it with"):
            data.load(dataset, None)
