"""The schema language of the spec: how each kind of value is read, described and documented.

A schema is the one source for three things: reading a value (with every problem's position), the
JSON Schema that editors complete from, and the words of the reference. This module has the
compound schemas; :mod:`.scalars` has those of single values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from distrun.frozen import Frozen, field
from distrun.spec.nodes import Mapping, Node, Scalar, Sequence, describe, flow_style
from distrun.spec.problems import Mark, Problems, nearest, quoted

JsonSchema = dict[str, Any]

FAILED: Any = object()
"""What `read` returns after it has added a problem."""


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


_COLON = "write ': ', a colon and a space, after a key"


def _mapping_hint(node: Node) -> str:
    """How to write as a mapping what is a list or a text, or ''."""
    if isinstance(node, Sequence):
        if node.items and all(isinstance(each, Mapping) for each in node.items):
            return "remove the '-' before its keys"
        items = [each.text for each in node.items if isinstance(each, Scalar)]
        pairs = [each.partition("=") for each in items if "=" in each]
        is_whole = pairs and len(pairs) == len(node.items)
        return f"write {flow_style({pair[0]: pair[2] for pair in pairs})}" if is_whole else ""
    is_key = isinstance(node, Scalar) and re.match(r"[\w-]+\s?[:\uff1a]", node.text)
    return _COLON if is_key else ""


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
    """A list; reads as a tuple. A key without a value is an empty list."""

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
            message = f"{path} has more than {self.most} items"
            problems.add(node.items[self.most].mark, message, "list fewer")
            return FAILED
        read = []
        for index, item in enumerate(node.items):
            place = f"{path}[{index}]"
            problems.places[place] = item.mark
            read.append(self.item.read(item, place, problems))
        return FAILED if any(each is FAILED for each in read) else tuple(read)

    def json_schema(self) -> JsonSchema:
        schema: JsonSchema = {"type": ["array", "null"], "items": self.item.json_schema()}
        if self.least:
            schema.update(type="array", minItems=self.least)
        if self.most is not None:
            schema["maxItems"] = self.most
        return schema


class MapOf(Frozen, kw_only=True):
    """Names that the user chooses, each with a value; reads as a dict.

    The place of a value is that of its name.
    """

    name: Any
    """The :class:`.scalars.Text` of a name."""
    value: Schema
    expected: str
    noun: str

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            return {}
        if not isinstance(node, Mapping):
            return mismatch(node, path, self.expected, problems, _mapping_hint(node))
        read: dict[str, Any] = {}
        for entry in node.entries:
            name = entry.key.text
            wrong = self.name.problem(name)
            if wrong:
                problems.add(entry.key.mark, f"{path}: the {self.noun} {quoted(name)} {wrong}")
            value = self.value.read(entry.value, f"{path}.{quoted(name)[1:-1]}", problems)
            problems.places[f"{path}.{name}"] = entry.key.mark
            read[name] = FAILED if wrong else value
        return FAILED if any(each is FAILED for each in read.values()) else read

    def json_schema(self) -> JsonSchema:
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": f"^{self.name.pattern}$"},
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
        if is_text and self.text is None and ":" in node.text and self.list is not None:
            return self.list  # addresses in one text
        return (self.text or self.number) if is_text else (self.number or self.text)

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [form.json_schema() for form in self._all]}


class Made(Frozen):
    """A value that is read by another schema, and means what `make` makes of it."""

    schema: Schema
    make: Callable[[Any], Any]

    @property
    def expected(self) -> str:
        return self.schema.expected

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        value = self.schema.read(node, path, problems)
        return FAILED if value is FAILED else self.make(value)

    def json_schema(self) -> JsonSchema:
        return self.schema.json_schema()


class Key(Frozen):
    schema: Schema
    examples: tuple[Any, ...]
    default: str
    """The default, in words; a YAML value is in backquotes."""
    help: str
    required: bool
    name: str = ""
    """Empty: it is called as the attribute that has it."""


_NOTHING: Any = object()


def key_only(
    schema: Schema,
    default: Any = _NOTHING,
    words: str = "",
    *,
    help: str,  # noqa: A002 - what it is called wherever options are declared
    examples: tuple[Any, ...] = (),
    name: str = "",
) -> Key:
    """State a key of the spec that is no field of its class (a ClassVar): see :func:`key`."""
    if default is not _NOTHING and not words:
        written = str(default).lower() if isinstance(default, bool) else str(default)
        words = "`[]`" if default == () else f"`{written}`"
    required = default is _NOTHING and not words
    return Key(schema, examples or (default,), words, help, required, name)


def key(
    schema: Any,
    default: Any = _NOTHING,
    words: str = "",
    *,
    help: str,  # noqa: A002
    examples: tuple[Any, ...] = (),
    is_required: bool = False,
) -> Any:
    """State a key of the spec: a field of a frozen dataclass.

    Args:
        schema: how its value is read.
        default: a text is read as in a file (`10m`); nothing: the key is required.
        words: the default for people; none: the default itself. Without a default, it depends.
        help: what the key is for.
        examples: values as in a file; none: the default.
        is_required: the key is required although the field has a default.
    """
    written = _NOTHING if is_required else default
    metadata = {"key": key_only(schema, written, words, help=help, examples=examples)}
    if default is _NOTHING:
        return field(metadata=metadata)
    if default == {}:
        return field(default_factory=dict, metadata=metadata)
    if isinstance(default, str) and not isinstance(default, Enum) and hasattr(schema, "own_schema"):
        default = schema.read(Scalar(Mark(""), default), "", Problems())
    return field(default=default, metadata=metadata)


def keys_of(kind: type) -> dict[str, Key]:
    """Return the keys that a class states, by their names, in its order."""
    found = {}
    for name in kind.__annotations__:
        stated = kind.__dict__.get(name)
        if name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
            stated = kind.__dataclass_fields__[name].metadata.get("key")  # type: ignore[attr-defined]
        if isinstance(stated, Key):
            found[stated.name or name] = stated
    return found


def keys_in(schema: Any) -> dict[str, Key]:
    """Return the keys of the mapping that a value can be, whatever else it can be; none: {}."""
    for form in ("mapping", "schema"):
        schema = getattr(schema, form, None) or schema
    return getattr(schema, "keys", {})


class Section(dict[str, Any]):
    """The valid values of a mapping, by their keys; or of what is short for one."""

    def __init__(self, path: str = "", problems: Problems | None = None, **values: Any) -> None:
        super().__init__(values)
        self.path = path
        self._problems = problems

    def path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return self._problems is not None and self.path_of(name) in self._problems.keys

    def is_wrong(self, name: str) -> bool:
        return self.has(name) and name not in self


class OtherKeys(Frozen):
    """Keys whose names the user chooses, beside those of a :class:`MappingSchema`.

    `accepts` says whether a value belongs to one, and not to a known key that is misspelt. `name`
    is the :class:`.scalars.Text` of their names.
    """

    schema: Schema
    accepts: Callable[[Node], bool]
    name: Any


class MappingSchema(Frozen, kw_only=True):
    """A mapping with known keys; reads as a :class:`Section`, or as what `kind` makes of it."""

    keys: dict[str, Key]
    expected: str
    kind: Callable[..., Any] | None = None
    noun: str = "key"
    one_of: tuple[str, ...] = ()
    """Exactly one of these keys must be written."""
    unknown_hint: Callable[[str], str | None] | None = None
    """Returns a hint for an unknown key that belongs elsewhere, or '' or None."""
    others: OtherKeys | None = None

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            node = Mapping(node.mark, ())
        if not isinstance(node, Mapping):
            return mismatch(node, path or "the spec", self.expected, problems, _mapping_hint(node))
        section = Section(path, problems)
        problems.top = problems.top or self
        unknown = []
        for entry in node.entries:
            name = entry.key.text
            place = section.path_of(name)
            if name in self.keys:
                schema = self.keys[name].schema
            elif self.others is not None and self.others.accepts(entry.value):
                schema = self.others.schema
                wrong = self.others.name.problem(name)
                if wrong:
                    message = f"the {self.noun} {quoted(name)} in {path} {wrong}"
                    problems.add(entry.key.mark, message)
            else:
                if not problems.full:  # to look for what each one means takes time
                    unknown.append(name)
                problems.with_unknown.add(path)
                self._unknown(entry.key, path, problems)
                continue
            problems.places[place] = entry.value.mark
            problems.keys[place] = entry.key.mark
            value = schema.read(entry.value, place, problems)
            if value is not FAILED:
                section[name] = value
        self._check_required(section, node.mark, unknown, problems)
        if self.kind is None:
            return section
        is_whole = all(name in section for name, key in self.keys.items() if key.required)
        return self.kind(**section) if is_whole else FAILED

    def _unknown(self, key: Scalar, path: str, problems: Problems) -> None:
        where = f" in {path}" if path else ""
        message = f"unknown {self.noun} {quoted(key.text)}{where}"
        if key.text == "<<":
            problems.add(key.mark, message, "YAML 1.2 has no merge keys; write the keys out")
            return
        near = None if problems.full else nearest(key.text, self.keys)
        if problems.full:
            hint: str | None = ""
        elif key.text.partition(":")[0] in self.keys:
            hint = _COLON
        elif strange := re.search(r"[^\S ]", key.text):
            hint = f"it has the character U+{ord(strange[0]):04X}; write plain spaces instead"
        elif path not in ("", key.text) and key.text in problems.top.keys and not near:
            hint = f"did you mean {key.text} at the top level?"
        else:
            hint = self.unknown_hint(key.text) if self.unknown_hint else ""
            others = (keys_in(each.schema) for each in problems.top.keys.values())
            if path and not hint and not near and any(key.text in each for each in others):
                hint = problems.top.unknown_hint(key.text)
        if hint:
            problems.add(key.mark, message, hint)
        else:
            problems.add_unknown(key.mark, message, key.text, self.keys)

    def _check_required(
        self, section: Section, mark: Mark, unknown: list[str], problems: Problems
    ) -> None:
        where = section.path or "the spec"
        meant = self._meant(unknown)
        for name, key in self.keys.items():
            if key.required and not section.has(name) and name not in meant:
                example = f"add '{name}: {flow_style(key.examples[0])}'"
                problems.add(mark, f"{where} has no {name}", example)
        written = [name for name in self.one_of if section.has(name)]
        if self.one_of and not written and not meant & {*self.one_of}:
            first = self.one_of[0]
            lacks = "needs one of" if self.one_of[1:] else "has no"
            message = f"{where} {lacks} {alternatives(self.one_of)}"
            example = flow_style(self.keys[first].examples[0])
            problems.add(mark, message, f"add '{first}: {example}'")
        for name in written[1:]:
            message = f"{where} has both {written[0]} and {name}"
            problems.add(problems.keys[section.path_of(name)], message, "keep one of them")

    def _meant(self, unknown: list[str]) -> set[str | None]:
        """The keys that unknown keys most likely stand for: one that is meant is not missing."""
        meant = {nearest(name, self.keys) for name in unknown}
        for name, key in self.keys.items():
            if isinstance(key.schema, MappingSchema):
                meant |= {name for each in unknown if nearest(each, key.schema.keys)}
        return meant

    def json_schema(self) -> JsonSchema:
        schema: JsonSchema = {
            "type": ["object", "null"],
            "properties": {name: _documented(key) for name, key in self.keys.items()},
            "additionalProperties": False,
        }
        if self.others is not None:
            known = "|".join(self.keys)
            pattern = f"^(?!(?:{known})$)(?:{self.others.name.pattern})$"
            schema["patternProperties"] = {pattern: self.others.schema.json_schema()}
        required = [name for name, key in self.keys.items() if key.required]
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
