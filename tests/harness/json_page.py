"""docs/json.md as a description that printed values are held to."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
_SIMPLE: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "list": (list,), "object": (dict,), "any object": (dict,), "null": (type(None),),
}  # fmt: skip


def tables(page: str) -> dict[str, dict[str, str]]:
    """The types of the fields by their paths, for each section of a page."""
    found: dict[str, dict[str, str]] = {}
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").lower()
        row = re.compile(r"^\| (`.*?`) \| (.*?) \|(.*)\|$").match(line)
        if row is not None and not re.match(r"\| `[A-Z]", line):
            for path in re.findall(r"`([^`]+)`", row[1]):
                found.setdefault(section, {})[path] = row[2]
    return found


def events(page: str) -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (.*?) ?\|.*\|$", page, re.MULTILINE)
    return {kind: re.findall(r"`(\w+)`", fields) for kind, fields in rows}


class Reader:
    """Compares values with the tables; `seen` has the paths, by section, that had a value."""

    def __init__(self, page: str) -> None:
        self.tables = tables(page)
        self.seen: set[tuple[str, str]] = set()
        self.faults: list[str] = []

    def check(self, section: str, value: dict[str, Any], path: str = "", where: str = "") -> None:
        """Note what is not described, or of another type, in an object of a section."""
        table = self.tables[section]
        for key, inner in value.items():
            found = next((each for each in (f"{path}{key}", f"{path}*") if each in table), None)
            if found is None:
                self.faults.append(f"{section}: {path}{key} is not described{where}")
            else:
                self._check_type(section, found, inner, f"{where} {path}{key}")

    def missing(self, section: str, value: dict[str, Any], path: str = "") -> list[str]:
        """The fields that the section describes at this level, and the object lacks."""
        return [
            name
            for each in self.tables[section]
            if (name := each.removeprefix(path)) and each.startswith(path)
            if re.fullmatch(r"\w+", name) and name not in value
        ]

    def _check_type(self, section: str, path: str, value: Any, where: str) -> None:
        self.seen.add((section, path))
        types = re.split(r", | or ", self.tables[section][path])
        named = [each.strip("*") for each in types if each.startswith("*")]
        allowed = tuple(kind for each in types for kind in _SIMPLE.get(each, ()))
        is_right = isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
        if isinstance(value, dict) and named:
            own = {key for key in value if f"{path}.{key}" in self.tables[section]}
            self.check(section, {key: value[key] for key in own}, f"{path}.", where)
            rest = {key: inner for key, inner in value.items() if key not in own}
            self.check(named[0], rest, where=where)
        elif not is_right:
            self.faults.append(f"{section}: {path} is {value!r}, not {self.tables[section][path]}")
        elif isinstance(value, dict) and "any object" not in types:
            self.check(section, value, f"{path}.", where)
        elif isinstance(value, list):
            self._check_elements(section, f"{path}[]", value, where)

    def _check_elements(self, section: str, path: str, value: list[Any], where: str) -> None:
        for each in value:
            if path == "*[]" and isinstance(each, dict):
                self.check(section, each, where=where)
            elif path in self.tables[section]:
                self._check_type(section, path, each, where)
            elif isinstance(each, dict):
                self.check(section, each, f"{path}.", where)
            elif path != "*[]" and not self.tables[section].get("*"):
                self.faults.append(f"{section}: {path} is not described{where}")
