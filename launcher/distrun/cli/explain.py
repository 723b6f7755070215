"""`distrun explain`."""

from __future__ import annotations

import re
import signal
from difflib import get_close_matches
from typing import Any

import click

from distrun.cli import console
from distrun.errors import UsageError
from distrun.spec.nodes import flow_style
from distrun.spec.problems import quoted
from distrun.spec.schema import Key

_INDENT = 10
_LAST_CODE = 255
_SIGNALLED = 128
_MOST_NEAR = 3
_MOST_MENTIONS = 6
_LISTED = "`distrun explain` lists what there is"
_LIKE = 0.75
"""How alike a name must be to the one that was meant."""
_PAGES = {
    "kind": "a kind of verdict, see docs/failures-reference.md",
    "advice": "why a job is slow, see docs/performance.md",
    "end": "how a job ended, see docs/resume.md",
}
"""What the topics are that have a name, by their section."""
_EXIT_CODE = re.compile("[0-9]{1,9}")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def complete_topics(ctx: Any, param: Any, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """The keys of the spec, the kinds of verdicts and the advice that begin with `incomplete`."""
    return [each for each in _topics() if each.startswith(incomplete)]


def _topics() -> list[str]:
    return [*_spec_keys(), *_named()]


@click.command("explain")
@click.argument("topic", metavar="[KEY]", required=False, shell_complete=complete_topics)
def command(topic: str | None) -> int:
    """Explain a key of the spec, a verdict's kind, advice, or an exit code.

    KEY is a key's path or name, a kind such as `host_memory`, advice such as `retracing`, another
    cause that `ps` shows, or an exit code. Without KEY, list the sections of the spec, the kinds,
    the advice and the exit codes.

    \b
      distrun explain
      distrun explain restart.backoff
      distrun explain host_memory
      distrun explain 69
    """
    if topic is None:
        _print_overview()
    elif _EXIT_CODE.fullmatch(topic) and int(topic) <= _LAST_CODE:
        console.print_text(f"exit code {int(topic)}: {_code_text(int(topic))}", indent=_INDENT)
    elif topic.lower() in _named():
        _print_descriptions(_named()[topic.lower()])
    elif topic.upper() in signal.Signals.__members__:
        code = _SIGNALLED + signal.Signals[topic.upper()]
        console.print_text(f"exit code {code}: {_code_text(code)}", indent=_INDENT)
    elif paths := _paths(topic):
        for path in paths:
            _print_key(path, _spec_keys()[path])
    else:
        raise UsageError(f"there is nothing to explain about {quoted(topic)}", hint=_hint(topic))
    return 0


def _named() -> dict[str, list[str]]:
    """What is meant by each name but for those of keys: also what people call some of them."""
    from distrun.words.kinds import topics

    own = {name: [name] for section in reversed(_PAGES) for name in topics(section)}
    return own | {name: meant.split() for name, (meant, _) in topics("also").items()}


def _print_descriptions(names: list[str]) -> None:
    from distrun.words.kinds import topics

    for name in names:
        section = next(each for each in _PAGES if name in topics(each))
        console.print_text(f"{name}: {_PAGES[section]}")
        _print_rows(dict(zip(("seen as", "advice"), topics(section)[name], strict=True)))


def _spec_keys() -> dict[str, Key]:
    from distrun.spec.reference import reference

    return dict(reference())


def _paths(topic: str) -> list[str]:
    """The paths of the keys that are meant: by a path, or by the last name of it."""
    keys = _spec_keys()
    topic = topic.lower()  # so TF_CONFIG is found, too
    wanted = _without_places(topic)
    found = [path for path in keys if _without_places(path) == wanted]
    return found or [path for path in keys if path.rpartition(".")[2] == topic]


def _without_places(path: str) -> str:
    """A path without the items of lists and with `<role>` for a role: `cluster.worker.count`."""
    path = re.sub(r"\[\d*\]", "", path)
    return re.sub(r"^cluster\.\w+\.", "cluster.<role>.", path)


def _mentions(word: str) -> list[str]:
    """The topics in whose texts a word begins with `word`."""
    from distrun.words.kinds import topics

    texts = {name: " ".join(text) for each in _PAGES for name, text in topics(each).items()}
    for path, key in _spec_keys().items():
        texts[path] = f"{key.help} {key.schema.expected} {key.default}"
    found = re.compile(rf"(?<![^\W_]){re.escape(word)}", re.IGNORECASE)
    return [name for name, text in texts.items() if found.search(text)][:_MOST_MENTIONS]


def _hint(topic: str) -> str:
    """What to ask instead: a name like it, or what mentions it."""
    root = click.get_current_context().find_root()
    if isinstance(root.command, click.Group) and topic in root.command.list_commands(root):
        return f"it is a command: distrun {topic} --help"
    names = _topics()
    by_name = {name.rpartition(".")[2]: name for name in reversed(names)}
    by_name |= {name: name for name in names}
    near = get_close_matches(topic[:100].casefold(), by_name, n=_MOST_NEAR, cutoff=_LIKE)
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(by_name[each] for each in near))}?"
    found = _mentions(topic)
    return f"what mentions it: {', '.join(found)}" if found else _LISTED


