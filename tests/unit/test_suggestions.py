"""What messages suggest is done, and must then be right: `write ...`, `did you mean ...`.

The messages are those of spec_messages/. A suggestion with words of its own is in IN_WORDS, with
what a user would write then. Keys and commands in other messages are taken from the source.
"""

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import distrun
from harness.parts.cli import main
from harness.parts.settings import reference
from harness.parts.spec import SPEC, Problem, SpecProblemsError, check_values
from harness.parts.top import read_rows
from harness.parts.words import causes as words
from harness.specs import load_text
from harness.tables import read_table

from .test_spec_messages import CASES

IN_WORDS = read_table(Path(__file__).with_name("suggested_words.txt"), "in words")
OTHERS = (
    # prose about a file as a whole, or about places elsewhere
    "here:", "check the indentation", "begin with ", "indent with", "a spec is one document",
    "remove the %", "YAML ", "put quotes around", "known: ", "these have one: ", "export it",
    "raise ", "on a busy machine", "it has the character", "write what is below", "write ': '",
    "tasks have ports of their own", "the port of sshd", "add gpu9", "add localhost",
    "give each", "save the file", "write the whole path", "use another name", "write NAME: value",
    "write the address by which other hosts reach localhost", "write the keys out",
    "correct the path", "ports are 1 to 65535", "no spec needs that", "at most 100 are allowed",
    "name fewer", "write the value without a tag", "write its roles here", "convert it: ",
)  # fmt: skip
MAY_FOLLOW = (
    # other problems, which the first one hid
    "parameter_server needs", "multi_worker_mirrored needs a cluster", "roles wait for each other",
    "cluster.worker needs one of", "mirrored takes exactly 1 worker", "the address ",
)  # fmt: skip

Follow = Callable[[str, "Place", "re.Match[str]"], str]


class Place:
    """Where a problem is in the text: the entry or the item that begins there, and its value."""

    def __init__(self, text: str, problem: Problem) -> None:
        self.text = text
        self.names_what_is_unknown = problem.message.startswith("unknown ")
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        found: list[Any] = []
        empty: list[Any] = [(None, None, root, False)]
        for parent, key, value in _entries(root):
            for each in filter(None, (key, value)):
                mark = each.start_mark
                if (mark.line + 1, mark.column + 1) == (problem.line, problem.column):
                    found.append((parent, key, value, each is key))
            is_empty = isinstance(value, yaml.ScalarNode) and value.value == "" and not value.style
            if is_empty and value.start_mark.line + 1 == problem.line:
                empty.append((parent, key, value, False))
        self.parent, self.key, self.value, self.is_key = (found or empty[-1:])[0]

    def replace(self, new: str) -> str:
        node = self.key if self.is_key else self.value
        start, end = node.start_mark.index, node.end_mark.index
        space = "" if self.text[start - 1 : start] in "[{( \n" else " "
        return f"{self.text[:start]}{space}{new}{self.text[end:]}"

    def remove(self, _: str = "") -> str:
        """Remove the entry or item, in a list and mapping in brackets with its comma."""
        start = (self.key or self.value).start_mark.index
        before = self.text[:start].rstrip().removesuffix("-").rstrip()
        after = self.text[self.value.end_mark.index :]
        if before.endswith(","):
            return before[:-1] + after
        return before + (after.lstrip().removeprefix(",") if before[-1:] in "[{" else "\n" + after)


