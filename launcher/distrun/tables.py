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
    """Return the two tables of such a file: of its rows `NAME: text`, and of `NAME > text`."""
    rows = [row.split(" ", 1) for row in read_rows(spec, name)]
    first = {name[:-1]: text for name, text in rows if name[-1] == ":"}
    return first, {name: text[2:] for name, text in rows if name[-1] != ":"}
