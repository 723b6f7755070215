"""The schema language of the spec: how each kind of value is read, described and documented.

A schema is the one source for three things: reading a value (with every problem's position), the
JSON Schema that editors complete from, and the words of the reference. This module has the
compound schemas; :mod:`.scalars` has those of single values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from distrun.frozen import Frozen, field
from distrun.spec.problems import Mark, nearest, quoted
from distrun.spec.yamlnodes import Mapping, Node, Scalar, Sequence, describe, flow_style

if TYPE_CHECKING:
    from distrun.spec.problems import Problems

T = TypeVar("T")
JsonSchema = dict[str, Any]

FAILED: Any = object()
"""What `read` returns after it has added a problem."""


class Located(Frozen, Generic[T]):
    """A value and its place in the file."""

    mark: Mark
    value: T


class Schema(Protocol):
    """How one kind of value is read and described. `expected` completes "must be ..."."""

    @property
    def expected(self) -> str: ...

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        """Returns the value at `path`, or adds to `problems` and returns FAILED."""

    def json_schema(self) -> JsonSchema: ...


def mismatch(node: Node, path: str, expected: str, problems: Problems, hint: str = "") -> Any:
    """Add "must be X, not Y" and return FAILED."""
    found = describe(node)
    message = f"{path} is empty" if found == "empty" else f"{path} must be {expected}, not {found}"
    if found == "empty" and not hint:
        hint = f"write {expected}"
    problems.add(node.mark, message, hint)
    return FAILED


def bad_character(text: str) -> str | None:
    """What `text` contains that no process can receive, or None."""
    if "\0" in text:
        return "a NUL byte"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "half a surrogate pair or a byte that is not UTF-8"
    return None


def alternatives(values: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))


class ListOf(Frozen, kw_only=True):
    """A list; reads as a tuple of :class:`Located`. A key without a value is an empty list."""

    item: Schema
    expected: str
    least: int = 0
    most: int | None = None
    noun: str = "item"
    text_hint: Callable[[str], str] | None = None
    """Suggests a list for a text that was written instead of one."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty and not self.least:
            return ()
        if not isinstance(node, Sequence):
            hint = ""
            if self.text_hint and isinstance(node, Scalar) and not node.empty:
                hint = self.text_hint(node.text)
            return mismatch(node, path, self.expected, problems, hint)
        if len(node.items) < self.least:
            problems.add(node.mark, f"{path} has no {self.noun}", f"write {self.expected}")
            return FAILED
        if self.most is not None and len(node.items) > self.most:
            problems.add(
                node.items[self.most].mark, f"{path} has more than {self.most} items", "list fewer"
            )
            return FAILED
        read = [
            Located(item.mark, self.item.read(item, f"{path}[{index}]", problems))
            for index, item in enumerate(node.items)
        ]
        return FAILED if any(at.value is FAILED for at in read) else tuple(read)

    def json_schema(self) -> JsonSchema:
        schema: JsonSchema = {"type": ["array", "null"], "items": self.item.json_schema()}
        if self.least:
            schema.update(type="array", minItems=self.least)
        if self.most is not None:
            schema["maxItems"] = self.most
        return schema


class MapOf(Frozen, kw_only=True):
    """Names that the user chooses, each with a value; reads as a dict of :class:`Located`."""

    value: Schema
    expected: str
    noun: str
    name_pattern: str
    check_name: Callable[[str], str | None]

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            return {}
        if not isinstance(node, Mapping):
            return mismatch(node, path, self.expected, problems)
        read: dict[str, Located[Any]] = {}
        for entry in node.entries:
            name = entry.key.text
            wrong = self.check_name(name)
            if wrong:
                problems.add(entry.key.mark, f"{path}: the {self.noun} {quoted(name)} {wrong}")
            value = self.value.read(entry.value, f"{path}.{quoted(name)[1:-1]}", problems)
            read[name] = Located(entry.key.mark, FAILED if wrong else value)
        return FAILED if any(at.value is FAILED for at in read.values()) else read

    def json_schema(self) -> JsonSchema:
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": self.name_pattern},
            "additionalProperties": self.value.json_schema(),
        }


class OneOf(Frozen):
    """A value that can be written in several forms, distinguished by the kind of its node."""

    number: Schema | None = None
    text: Schema | None = None
    list: Schema | None = None
    mapping: Schema | None = None

    @property
    def _all(self) -> tuple[Schema, ...]:
        forms = (self.number, self.text, self.list, self.mapping)
        return tuple(form for form in forms if form is not None)

    @property
    def expected(self) -> str:
        return " or ".join(form.expected for form in self._all)

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        form = self._form(node)
        if form is None:
            return mismatch(node, path, self.expected, problems)
        return form.read(node, path, problems)

    def _form(self, node: Node) -> Schema | None:
        if isinstance(node, Sequence):
            return self.list
        if isinstance(node, Mapping):
            return self.mapping
        if node.empty:
            return None
        # For a quoted number, or for text where only a number is allowed, the other form has the
        # best message.
        is_text = isinstance(node.value, str)
        return (self.text or self.number) if is_text else (self.number or self.text)

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [form.json_schema() for form in self._all]}


