"""What a value in a spec can look like: each shape reads nodes and explains itself.

A shape is the one source for three things: reading a value (with every problem's position), the
JSON Schema that editors complete from, and the words of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from distrun.spec.problems import quoted
from distrun.spec.yamlnodes import Mapping, Node, Scalar, Sequence, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.spec.problems import Mark, Problems

T = TypeVar("T")
Schema = dict[str, Any]

FAILED: Any = object()
"""What `read` returns where it has added a problem."""


@dataclass(frozen=True)
class At(Generic[T]):
    """A value and where it stands."""

    mark: Mark
    value: T


class Shape(Protocol):
    """See the module's docstring. `words` completes "must be ..."."""

    @property
    def words(self) -> str: ...

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        """The value at `path`, or FAILED once what is wrong has been added to `problems`."""

    def schema(self) -> Schema: ...


def mismatch(node: Node, path: str, words: str, problems: Problems, hint: str = "") -> Any:
    """Add "must be X, not Y" and return FAILED."""
    found = describe(node)
    message = f"{path} is empty" if found == "empty" else f"{path} must be {words}, not {found}"
    if found == "empty" and not hint:
        hint = f"write {words}"
    problems.add(node.mark, message, hint)
    return FAILED


def bad_character(text: str) -> str | None:
    """What `text` holds that no process can be given, or None."""
    if "\0" in text:
        return "a NUL byte"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "half a surrogate pair or a byte that is not UTF-8"
    return None


def clean(text: str, node: Node, path: str, problems: Problems) -> bool:
    """Whether `text` has only characters that a process can be given; else adds a problem."""
    bad = bad_character(text)
    if bad:
        problems.add(node.mark, f"{path} holds {bad}", "remove it")
    return not bad


@dataclass(frozen=True, kw_only=True)
class ListOf:
    """A list; reads as a tuple of :class:`At`. Written with nothing in it, it is empty."""

    item: Shape
    words: str
    least: int = 0
    most: int | None = None
    noun: str = "item"
    text_hint: Callable[[str], str] | None = None
    """What to write in place of a text that should have been a list."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty and not self.least:
            return ()
        if not isinstance(node, Sequence):
            hint = ""
            if self.text_hint and isinstance(node, Scalar) and not node.empty:
                hint = self.text_hint(node.text)
            return mismatch(node, path, self.words, problems, hint)
        if len(node.items) < self.least:
            problems.add(node.mark, f"{path} has no {self.noun}", f"write {self.words}")
            return FAILED
        if self.most is not None and len(node.items) > self.most:
            problems.add(
                node.items[self.most].mark, f"{path} has more than {self.most} items", "list fewer"
            )
            return FAILED
        read = [
            At(item.mark, self.item.read(item, f"{path}[{index}]", problems))
            for index, item in enumerate(node.items)
        ]
        return FAILED if any(at.value is FAILED for at in read) else tuple(read)

    def schema(self) -> Schema:
        schema: Schema = {"type": ["array", "null"], "items": self.item.schema()}
        if self.least:
            schema.update(type="array", minItems=self.least)
        if self.most is not None:
            schema["maxItems"] = self.most
        return schema


@dataclass(frozen=True, kw_only=True)
class MapOf:
    """Names of the user's own choice, each with a value; reads as a dict of :class:`At`."""

    value: Shape
    words: str
    noun: str
    name_pattern: str
    check_name: Callable[[str], str | None]

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            return {}
        if not isinstance(node, Mapping):
            return mismatch(node, path, self.words, problems)
        read: dict[str, At[Any]] = {}
        for entry in node.entries:
            name = entry.key.text
            wrong = self.check_name(name)
            if wrong:
                problems.add(entry.key.mark, f"{path}: the {self.noun} {quoted(name)} {wrong}")
            value = self.value.read(entry.value, f"{path}.{quoted(name)[1:-1]}", problems)
            read[name] = At(entry.key.mark, FAILED if wrong else value)
        return FAILED if any(at.value is FAILED for at in read.values()) else read

    def schema(self) -> Schema:
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": self.name_pattern},
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True)
class Forms:
    """A value that can be written in several ways, told apart by what kind of node it is."""

    number: Shape | None = None
    text: Shape | None = None
    list: Shape | None = None
    mapping: Shape | None = None

    @property
    def _all(self) -> tuple[Shape, ...]:
        forms = (self.number, self.text, self.list, self.mapping)
        return tuple(form for form in forms if form is not None)

    @property
    def words(self) -> str:
        return " or ".join(form.words for form in self._all)

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        form = self._form(node)
        if form is None:
            return mismatch(node, path, self.words, problems)
        return form.read(node, path, problems)

    def _form(self, node: Node) -> Shape | None:
        if isinstance(node, Sequence):
            return self.list
        if isinstance(node, Mapping):
            return self.mapping
        if node.empty:
            return None
        # A quoted number, or a word where only numbers are known: that form says it best.
        return (
            (self.text or self.number)
            if isinstance(node.value, str)
            else (self.number or self.text)
        )

    def schema(self) -> Schema:
        return {"anyOf": [form.schema() for form in self._all]}