def _entries(node: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Each mapping's keys and values, and each list's items, the inner ones first."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    for key, value in (*pairs, *((None, item) for item in items)):
        yield from _entries(value)
        yield node, key, value


def put(text: str, path: str, value: str) -> str:
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    first, *rest = path.split(".")
    while rest:
        found = [each for key, each in node.value if key.value == first]
        if not found or not isinstance(found[0], yaml.MappingNode):
            break
        node, (first, *rest) = found[0], rest
    known = next((each for key, each in node.value if key.value == first), None)
    if known is not None and not rest:
        return f"{text[: known.start_mark.index]}{value}{text[known.end_mark.index :]}"
    for name in reversed(rest):
        value = f"{{{name}: {value}}}"
    return _put_into(text, node, f"{first}: {value}")


def _put_into(text: str, node: Any, entry: str) -> str:
    start = node.start_mark.index
    if node.flow_style:
        comma = ", " if node.value else ""
        return f"{text[: start + 1]}{entry}{comma}{text[start + 1 :]}"
    return f"{text[:start]}{entry}\n{' ' * node.start_mark.column}{text[start:]}"


def _moved(text: str, place: Place, match: re.Match[str]) -> str:
    value = text[place.value.start_mark.index : place.value.end_mark.index]
    return put(place.remove(), match[1] or match[2], value)


def _written(_: str, place: Place, match: re.Match[str]) -> str:
    place.is_key &= place.names_what_is_unknown
    return place.replace(match[1])


def _added(text: str, place: Place, match: re.Match[str]) -> str:
    if match[3]:
        return put(text, f"cluster.{match[1]}", match[2])
    node = place.value if isinstance(place.value, yaml.MappingNode) else place.parent
    return _put_into(text, node, f"{match[1]}: {match[2]}")


FORMS: tuple[tuple[str, Follow], ...] = (
    (r"did you mean '(.+)'\?", lambda _, place, match: place.replace(match[1])),
    (r"did you mean '(.+)' with args: (\[.*\])\?",
     lambda _, place, match: put(place.replace(match[1]), "program.args", match[2])),
    (r"did you mean the module\?.* module: ([\w.]+)",
     lambda _, place, match: put(place.remove(), "program.module", match[1])),
    (r"did you mean ([a-z_.]+)(?: or [a-z_.]+| at the top level)?\?|write it as ([\w.-]+)", _moved),
    (r"add '(\w+): (.+?)'( to cluster)?(?:, or .*)?", _added), (r"write (\[.*\]|\{.*\})", _written),
    (r"write '\w+: (.+?)'(?:, or .*)?", _written), (r"write (\d+) without quotes", _written),
    (r"write (off|always|failure|chief|ps|true|false|\d+-\d+|[\d.]+\w*)", _written),
    (r"write (\[[\d-]+\]) or .*", _written), (r"(?:give it a unit): (\S+)", _written),
    (r".*write (?:a list(?: of \w+)? such as|one such as|for example) (\S+|\[.*\])", _written),
    (r"(?:remove|keep) (?:it|one)\b.*", lambda _, place, __: place.remove()),
)  # fmt: skip


def problems_of(folder: Path, text: str) -> tuple[Problem, ...]:
    try:
        load_text(folder, text)
    except SpecProblemsError as error:
        return error.problems
    return ()


def followed(text: str, problem: Problem) -> str | None:
    """The text as a user who follows the suggestion would write it; None: it is done elsewhere."""
    if problem.hint.startswith(OTHERS):
        return None
    if problem.hint in IN_WORDS:
        place = Place(text, problem)
        place.is_key = False
        return place.replace(IN_WORDS[problem.hint])
    for form, follow in FORMS:
        match = re.fullmatch(form, problem.hint)
        if match is not None:
            return follow(text, Place(text, problem), match)
    raise AssertionError(f"no test follows {problem.hint!r}: add it to FORMS or IN_WORDS")


@pytest.mark.parametrize("case", [each.values for each in CASES], ids=[each.id for each in CASES])
def test_each_suggestion_works_and_they_end(folder: Path, case: tuple[str, str, str]) -> None:
    text = case[1].partition("\n")[2] + "\n"
    found = problems_of(folder, text)
    better = {each: followed(text, each) for each in found if each.hint}
    for problem, followed_text in better.items():
        if followed_text is not None:
            now = {each.message for each in problems_of(folder, followed_text)}
            new = {each for each in now - {each.message for each in found}
                   if not each.startswith(MAY_FOLLOW)}  # fmt: skip
            assert problem.message not in now, (str(problem), followed_text)
            assert not new, (str(problem), followed_text)
    for _ in range(30):
        first = next(filter(None, (followed(text, each) for each in found if each.hint)), None)
        if first is None:
            return
        text = first
        found = problems_of(folder, text)
    raise AssertionError(text)


# What other messages suggest ------------------------------------------------------------------

BASE = "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram: {script: train.py}\n"
NEED_MORE = {
    # what a spec needs besides
    "workers: independent": "strategy: parameter_server\ncluster: {worker: 2, ps: 1}\n"
    "program: {script: train.py}\n",
    "hosts: kubernetes": f"{BASE}kubernetes: {{image: x}}\n",
    "spares: 1": f"{BASE}hosts: [a, b, c]\n",
    "slurm.requeue: true": f"{BASE}hosts: [a, b]\n",
}


@functools.cache
def said() -> dict[str, str]:
    found = {}
    for file in sorted(Path(distrun.__file__).parent.rglob("*.py")):
        nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        docs = {each.value for each in nodes if isinstance(each, ast.Expr)}
        for node in nodes:
            if not isinstance(node, ast.JoinedStr | ast.Constant) or node in docs:
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [getattr(each, "value", None) if isinstance(each, ast.Constant) else "X"
                     for each in parts]  # fmt: skip
            if isinstance(texts[0], str):
                text = " ".join("".join(map(str, texts)).split()).replace("{{", "{")
                found[text.replace("}}", "}")] = f"{file.name}:{node.lineno}"
    for table in Path(words.__file__).parent.glob("*.txt"):
        for row in read_rows(words.__spec__, table.name):
            found[re.sub(r"([{}])\1", r"\1", row.split(" ", 1)[1])] = f"{table.name}: {row}"
    return found


PATHS = {re.sub(r"\[\]", "", path) for path in dict(reference())}
OF_SPEC = re.compile(
    rf"`((?:{'|'.join(SPEC.keys)})(?:\.[a-z_]+)*)(?:: ([^`{{}}]+|\{{.*?\}}))?`(?!s\b)"
)


def test_each_key_that_a_message_names_can_be_written(folder: Path) -> None:
    """With the value that the message gives."""
    texts = {
        match[0]: (match, at) for text, at in said().items() for match in OF_SPEC.finditer(text)
    }
    tried = 0
    for match, at in texts.values():
        path, value = match[1], match[2]
        if value is None:
            assert path in PATHS, f"{at}: there is no key {path}"
            continue
        if "…" in value or "/" in value or "X" in value:
            continue
        tried += 1
        spec = put(NEED_MORE.get(match[0].strip("`"), BASE), path, value)
        assert problems_of(folder, spec) == (), (at, spec)
    assert tried > 8


def test_each_command_that_a_message_names_is_one() -> None:
    """Its options, too. Others' options may follow a script."""
    group = main.distrun
    context = click.Context(group)
    names = "|".join(group.list_commands(context))
    in_marks = re.compile(r"[`']distrun ([a-z]+)\b([^`')]*)[`')]")
    as_sentence = re.compile(rf"distrun ({names})\b((?: --?[a-z][\w-]*)*)")
    tried = 0
    for text, at in said().items():
        for name, rest in [*in_marks.findall(text), *as_sentence.findall(text)]:
            command = group.get_command(context, name)
            assert command is not None, f"{at}: there is no command {name}: {text}"
            own = rest.partition(" -- ")[0].partition(".py")[0]
            known = {each for option in command.params for each in option.opts} | {"-h", "--help"}
            for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", own):
                assert option in known, f"{at}: {name} has no {option}"
            tried += 1
    assert tried > 40


IN_PODS = {"sync": "off", "": "kubernetes: {image: i}\nhosts: kubernetes\n"}
IN_COMMAND = "[python, train.py, --ckpt_dir, ck]"
HOSTS = "hosts: [h1, h2]\nrestart: {max: 3}\n"


@pytest.mark.parametrize(
    ("args", "more", "suggested", "better"),
    [
        ('["--lr 0.1"]', "", "write --lr, 0.1", {"args": "[--lr, 0.1]"}),
        ("[--out, ~/models]", "", "${HOME}", {"args": "[--out, '${HOME}/models']"}),
        ("[--out, $HOME/models]", "", "${HOME}", {"args": "[--out, '${HOME}/models']"}),
        ("[--checkpoint-dir, ck]", HOSTS, "write program.shared: [ck]", {"shared": "[ck]"}),
        ("['--model_dir=my, ck/']", HOSTS, "['my, ck/']", {"shared": "['my, ck/']"}),
        ("[--ckpt-dir=/tmp/ck]", HOSTS, "[/tmp/ck]", {"args": "[--ckpt-dir=/mnt/ck]"}),
        ("[--ckpt-dir=/mnt/ck]", HOSTS, "", {}),
        ("[trainer.ckpt_dir=/root/ck, ckpt_dir, ck]", HOSTS, "[/root/ck]",
         {"shared": "[/root/ck]"}),
        (IN_COMMAND, HOSTS, "write program.shared: [ck]", {"shared": "[ck]"}),
        ("[--model_dir, 'gs://b/ck']", HOSTS, "", {}), ("[--model_dir, ck]", "", "", {}),
        ("[--model_dir, ck]", "hosts: [h1, h2]\n", "", {}),
        ("[--checkpoint-every, 10, --checkpoint-dir]", HOSTS, "", {}),
        ("[--ckpt=./out]", HOSTS, "[./out]", {"shared": "[out]"}),
        ("[--ckpt, out]", HOSTS, "[out]", {"shared": "[out]"}),
        ("[--ckpt_path=ck/last.keras]", HOSTS, "[ck]", {"shared": "[ck]"}),
        ("[--checkpoint-path, ck]", HOSTS, "[ck]", {"shared": "[ck]"}),
        ("[--resume, ck/last]", HOSTS, "[ck]", {"shared": "[ck]"}),
        ("[--checkpoint=ck/model-10]", HOSTS, "[ck]", {"shared": "[ck]"}),
        ("[--resume, run_17]", HOSTS, "", {}),
        ("[--restore=ck]", HOSTS, "[ck]", {"shared": "[ck]"}),
        ("[--checkpoint_every, 10, --checkpoint, none, --data_dir, d]", HOSTS, "", {}),
        ("[--init_checkpoint, m]", HOSTS, "", {}),
        ("[a]", "kubernetes: {image: i}\n", "write 'hosts", IN_PODS),
        ("[a]", "kubernetes: {image: i}\nhosts: [localhost]\n", "", {}),
        ("[a]", "restart: {on: [1, 2], never_on: [1-3]}\n", "leave out those",
         {"": "restart: {on: [1, 2], never_on: [2]}\n"}),
        ("[a]", "restart: {on: [1, failure], never_on: [1]}\n", "", {}),
    ],
)  # fmt: skip
def test_each_suggestion_about_arguments_works(
    folder: Path, args: str, more: str, suggested: str, better: dict[str, str]
) -> None:
    def warnings(program: dict[str, str]) -> list[str]:
        text = "".join(f"  {key}: {value}\n" for key, value in program.items() if key)
        spec = "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram:\n"
        what = "" if args == IN_COMMAND else "  script: train.py\n"
        spec += f"{what}{text}{program.get('', more)}"
        loaded = load_text(folder, spec, environ={"PATH": "x", "HOME": "/home/u"})
        return [each.hint for each in check_values(loaded)]

    given = {"command" if args == IN_COMMAND else "args": args}
    found = warnings(given)
    assert len(found) == bool(suggested)
    assert suggested in "".join(found)
    assert not warnings({**given, **better}) or not suggested
