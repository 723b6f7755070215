"""Measures distrun beside other launchers, and writes docs/benchmarks.md.

    make bench

The peers are installed into a folder of their own first. All launchers run in turn, in rounds, on
the same machine. Takes half an hour on two cores. `make bench ARGS="--only slurm --nodes 16"`
measures one part, and prints its figures.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import launchers
import logs
import measures
import page
import peers
import pods
import psutil
import recovery
import scale
import training

import slurm
import ssh

ROOT = Path(__file__).resolve().parents[1]
_FIGURES = "figures.json"
_PARTS = ("here", "ssh", "slurm", "kubernetes", "logs", "scale", "recovery", "training")


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended, too
    folder = options.out / "benchmarks"
    kept = folder / _FIGURES
    figures = json.loads(kept.read_text()) if options.redraw else _measure(options)
    if options.only and not options.redraw:
        print(json.dumps(figures, indent=1))
        if not options.update:
            return 0
        former = json.loads(kept.read_text())
        apart = {**former.get("apart", {}), options.only: figures["date"]}
        figures = {**former, options.only: figures[options.only], "apart": apart}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FIGURES).write_text(json.dumps(figures, indent=1) + "\n")
    page.draw(figures, folder)
    (options.out / "benchmarks.md").write_text(page.write(figures))
    print(f"wrote {options.out / 'benchmarks.md'}")
    return 0


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    needs_peers = options.only in ("", "here", "ssh")
    others = launchers.peers_of(peers.install(options.peers, options.torch)) if needs_peers else []
    ours = launchers.installed()
    before = launchers.distrun("before", [options.before], {}) if options.before else None
    parts: dict[str, Callable[[], Any]] = {
        "here": lambda: _rows(measures.ROWS, [ours, *others], options.rounds),
        "ssh": lambda: _over_ssh([ours, *others], before, options.rounds),
        "slurm": lambda: slurm.measure(options.rounds, options.nodes),
        "kubernetes": lambda: pods.measure(options.rounds),
        "logs": logs.measure,
        "scale": lambda: _scale(ours, options.most_hosts),
        "recovery": lambda: recovery.measure(options.data_dir, options.rounds),
        "training": lambda: training.measure(options.data_dir, options.rounds),
    }
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "cores": psutil.cpu_count(),
            "memory": round(psutil.virtual_memory().total / 2**30),
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
        "rounds": options.rounds,
        "versions": {each.name: each.version for each in (ours, *others)},
        **{name: measure() for name, measure in parts.items() if options.only in ("", name)},
    }


def _rows(
    rows: tuple[measures.Row, ...] | list[measures.Row],
    which: list[launchers.Launcher],
    rounds: int,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in rows:
        figures = measures.in_rounds(row, which, rounds)
        found[row.name] = {
            name: {"figures": each, "text": row.cell(each)} for name, each in figures.items()
        }
        shown = ", ".join(f"{name} {each['text']}" for name, each in found[row.name].items())
        print(f"{row.name}: {shown}", file=sys.stderr)
    return found


def _over_ssh(
    which: list[launchers.Launcher], before: launchers.Launcher | None, rounds: int
) -> dict[str, Any] | None:
    why_not = ssh.why_not()
    if why_not is not None:
        print(f"nothing is measured over ssh: {why_not}", file=sys.stderr)
        return None
    able = [each for each in which if each.over_ssh is not None]
    able[1:1] = [launchers.without_preflight()]
    with ssh.hosts() as hosts:
        rows = _rows(hosts.rows(), [*able, *ssh.plain_loops()], rounds)
        ours = {"now": able[0]} if before is None else {"before": before, "now": able[0]}
        return {"rows": rows, "phases": hosts.phases(ours, rounds)}


def _scale(launcher: launchers.Launcher, most: int) -> list[dict[str, float]]:
    found = []
    for count, key_exchange, is_simulated in scale.RUNS:
        if count > most:
            continue
        if not scale.fits(count, is_simulated=is_simulated):
            print(f"{count} hosts: not enough memory", file=sys.stderr)
            continue
        run = scale.measure(launcher, count, key_exchange, is_simulated=is_simulated)
        found.append(asdict(run))
        print(json.dumps(found[-1]), file=sys.stderr)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=(__doc__ or "").partition("\n")[0]
    )
    home = ROOT / "build" / "peers"
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--nodes", type=int, default=4, metavar="N", help="for `slurm`")
    parser.add_argument("--most-hosts", type=int, default=4000, metavar="N", help="for `scale`")
    parser.add_argument("--only", default="", choices=["", *_PARTS])
    parser.add_argument("--before", metavar="PROGRAM", help="another distrun, for `ssh`")
    parser.add_argument(
        "--data-dir", metavar="FOLDER", help="of MNIST, for `recovery` and `training`"
    )
    parser.add_argument("--peers", type=Path, default=home, metavar="FOLDER")
    parser.add_argument("--torch", default=peers.TORCH, metavar="REQUIREMENT")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", metavar="FOLDER")
    parser.add_argument("--update", action="store_true", help="put the part of --only on the page")
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
