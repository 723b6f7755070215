"""Which files a program reads that its hosts are not sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrun.frozen import replace
from distrun.spec.model import HostSpec, Spec
from distrun.sync.unsent_files import find_unsent_reads, missing_file

from .plans import script_in, spec_of


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Of a job on another host, whose folder has files that are sent and files that are not."""
    (tmp_path / ".gitignore").write_text("data\n*.csv\n")
    (tmp_path / "data").mkdir()
    for name in ("data/x.npz", "big.csv", "labels.txt", "train.py"):
        (tmp_path / name).touch()
    return spec_of(program=script_in(tmp_path), hosts=(HostSpec(name="h1"),))


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("np.load('data/x.npz')", [1]),
        ("a = 1\nopen('big.csv')\nopen('./data/x.npz', 'rb')", [2, 3]),
        ("pd.read_csv('big.csv', sep=',')", [1]),
        ("tf.data.TextLineDataset('big.csv')", [1]),
        ("np.load('labels.txt')", []),  # is sent
        ("np.load('data/y.npz')", []),  # does not exist here either
        ("open('big.csv', 'w')", []),
        ("open('big.csv', mode)", []),
        ("save(x, 'big.csv')\nload('big.csv')", []),  # the task may have made it itself
        ("print('big.csv')", []),
        ("load(", []),
    ],
)
def test_a_file_that_a_script_reads_and_that_is_not_sent_is_warned_of(
    script: str, found: list[int], spec: Spec
) -> None:
    Path(spec.program.target).write_text(script)
    assert [each.line for each in find_unsent_reads(spec)] == found
    here = replace(spec, hosts=(HostSpec(),))
    assert find_unsent_reads(here) == []


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.npz'", "data/x.npz"),
        ("NotFoundError: {{function_node f}} big.csv; No such file or directory [Op:I]", "big.csv"),
        ("OSError: Unable to open file (name = 'data/x.npz', errno = 2, flags = 0)", "data/x.npz"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'labels.txt'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.npz'", ""),
        ("ValueError: bad", ""),
    ],
)
def test_an_error_names_the_file_that_is_missing_on_a_host(
    error: str, name: str, spec: Spec
) -> None:
    assert missing_file(spec, error) == name
