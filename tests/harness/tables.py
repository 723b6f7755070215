"""Tables of text beside a test: rows `value :: key`, with the escapes of Python, or cases."""

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


def read_table(file: Path, section: str) -> dict[str, str]:
    text = file.read_text("utf-8").partition(f"=== {section}\n")[2].partition("\n\n")[0]
    rows = [row.partition(":: ") for row in text.splitlines() if not row.startswith("# ")]
    keys = [key.encode("latin-1", "backslashreplace").decode("unicode_escape") for *_, key in rows]
    return dict(zip(keys, (value.strip() for value, *_ in rows), strict=True))


class Case(NamedTuple):
    """What is run and what must follow, by the words that begin its lines; its files."""

    lines: dict[str, list[str]]
    files: dict[str, str]

    @property
    def told(self) -> re.Pattern[str]:
        """One pattern after the other, with anything between them."""
        return re.compile(".*".join(self.lines["told"]), re.DOTALL)

    def write_files(self, folder: Path, python: str) -> None:
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text.replace("{PYTHON}", python))
            (folder / name).chmod(0o755)


def read_cases(file: Path) -> dict[str, Case]:
    """Read the cases `=== NAME`: lines `$ COMMAND`, `told PATTERN`; `--- FILE` before its text."""
    cases = {}
    for section in file.read_text("utf-8").split("\n=== ")[1:]:
        name, _, text = section.partition("\n")
        head, *files = re.split(r"^--- (.*)\n", text, flags=re.MULTILINE)
        lines = defaultdict(list)
        for word, rest in re.findall(r"^(\$|exit|told|not told) (.*)$", head, re.MULTILINE):
            lines[word].append(rest)
        cases[name] = Case(lines, dict(zip(files[::2], files[1::2], strict=True)))
    return cases


def read_program(name: str) -> str:
    """Return a program of `programs.txt`, which is beside this file."""
    return read_cases(Path(__file__).with_name("programs.txt"))["programs"].files[name]
