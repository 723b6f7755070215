"""The shape of a mapping with known keys, and the section of a spec that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distrun.spec.flow import flow
from distrun.spec.problems import Mark, quoted
from distrun.spec.scalars import Choice
from distrun.spec.shapes import FAILED, Schema, Shape, mismatch
from distrun.spec.yamlnodes import Mapping, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.spec.problems import Problems


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a :class:`Record`: its shape, and what people are told about it."""

    name: str
    shape: Shape
    says: str
    examples: tuple[Any, ...]
    default: str = ""
    """What holds where the key is not written, in words; a value of YAML in backquotes."""
    required: bool = False


@dataclass(frozen=True)
class Section:
    """What a :class:`Record` reads: the values that are there and right, and where they stand."""

    mark: Mark
    values: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    """Keys that mean nothing here: one of them may be a known one, misspelt."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        """Whether the key is written, right or wrong."""
        return name in self.marks

    def wrong(self, name: str) -> bool:
        return name in self.marks and name not in self.values


@dataclass(frozen=True, kw_only=True)
class Record:
    """A mapping with known keys; reads as a :class:`Section`."""

    keys: tuple[Key, ...]
    words: str
    noun: str = "key"
    one_of: tuple[str, ...] = ()
    """Keys of which exactly one must be written."""
    elsewhere: Callable[[str], str] | None = None
    """Where a key that is unknown here belongs, as something to do, or ''."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            node = Mapping(node.mark, ())
        if not isinstance(node, Mapping):
            return mismatch(node, path or "the spec", self.words, problems)
        section = Section(node.mark)
        known = {key.name: key for key in self.keys}
        for entry in node.entries:
            name = entry.key.text
            if name not in known:
                section.unknown.append(name)
                self._unknown(entry.key, path, problems)
                continue
            section.marks[name] = entry.value.mark
            section.keys[name] = entry.key.mark
            value = known[name].shape.read(
                entry.value, f"{path}.{name}" if path else name, problems
            )
            if value is not FAILED:
                section.values[name] = value
        self._check_presence(section, path, problems)
        return section

    def _unknown(self, key: Scalar, path: str, problems: Problems) -> None:
        where = f" in {path}" if path else ""
        message = f"unknown {self.noun} {quoted(key.text)}{where}"
        if key.text == "<<":
            problems.add(key.mark, message, "YAML 1.2 has no merge keys; write the keys out")
            return
        hint = self.elsewhere(key.text) if self.elsewhere and not problems.full else ""
        if hint:
            problems.add(key.mark, message, hint)
        else:
            names = [known.name for known in self.keys]
            problems.add_unknown(key.mark, message, key.text, names)

    def _check_presence(self, section: Section, path: str, problems: Problems) -> None:
        where = path or "the spec"
        for key in self.keys:
            if key.required and not section.has(key.name):
                example = f"add '{key.name}: {flow(key.examples[0])}'"
                problems.add(section.mark, f"{where} has no {key.name}", example)
        written = [name for name in self.one_of if section.has(name)]
        if self.one_of and not written:
            first = next(key for key in self.keys if key.name == self.one_of[0])
            problems.add(
                section.mark,
                f"{where} needs one of {Choice(values=self.one_of).words}",
                f"add '{first.name}: {flow(first.examples[0])}'",
            )
        for name in written[1:]:
            message = f"{where} has both {written[0]} and {name}"
            problems.add(section.keys[name], message, "keep one of them")

    def schema(self) -> Schema:
        schema: Schema = {
            "type": ["object", "null"],
            "properties": {key.name: _documented(key) for key in self.keys},
            "additionalProperties": False,
        }
        required = [key.name for key in self.keys if key.required]
        if required:
            schema["required"] = required
        if required or self.one_of:
            schema["type"] = "object"
        if self.one_of:
            schema["oneOf"] = [{"required": [name]} for name in self.one_of]
        return schema


def _documented(key: Key) -> Schema:
    schema = key.shape.schema()
    default = f" Default: {key.default}." if key.default else ""
    return {"description": key.says + default, **schema, "examples": list(key.examples)}
