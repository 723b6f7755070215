"""What the preflight found, as the launch command says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.cli import console

if TYPE_CHECKING:
    from distrun.events import PreflightFound

_MOST = 20


class Findings:
    """Says what is not well with hosts: the same advice once, and not more than one can read."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._said = 0
        self.unsaid = 0
        """How many there were beyond what is said."""

    def say(self, found: PreflightFound) -> None:
        if self._said == _MOST:
            self.unsaid += 1
            return
        self._said += 1
        console.say(f"{found.grade}: {found.text}")
        if found.advice is not None and found.advice not in self._given:
            self._given.add(found.advice)
            console.say_lines([f"  {found.advice}"])
