"""What people read when a spec is wrong: every message in spec_messages/, with its place.

A case is `=== its title`, the spec, `>>>` and the expected messages; `{folder}` is the spec's.
"""

from pathlib import Path

import pytest

from harness.specs import refusal

CASES = [
    pytest.param(file.stem, *case.split("\n>>>\n"), id=f"{file.stem}: {case.splitlines()[0]}")
    for file in sorted((Path(__file__).parent / "spec_messages").glob("*.txt"))
    for case in file.read_text(encoding="utf-8").split("\n=== ")[1:]
]


@pytest.mark.parametrize(("kind", "spec", "expected"), CASES)
def test_each_problem_has_its_place(folder: Path, kind: str, spec: str, expected: str) -> None:
    error = refusal(folder, spec.partition("\n")[2] + "\n")
    assert str(error).replace(str(folder), "{folder}").splitlines() == expected.strip().splitlines()
    assert str(error) == "\n".join(map(str, error.problems))


def test_a_hundred_problems_are_enough(folder: Path) -> None:
    error = refusal(folder, "".join(f"k{number}: 1\n" for number in range(130)) + "vars: off")

    assert len(error.problems) == 100
    assert str(error).splitlines()[-1] == "and 32 more"  # strategy and program are missing too


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\nb: caf\xe9\n", "job.yaml:2:7: the byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"\xff\xfea\0", "job.yaml:1:1: the byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"#" * (1 << 21), "job.yaml:1:1: is larger than 1024 KiB; no such file needs to be"),
    ],
)
def test_a_file_that_is_no_text(folder: Path, content: bytes, expected: str) -> None:
    assert str(refusal(folder, content)) == expected
