"""MNIST on a disk: what is read, and what is said where it is broken."""

import gzip
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mnist_job import JobError, data

TRAIN, TEST = 30, 10


@pytest.fixture
def arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {
        "x_train": rng.integers(0, 256, (TRAIN, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, TRAIN, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (TEST, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, TEST, dtype=np.uint8),
    }


Arrays = dict[str, Any]

IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes((0, 0, 8, array.ndim))
    return header + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def write_idx(folder: Path, arrays: dict[str, np.ndarray[Any, Any]], suffix: str = "") -> None:
    for key, name in IDX_NAMES.items():
        content = idx(arrays[key])
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)


def test_an_archive_may_have_a_weight_for_each_training_image(
    tmp_path: Path, arrays: Arrays
) -> None:
    own = np.linspace(0.5, 2, TRAIN)
    np.savez(tmp_path / "mnist.npz", **arrays, w_train=own)
    weighted = data.read_folder(tmp_path)
    assert np.allclose(weighted.sample_weights, own)
    np.savez(tmp_path / "mnist.npz", **arrays)
    plain = data.read_folder(tmp_path)
    assert plain.sample_weights == 1
    assert plain.fingerprint != weighted.fingerprint, "workers with different weights differ"
    for wrong in (own[1:], -own, own + np.inf, own.astype(str)):
        np.savez(tmp_path / "mnist.npz", **arrays, w_train=wrong)
        with pytest.raises(JobError, match=r"w_train is .*, not 30 numbers from 0"):
            data.read_folder(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_reads_idx_files(tmp_path: Path, arrays: Arrays, suffix: str) -> None:
    write_idx(tmp_path, arrays, suffix)
    digits = data.read_folder(tmp_path)
    assert np.array_equal(digits.train_images, arrays["x_train"])
    assert np.array_equal(digits.train_labels, arrays["y_train"])
    assert np.array_equal(digits.test_images, arrays["x_test"])


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"no mnist in .*put mnist\.npz there"):
        data.read_folder(tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 10, 500])
def test_a_truncated_idx_file(tmp_path: Path, arrays: Arrays, keep: int) -> None:
    write_idx(tmp_path, arrays)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(JobError, match=r"train-images-idx3-ubyte cannot be read"):
        data.read_folder(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_archive(tmp_path: Path, arrays: Arrays, share: float) -> None:
    path = tmp_path / "mnist.npz"
    np.savez(path, **arrays)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(JobError, match=r"mnist\.npz cannot be read"):
        data.read_folder(tmp_path)


def test_another_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", a=np.zeros(3))
    with pytest.raises(JobError, match=r"mnist\.npz cannot be read \('x_train is not"):
        data.read_folder(tmp_path)


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    (tmp_path / "x.npy").rename(tmp_path / "mnist.npz")
    with pytest.raises(JobError, match="cannot be read"):
        data.read_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x_train": np.zeros((TRAIN, 32, 32), np.uint8)}, r"training images uint8 \(30, 32"),
        ({"x_test": np.zeros((TEST, 28, 28), np.float32)}, "test images float32"),
        ({"y_train": np.zeros(TRAIN - 1, np.uint8)}, r"training images .*, labels uint8 \(29,\)"),
        ({"y_test": np.full(TEST, 10, np.uint8)}, "n labels from 0 to 9"),
        ({"y_test": np.full(TEST, 1.0)}, r"test images .*, labels float64 \(10,\)"),
        ({"x_train": np.zeros((TRAIN, 28, 28), np.uint8)}, "training .*not all black"),
        (
            {"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, np.uint8)},
            r"test images uint8 \(0, 28, 28\)",
        ),
    ],
)
def test_something_else_than_digits(
    tmp_path: Path, arrays: Arrays, change: Arrays, says: str
) -> None:
    changed: dict[str, Any] = {**arrays, **change}
    np.savez(tmp_path / "mnist.npz", **changed)
    with pytest.raises(JobError, match=says):
        data.read_folder(tmp_path)


def write_either(folder: Path, arrays: dict[str, Any], form: str, dataset: str) -> None:
    if form == "npz":
        np.savez(folder / f"{dataset}.npz", **arrays)
    else:
        write_idx(folder, arrays, ".gz")


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
    write_either(tmp_path, arrays, form, asked)
    with pytest.raises(JobError, match=f"ask for it with --dataset {found}"):
        data.read_folder(tmp_path, asked)
    write_either(tmp_path, arrays, form, found)
    digits = data.read_folder(tmp_path, found)
    assert digits.source == f"{found} from {tmp_path if form == 'idx' else tmp_path / found}" + (
        ".npz" if form == "npz" else ""
    )


class Keras:
    """Replaces tf_keras, whose import takes seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.load_data: Any = list
        self.cache = home / ".keras" / "datasets"
        named = SimpleNamespace(load_data=lambda: self.load_data())  # noqa: PLW0108 - it changes
        fake = SimpleNamespace(datasets=SimpleNamespace(mnist=named, fashion_mnist=named))
        monkeypatch.setitem(sys.modules, "tf_keras", fake)
        monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Keras:
    return Keras(monkeypatch, tmp_path)


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist"])
def test_keras_loads_what_no_folder_has(keras: Keras, arrays: Arrays, dataset: str) -> None:
    halves = [(arrays[f"x_{half}"], arrays[f"y_{half}"]) for half in ("train", "test")]
    keras.load_data = lambda: halves
    found = data.load(dataset, None)
    assert np.array_equal(found.train_images, arrays["x_train"])
    assert np.array_equal(found.test_labels, arrays["y_test"])
    assert (found.name, found.source) == (dataset, f"{dataset} from {keras.cache}")


def test_without_mnist_it_trains_on_the_digits_of_the_job(
    keras: Keras, capsys: pytest.CaptureFixture[str]
) -> None:
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
