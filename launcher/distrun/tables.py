"""Tables of texts in files beside the modules that read them: a row a line, # for comments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


def read_rows(spec: ModuleSpec | None, name: str) -> list[str]:
    """Return the rows of a file that is beside the module with this `__spec__`."""
    if spec is None or spec.origin is None:
        raise FileNotFoundError(name)
    # The loader has it in memory if the package has been replaced since the job began.
    path = f"{spec.origin.rpartition('/')[0]}/{name}"
    text = spec.loader.get_data(path).decode()  # type: ignore[union-attr]
    return [line for line in text.splitlines() if not line.startswith("#")]


def read_texts(spec: ModuleSpec | None, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the two tables of such a file: of its rows `NAME|OTHER: text`, and `NAME > text`."""
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    for names, text in (row.split(" ", 1) for row in read_rows(spec, name)):
        table = first if names[-1] == ":" else second
        table.update(dict.fromkeys(names.rstrip(":").split("|"), text.removeprefix("> ")))
    return first, second