class Key(Frozen):
    """One key of a :class:`MappingSchema`: the schema of its value, and its documentation."""

    name: str
    schema: Schema
    examples: tuple[Any, ...]
    default: str = ""
    """The default, in words; a YAML value is in backquotes."""
    help: str = field(kw_only=True)
    required: bool = field(default=False, kw_only=True)


class Section(Frozen):
    """A mapping as read: its valid values, and where every value and key stands."""

    mark: Mark
    values: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    """Unknown keys. One of them may be a misspelt known key."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        """Whether the key is written, with a valid value or not."""
        return name in self.marks

    def is_wrong(self, name: str) -> bool:
        """Whether the key is written with an invalid value."""
        return name in self.marks and name not in self.values


class OtherKeys(Frozen):
    """Keys whose names the user chooses, beside those of a :class:`MappingSchema`.

    `accepts` says whether a value belongs to one, and not to a known key that is misspelt.
    """

    schema: Schema
    accepts: Callable[[Node], bool]
    name_pattern: str
    check_name: Callable[[str], str | None]


class MappingSchema(Frozen, kw_only=True):
    """A mapping with known keys; reads as a :class:`Section`."""

    keys: tuple[Key, ...]
    expected: str
    noun: str = "key"
    one_of: tuple[str, ...] = ()
    """Exactly one of these keys must be written."""
    unknown_hint: Callable[[str], str] | None = None
    """Returns a hint for an unknown key that belongs elsewhere, or ''."""
    others: OtherKeys | None = None

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            node = Mapping(node.mark, ())
        if not isinstance(node, Mapping):
            return mismatch(node, path or "the spec", self.expected, problems)
        section = Section(node.mark)
        known = {key.name: key for key in self.keys}
        for entry in node.entries:
            name = entry.key.text
            if name in known:
                schema = known[name].schema
            elif self.others is not None and self.others.accepts(entry.value):
                schema = self.others.schema
                wrong = self.others.check_name(name)
                if wrong:
                    message = f"the {self.noun} {quoted(name)} in {path} {wrong}"
                    problems.add(entry.key.mark, message)
            else:
                section.unknown.append(name)
                self._unknown(entry.key, path, problems)
                continue
            section.marks[name] = entry.value.mark
            section.keys[name] = entry.key.mark
            value = schema.read(entry.value, f"{path}.{name}" if path else name, problems)
            if value is not FAILED:
                section.values[name] = value
        self._check_required(section, path, problems)
        return section

    def _unknown(self, key: Scalar, path: str, problems: Problems) -> None:
        where = f" in {path}" if path else ""
        message = f"unknown {self.noun} {quoted(key.text)}{where}"
        if key.text == "<<":
            problems.add(key.mark, message, "YAML 1.2 has no merge keys; write the keys out")
            return
        hint = self.unknown_hint(key.text) if self.unknown_hint and not problems.full else ""
        if hint:
            problems.add(key.mark, message, hint)
        else:
            names = [known.name for known in self.keys]
            problems.add_unknown(key.mark, message, key.text, names)

    def _check_required(self, section: Section, path: str, problems: Problems) -> None:
        where = path or "the spec"
        meant = self._meant(section.unknown)
        for key in self.keys:
            if key.required and not section.has(key.name) and key.name not in meant:
                example = f"add '{key.name}: {flow_style(key.examples[0])}'"
                problems.add(section.mark, f"{where} has no {key.name}", example)
        written = [name for name in self.one_of if section.has(name)]
        if self.one_of and not written and not meant & {*self.one_of}:
            first = next(key for key in self.keys if key.name == self.one_of[0])
            problems.add(
                section.mark,
                f"{where} needs one of {alternatives(self.one_of)}",
                f"add '{first.name}: {flow_style(first.examples[0])}'",
            )
        for name in written[1:]:
            message = f"{where} has both {written[0]} and {name}"
            problems.add(section.keys[name], message, "keep one of them")

    def _meant(self, unknown: list[str]) -> set[str | None]:
        """The keys that unknown keys most likely stand for: one that is meant is not missing."""
        meant = {nearest(name, [key.name for key in self.keys]) for name in unknown}
        for key in self.keys:
            if isinstance(key.schema, MappingSchema):
                inner = [each.name for each in key.schema.keys]
                meant |= {key.name for name in unknown if nearest(name, inner)}
        return meant

    def json_schema(self) -> JsonSchema:
        schema: JsonSchema = {
            "type": ["object", "null"],
            "properties": {key.name: _documented(key) for key in self.keys},
            "additionalProperties": False,
        }
        if self.others is not None:
            known = "|".join(key.name for key in self.keys)
            pattern = f"^(?!(?:{known})$)(?:{self.others.name_pattern})$"
            schema["patternProperties"] = {pattern: self.others.schema.json_schema()}
        required = [key.name for key in self.keys if key.required]
        if required:
            schema["required"] = required
        if required or self.one_of:
            schema["type"] = "object"
        if self.one_of:
            schema["oneOf"] = [{"required": [name]} for name in self.one_of]
        return schema


def _documented(key: Key) -> JsonSchema:
    schema = key.schema.json_schema()
    default = f" Default: {key.default}." if key.default else ""
    return {"description": key.help + default, **schema, "examples": list(key.examples)}
