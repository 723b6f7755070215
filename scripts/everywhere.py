"""Runs tests with each promised Python, as root and as a user, in the environments of most shells.

A cell of the matrix is a Python, a user and an environment. Each begins with a walk: launch,
status, ps, logs, kill, plan, report, bundle. After it, the plain environment has all tests of
tests/process and of tests/unit without `SAME_EVERYWHERE` and those that generate their examples,
the others have `SELECTED`.
Prints a line for each cell: `ok`, `red` (with the end of its output), or `not run` and why. Exits
with 1 if a cell is red, with 2 if there is nothing to run.

Arguments select cells: versions (or `oldest`, `newest`), `root`, `user`, and environments. Each
kind that is not named is not limited: `newest user plain` is one cell.

Only root can run both as root and as a user. The user is the account that SUDO_USER names, else
`nobody`. Everything is in one folder in /tmp, which is removed at the end: a copy of this checkout,
a virtual environment for each Python without TensorFlow, and a copy of each interpreter that the
user cannot read.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SELECTED = (
    "tests/unit/test_jobstore.py",
    "tests/process/agent/test_execution.py",
    "tests/process/test_bundle.py",
    "tests/process/test_launch.py",
    "tests/process/test_logs_selection.py",
    "tests/process/test_strangers.py",
    "tests/process/test_terminal.py",
    "tests/process/test_usage.py",
    "tests/process/test_views.py",
    "tests/process/test_what_others_see.py",
)
"""The tests of what a user, a shell or a path changes: a minute."""
SAME_EVERYWHERE = (
    "tests/unit/test_architecture.py",
    "tests/unit/test_bad_spares.py",
    "tests/unit/test_hostile_host.py",
    "tests/unit/test_kubernetes.py",
    "tests/unit/test_progress_lines.py",
    "tests/unit/test_quiet_jobs.py",
    "tests/unit/test_spec_generated.py",
    "tests/unit/test_style.py",
    "tests/unit/test_suggestions.py",
    "tests/unit/test_verdict_corpus.py",
    "tests/process/test_api.py::test_the_page_is_true",
    "tests/process/test_clean.py",
    "tests/process/test_commands.py",
    "tests/process/test_custom_roles.py",
    "tests/process/test_damaged_records.py",
    "tests/process/test_defects.py",
    "tests/process/test_help.py::test_the_examples_work",
    "tests/process/test_help.py::test_who_does_what_is_suggested_succeeds",
    "tests/process/test_json.py",
    "tests/process/test_plan.py",
    "tests/process/test_program_keys.py",
    "tests/process/test_report.py",
    "tests/process/test_report_in_a_browser.py",
    "tests/process/test_restarts.py",
    "tests/process/test_resume.py",
    "tests/process/test_run.py",
    "tests/process/test_slurm_answers.py",
    "tests/process/test_stalled_readers.py",
    "tests/process/test_strategies.py",
    "tests/process/test_submitted.py",
    "tests/process/test_tensorboard.py",
    "tests/process/test_verdicts.py",
)
"""The tests of what neither a Python nor a user changes: `make test` has them. They are pure, of
code, of pages, of a browser, or of what a job does and shows."""
ENVIRONMENTS = {
    "walk": "the shell as it is, without tests",
    "plain": "the shell as it is",
    "descriptors": "ulimit -n 1024",
    "nohup": "below nohup",
    "home": "HOME is not writable",
    "no-home": "HOME is not set",
    "umask": "umask 077",
    "lang": "LC_ALL=C",
    "path": "a checkout whose path has spaces and letters that are not ASCII",
    "number": "a user id without an account",
}
NUMBER = 61_234
SECONDS = 45 * 60.0
"""For one cell."""
LINES, WRONG = 15, 60
"""Of the output of a red cell: those at its end, and those before that say what is wrong."""

WALK = r"""
set -eu
trap 'echo "line $LINENO of the walk failed: $BASH_COMMAND"' ERR
cd "$1"; shift
export DISTRUN_HOME="$PWD/records"
printf 'name: walk\nstrategy: multi_worker_mirrored\ncluster: {worker: 2}\n' > job.yaml
printf 'program: {command: [sh, -c, "echo grüße; [ -e go ] || exec sleep 600"]}\n' >> job.yaml
job=$("$@" launch -d job.yaml)
"$@" status "$job" | grep -q running
"$@" ps | grep -q "$job"
"$@" logs "$job" | grep -q gr
"$@" report "$job" -o running.html
"$@" kill "$job"
"$@" status "$job" --json | grep -q '"stopped"'
touch go
"$@" launch job.yaml
"$@" plan job.yaml
"$@" ps -a
"$@" report -o page.html
"$@" bundle -o job.tar.gz
"$@" report job.tar.gz -o bundle.html
"""


class Cell(NamedTuple):
    """What is run: `python` is its version."""

    python: str
    user: str
    environment: str

    @property
    def tests(self) -> tuple[str, ...]:
        same = (f"--{'deselect' if '::' in e else 'ignore'}={e}" for e in SAME_EVERYWHERE)
        everything = ("tests/unit", "tests/process", *same)
        return {"walk": (), "plain": everything}.get(self.environment, SELECTED)


class Matrix:
    """The cells, and what they need, in `folder`."""

    def __init__(self, folder: Path, pythons: dict[str, Path], cells: list[Cell]) -> None:
        self._folder, self._pythons = folder, pythons
        name = os.environ.get("SUDO_USER") or "nobody"
        self._account = pwd.getpwnam(name) if name != "root" else pwd.getpwnam("nobody")
        installed = folder / "installed"
        copy_checkout(installed)
        if not os.geteuid():  # else each command of the user would compile it again
            _give(installed, self._account.pw_uid, self._account.pw_gid)
        # They mostly wait for the package registry.
        pool = ThreadPoolExecutor()
        self._venvs = {
            version: pool.submit(
                self._make_venv,
                installed,
                version,
                is_for_tests=any(cell.tests for cell in cells if cell.python == version),
            )
            for version in dict.fromkeys(cell.python for cell in cells)
            if version in pythons
        }
        self._copies: dict[str, Path] = {}

    def why_not(self, cell: Cell) -> str | None:
        if cell.python not in self._pythons:
            return f"Python {cell.python} is not here"
        if os.geteuid() and (cell.user == "root" or cell.environment == "number"):
            return "only root can do it"
        if cell.environment == "home" and cell.user == "root":
            return "root can write everywhere"
        return None

    def run(self, cell: Cell) -> tuple[bool, str, str]:
        """Return whether the cell is green, a line on it, and what it printed if it is not."""
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix="cell-"))
        try:
            python = self._python(cell)
        except RuntimeError as error:
            return False, "no virtual environment", _end(str(error).encode())
        checkout = self._checkout(cell)
        env = self._env(cell, folder)
        os.chmod(folder, 0o755)
        (folder / "walk").mkdir()
        for each in (folder, folder / "walk"):
            os.chown(each, *self._ids(cell))
        test = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        test += [f"--basetemp={folder}/t", "-m", "not e2e and not network and not hypothesis"]
        test += cell.tests
        # Else each process that runs tests would compile all of them.
        compile_all = [*test, "--collect-only"]
        test += ["-n", "auto"]
        walk = ["bash", "-c", WALK, "walk", str(folder / "walk"), str(python), "-m", "distrun"]
        output = ""
        for command in (walk, compile_all, test) if cell.tests else (walk,):
            try:
                done = subprocess.run(
                    self._wrapped(cell, command),
                    cwd=checkout,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                why = f"took more than {SECONDS / 60:.0f} minutes"
                return False, why, _end(error.output or b"")
            output = _end(done.stdout)
            if done.returncode:
                name = "the walk" if command is walk else "the tests"
                return False, f"{name} exited {done.returncode}", output
        counts = re.findall(r"\d+ passed.*", output)
        left_out = re.findall(r"(\d+) tests were left out", output)
        shutil.rmtree(folder)
        passed = counts[-1] if counts else "the walk"
        return True, f"{passed}{f'; {left_out[-1]} left out' if left_out else ''}", ""

    # What a cell needs ---------------------------------------------------------------------

    def _ids(self, cell: Cell) -> tuple[int, int]:
        if cell.environment == "number":
            return NUMBER, NUMBER
        if cell.user == "root" or os.geteuid():
            return os.geteuid(), os.getegid()
        return self._account.pw_uid, self._account.pw_gid

    def _as_user(self, cell: Cell, command: list[str]) -> list[str]:
        uid, gid = self._ids(cell)
        if uid == os.geteuid():
            return command
        ids = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--inh-caps=-all"]
        return ["setpriv", *ids, *command]

    def _wrapped(self, cell: Cell, command: list[str]) -> list[str]:
        words = shlex.join(self._as_user(cell, command))
        before = {
            "descriptors": "ulimit -n 1024; exec ",
            "nohup": "exec nohup ",
            "umask": "umask 077; exec ",
        }
        return ["bash", "-c", before.get(cell.environment, "exec ") + words]

    def _env(self, cell: Cell, folder: Path) -> dict[str, str]:
        kept = ("PATH", "REQUIRE_SSH_TESTS", "REQUIRE_BROWSER_TESTS", "LANG")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env["PATH"] = os.pathsep.join([str(self._python(cell).parent), env.get("PATH", "/bin")])
        home = folder / "home"
        home.mkdir()
        if cell.environment == "home":
            home.chmod(0o555)
        else:
            os.chown(home, *self._ids(cell))
        if cell.environment != "no-home":
            env["HOME"] = str(home)
        if cell.environment == "lang":
            env["LC_ALL"] = "C"
        return env

    def _checkout(self, cell: Cell) -> Path:
        name = "ein Ordner für Tests" if cell.environment == "path" else "checkout"
        key = f"{name} {self._ids(cell)[0]}"
        if key not in self._copies:
            place = self._folder / str(self._ids(cell)[0]) / name
            copy_checkout(place)
            _give(place, *self._ids(cell))
            self._copies[key] = place
        return self._copies[key]

    def _python(self, cell: Cell) -> Path:
        return self._venvs[cell.python].result()

    def _make_venv(self, installed: Path, version: str, *, is_for_tests: bool) -> Path:
        """Return the interpreter of a virtual environment that both users can read."""
        venv = self._folder / f"python-{version}"
        base = _readable(self._pythons[version], self._folder / version)
        without = "tensorflow" if is_for_tests else "tensorflow dev"
        env = {**os.environ, "PYTHON": str(base), "WITHOUT": without}
        command = ["sh", "scripts/venv.sh", venv]
        made = subprocess.run(
            command, cwd=installed, env=env, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise RuntimeError(made.stderr)
        return venv / "bin" / "python"


def copy_checkout(place: Path) -> None:
    """Copy what git knows, and what it would add, with changes that are not committed."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in filter(None, map(os.fsdecode, names.split(b"\0"))):
        target = place / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)


