"""Makes the spec of `distrun run` from its options, as :mod:`.loader` does from a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from distrun.frozen import replace
from distrun.spec.build import build
from distrun.spec.context import LoadContext
from distrun.spec.expansion import escape
from distrun.spec.loader import current_folder
from distrun.spec.model import SPEC, SpecOrigin
from distrun.spec.nodes import Entry, Mapping, Scalar
from distrun.spec.overrides import override
from distrun.spec.problems import Mark, Problems
from distrun.spec.yamltext import yaml_text
from distrun.strategies import STRATEGIES, USUAL, Role, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distrun.spec.model import Spec
    from distrun.spec.run_options import RunOptions
    from distrun.strategies import Strategy

FindStrategy: TypeAlias = "Callable[[Spec], tuple[str, str, Mark] | None]"
"""Returns the strategy that the program of a spec plainly creates, its class, and where."""
FindWorkers: TypeAlias = "Callable[[Spec], tuple[str, Mark] | None]"
"""Returns what shows that the program's workers train by themselves, and where."""
_DRAFT_KEYS = ("program", "hosts", "hostfile", "kubernetes", "ssh")
_SINGLE = "default"


class RunLoader:
    """Chooses what the options leave open, and reads the spec.

    Args:
        overrides: `PATH=VALUE` each, as for `--set`.
        absolute: write absolute paths, so that the text means the same in any folder.

    Attributes:
        choices: what was chosen because of the program, and why, after :meth:`load`.
    """

    def __init__(
        self,
        options: RunOptions,
        *,
        overrides: Sequence[str],
        find_strategy: FindStrategy,
        find_workers: FindWorkers,
        absolute: bool = False,
    ) -> None:
        self._options = options
        self._overrides = overrides
        self._find_strategy = find_strategy
        self._find_workers = find_workers
        self.choices: list[str] = []
        self._absolute = absolute
        self._problems = Problems()
        cwd = current_folder()
        self._context = LoadContext(
            file="distrun run",
            folder=cwd,
            cwd=cwd,
            environ=os.environ,
            name=None,
            extra_args=(),
        )

    def load(self, comment: str) -> Spec:
        """Return the spec; its text begins with the comment.

        Raises:
            SpecProblemsError: an InvalidSpecError. Each problem names the option that it is about.
        """
        document = self._options.document(self._context, absolute=self._absolute)
        overridden = self._override(document)
        draft = self._draft(overridden)
        strategy, cluster, workers = self._choose(overridden, draft)
        keys: list[tuple[str, Scalar | Mapping]] = [("strategy", strategy)]
        row = STRATEGIES.get(strategy.text)
        if workers is not None and overridden.get("workers") is None:
            keys.append(("workers", workers))
        if row is None or row.tf_config or len(cluster.entries) > 1:
            keys.append(("cluster", cluster))
        entries = [Entry(Scalar(value.mark, key), value) for key, value in keys]
        name, *rest = document.entries
        root = self._override(replace(document, entries=(name, *entries, *rest)))
        context = self._context
        origin = SpecOrigin(file=context.file, folder=context.folder, cwd=context.cwd)
        return replace(self._read(root), source=comment + yaml_text(escape(root)), origin=origin)

    def _override(self, document: Mapping) -> Mapping:
        root = override(document, self._overrides, self._problems)
        self._problems.raise_if_any()
        assert isinstance(root, Mapping)  # noqa: S101 - a setting changes what is in it
        return root

    def _read(self, root: Mapping, *, is_draft: bool = False) -> Spec:
        document = SPEC.read(root, "", self._problems)
        return build(document, replace(self._context, is_draft=is_draft), self._problems)

    def _choose(self, document: Mapping, draft: Spec) -> tuple[Scalar, Mapping, Scalar | None]:
        """Return strategy, tasks and `workers`: those of the options, else what fits the program.

        `workers` is None if neither says it.
        """
        options = self._options
        strategy = self._given_strategy(document)
        found = self._find_strategy(draft) if strategy is None else None
        slots = sum(host.slots or 1 for host in draft.hosts)
        is_group = options.has_chief or (options.workers or slots) > 1
        usual = USUAL if is_group else _SINGLE
        if found is not None:
            strategy = Scalar(found[2], found[0])
            if found[0] != usual:  # else it is as without the script
                self.choices.append(f"strategy: {found[0]}, because {found[2]} creates {found[1]}")
        if strategy is None:
            strategy = Scalar(document.mark, usual)
        row = STRATEGIES.get(strategy.text)
        kind = self._choose_kind(document, draft, row)
        if row is not None and kind is not None and kind.text == Workers.INDEPENDENT.value:
            row = row.with_workers(Workers.INDEPENDENT)
        is_single = row is not None and not row.tf_config
        others = len(options.cluster(row, 0).entries)
        workers = options.workers or (1 if is_single else max(1, slots - others))
        if is_single and workers > 1:
            what = f"the script creates {found[1]}, which" if found else strategy.text
            message = f"{what} runs in one process, but -n is {workers}"
            hint = f"leave out -n, or use the strategy {USUAL} in the script and as --strategy"
            self._problems.add(strategy.mark, message, hint)
            self._problems.raise_if_any()
        return strategy, options.cluster(row, workers), kind

    def _choose_kind(self, document: Mapping, draft: Spec, row: Strategy | None) -> Scalar | None:
        """Return the value of `workers`: what is written, else what the program shows, or None."""
        written = document.get("workers")
        if written is not None and isinstance(written.value, Scalar):
            return written.value
        if row is None or row.independent is None:
            return None
        found = self._find_workers(draft)
        if found is None:
            return None
        self.choices.append(f"workers: independent, because {found[1]} uses {found[0]}")
        return Scalar(found[1], Workers.INDEPENDENT.value)

    def _given_strategy(self, document: Mapping) -> Scalar | None:
        """Return the strategy that the command line says; None if it says none."""
        written = document.get("strategy")
        if written is not None and isinstance(written.value, Scalar):
            return written.value
        if self._options.strategy is not None:
            return Scalar(Mark("--strategy"), self._options.strategy)
        if self._options.ps is not None:
            servers = next(row.name for row in STRATEGIES.values() if Role.PS in row.roles)
            return Scalar(Mark("--ps"), servers)
        return None

    def _draft(self, document: Mapping) -> Spec:
        """Return a spec with the program and the hosts, and one task."""
        entries = [each for each in document.entries if each.key.text in _DRAFT_KEYS]
        strategy = Entry(Scalar(document.mark, "strategy"), Scalar(document.mark, _SINGLE))
        return self._read(replace(document, entries=(strategy, *entries)), is_draft=True)
