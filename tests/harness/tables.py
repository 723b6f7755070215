"""Tables of text beside a test: sections of rows `value :: key`, with the escapes of Python."""

from pathlib import Path


def read_table(file: Path, section: str) -> dict[str, str]:
    text = file.read_text("utf-8").partition(f"=== {section}\n")[2].partition("\n\n")[0]
    rows = [row.partition(":: ") for row in text.splitlines() if not row.startswith("# ")]
    keys = [key.encode("latin-1", "backslashreplace").decode("unicode_escape") for *_, key in rows]
    return dict(zip(keys, (value.strip() for value, *_ in rows), strict=True))