def _give(place: Path, uid: int, gid: int) -> None:
    for folder, _, names in os.walk(place):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, uid, gid)


def _readable(python: Path, copy: Path) -> Path:
    """Return an interpreter that every user can run: this one, or a copy of it."""
    folders = python.resolve().parents
    if all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders):
        return python
    asked = [python, "-c", "import sys; print(sys.base_prefix)"]
    prefix = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    ignored = shutil.ignore_patterns("test", "site-packages", "*.a")
    shutil.copytree(prefix, copy, symlinks=True, ignore=ignored)
    program = copy / "bin" / python.resolve().name
    # It looks for its library where it was installed. The new text must not be longer than the old
    # one. $ORIGIN is short, but the loader finds it in /proc, which some tests hide.
    old, new = os.fsencode(f"{prefix}/lib\0"), os.fsencode(f"{copy}/lib\0")
    new = new if len(new) <= len(old) else b"$ORIGIN/../lib\0"
    program.write_bytes(program.read_bytes().replace(old, new.ljust(len(old), b"\0")))
    return program


def _end(output: bytes) -> str:
    """Return what pytest says is wrong, and the last lines."""
    lines = output.decode(errors="replace").splitlines()
    wrong = [line for line in lines[:-LINES] if line.startswith(("E   ", "FAILED", "ERROR"))]
    return "\n".join([*wrong[:WRONG], *lines[-LINES:]])