def _print_overview() -> None:
    from distrun.words.kinds import topics

    console.print_text("The keys of the spec; `distrun explain KEY` explains each:")
    for path, key in _spec_keys().items():
        if "." not in path:
            example = f"{path}: {flow_style(key.examples[0])}"
            console.print_text(f"  {path:<12} {key.help} Example: {example}", indent=15)
    console.print_text("\nThe kinds of verdicts:")
    console.print_text(f"  {', '.join(topics('kind'))}", indent=2)
    console.print_text("\nAdvice on a job that is slow:")
    console.print_text(f"  {', '.join(topics('advice'))}", indent=2)
    console.print_text("\nThe exit codes of launch and wait:")
    for code, (meaning, _) in topics("code").items():
        console.print_text(f"  {code:<14} {_plain(meaning)}", indent=17)


def _print_key(path: str, key: Key) -> None:
    name = path.rpartition(".")[2]
    console.print_text(f"{path}: {key.help}", indent=2)
    _print_rows(
        {
            "value": key.schema.expected,
            "default": "required" if key.required else key.default,
            "example": "  or  ".join(f"{name}: {flow_style(each)}" for each in key.examples),
        }
    )
    below = _keys_below(path)
    width = max(map(len, below), default=0)
    for each, its_key in below.items():
        console.print_text(f"  {each:<{width}}  {its_key.help}", indent=width + 4)


def _keys_below(path: str) -> dict[str, Key]:
    before = f"{_without_places(path)}."
    paths = {each: _without_places(each) for each in _spec_keys()}
    inside = {each: plain.removeprefix(before) for each, plain in paths.items() if before in plain}
    return {each: key for each, key in _spec_keys().items() if "." not in inside.get(each, ".")}


def _print_rows(rows: dict[str, str]) -> None:
    for title, text in rows.items():
        if text:
            console.print_text(f"  {title:<7} {_plain(text)}", indent=_INDENT)


def _code_text(code: int) -> str:
    """What an exit code means: distrun's own meaning, and that of a task's code."""
    from distrun.agent.linux.syscalls import signal_name
    from distrun.words.kinds import topics

    of_a_task = "the exit code of the task that failed first"
    if 0 < code - _SIGNALLED <= signal.SIGRTMAX:
        of_a_task = f"the task that failed first was killed by {signal_name(code - _SIGNALLED)}"
    own, _ = topics("code").get(str(code), ("", ""))
    return "; or ".join(filter(None, (_plain(own), of_a_task if code else "")))


def _plain(markdown: str) -> str:
    return _LINK.sub(r"\1", markdown)
