"""Judges the stored corpus and prints the table: `python tests/corpus/table.py rules`."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.parts.job import events
from harness.parts.lifecycle import JobState, lifecycle
from harness.parts.verdict import Failure, FailureTracker, LogTail, Verdict, analyze

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    name: str
    tasks: list[str | None]
    kind: str
    verdict: Verdict | None

    @property
    def is_right(self) -> bool:
        found = self.verdict
        return found is not None and found.task in self.tasks and found.kind.value == self.kind

    def __str__(self) -> str:
        wanted = f"{'/'.join(map(str, self.tasks))} {self.kind}"
        found = self.verdict
        said = "nothing" if found is None else f"{found.task} {found.kind.value}"
        mark = "ok" if self.is_right else "WRONG"
        return f"{mark:<6}{self.name:<34}{wanted:<40}{'' if self.is_right else said}".rstrip()


def failures(history: Iterable[events.Event]) -> Iterator[Failure]:
    tracker, state = FailureTracker(), JobState()
    for event in history:
        before = state
        if isinstance(event, events.JobEnded):
            break
        state, _ = lifecycle.step(before, event)
        failure = tracker.on_event(before, event, state)
        if failure is not None:
            yield failure
    final = tracker.final_failure(state)
    if final is not None:
        yield final


def rows(part: str) -> list[Row]:
    return [row(path) for path in sorted((HERE / part).glob("*.json"))]


def row(path: Path) -> Row:
    stored = json.loads(path.read_text())
    decoded = [events.decode(record) for record in stored["events"]]
    found = list(failures([event for event in decoded if event is not None]))
    logs = {name: text.encode() for name, text in stored["logs"].items()}
    label = stored["label"]
    tasks = label["task"] if isinstance(label["task"], list) else [label["task"]]
    verdict = analyze(found[-1], lambda task: LogTail(logs.get(task, b""))) if found else None
    return Row(path.stem, tasks, label["kind"], verdict)


def shares(part: str, judged: list[Row]) -> list[str]:
    by_kind: dict[str, list[bool]] = {}
    for each in judged:
        by_kind.setdefault(each.kind, []).append(each.is_right)
    kinds = [f"{kind} {sum(found)}/{len(found)}" for kind, found in sorted(by_kind.items())]
    right = sum(each.is_right for each in judged)
    share = 100 * right / max(1, len(judged))
    return [", ".join(kinds), f"{part}: {right} of {len(judged)} right ({share:.0f}%)"]


def main() -> None:
    for part in (each for each in sys.argv[1:] if each != "-v"):
        judged = rows(part)
        for each in judged:
            print(each)
            if "-v" in sys.argv or not each.is_right:
                print("        ", each.verdict)
        print("\n".join(shares(part, judged)))


if __name__ == "__main__":
    main()