def _promised(*options: str) -> list[str]:
    command = ["sh", "scripts/pythons.sh", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def cells(promised: list[str], words: list[str]) -> Iterator[Cell]:
    """Return the cells that these words select.

    Raises:
        ValueError: one of them is no version, user or environment. Its text says which there are.
    """
    names = {"oldest": promised[0], "newest": promised[-1]}
    wanted = {names.get(word, word) for word in words}
    kinds = [promised, ["root", "user"], list(ENVIRONMENTS)]
    unknown = wanted.difference(*kinds)
    if unknown:
        known = ", ".join(["oldest", "newest", *(each for kind in kinds for each in kind)])
        raise ValueError(f"everywhere: unknown: {', '.join(sorted(unknown))}; there are: {known}")
    versions, users, environments = ([e for e in kind if e in wanted] or kind for kind in kinds)
    for version in versions:
        for user in users:
            for environment in environments:
                if environment != "number" or user == "user":
                    yield Cell(version, user, environment)


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the folder is removed then
    os.umask(0o022)
    promised = _promised("--promised")
    try:
        chosen = list(cells(promised, words))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    pythons = {version: Path(path) for version, path in map(str.split, _promised())}
    counts = {"ok": 0, "red": 0, "not run": 0}
    with tempfile.TemporaryDirectory(prefix="ev-") as folder:
        os.chmod(folder, 0o755)
        matrix = Matrix(Path(folder), pythons, chosen)
        for cell in chosen:
            began = time.monotonic()
            why, output = matrix.why_not(cell), ""
            result = "not run"
            if why is None:
                is_green, why, output = matrix.run(cell)
                result = "ok" if is_green else "red"
            counts[result] += 1
            seconds = f"{time.monotonic() - began:.0f} s"
            row = f"{cell.python:<6}{cell.user:<6}{cell.environment:<13}{result:<9}{seconds:>7}  "
            print(row + why, *output.splitlines(), sep="\n    ", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["red"] else 0 if counts["ok"] else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
